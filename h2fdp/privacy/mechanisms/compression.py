"""What makes devices' uploads smaller, after their noise: stages by the key of the experiment file that asks for them.

A mean of compressed uploads is no function of the mean of noisy ones. So where such a stage keeps no sums, each device
has the account of its own upload, to everybody, and no credit for the noise of others (docs/privacy.md).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self

from pydantic import create_model, model_validator

from h2fdp.config.fields import Section
from h2fdp.privacy.mechanisms.pipeline import Stage


class Compressor(Stage, Protocol):
    """A stage after the noise, made of one number of the file.

    Attributes:
        key: of the file; `allowed`: the type of its value there; `meaning`: of the value, in words.
    """

    key: ClassVar[str]
    allowed: ClassVar[Any]
    meaning: ClassVar[str]
    hides: ClassVar[bool] = False

    def __init__(self, value: Any) -> None: ...


COMPRESSORS: dict[str, type[Compressor]] = {}


def compressor(stage: type[Compressor]) -> type[Compressor]:
    """Register a stage; a decorator."""
    COMPRESSORS[stage.key] = stage
    return stage


class CompressedLink(Section):
    """What happens to the messages of a link; at most one of the registered stages."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.stages) > 1:
            raise ValueError(f"expected one of {', '.join(COMPRESSORS)}")
        return self

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The one that the file asks for, if any."""
        return tuple(COMPRESSORS[key](value) for key, value in self if value is not None)


def section() -> type[CompressedLink]:
    """The section of a link, with a key for each registered stage."""
    meanings = "".join(f"    {key}: {stage.meaning}\n" for key, stage in COMPRESSORS.items())
    keys: dict[str, Any] = {key: (stage.allowed | None, None) for key, stage in COMPRESSORS.items()}
    doc = f"What becomes of the uploads of devices, after their noise.\n\nAttributes:\n{meanings}"
    return create_model("DeviceLink", __base__=CompressedLink, __doc__=doc, __module__=__name__, **keys)
