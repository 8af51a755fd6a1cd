"""The schema of `method.privacy`, and the registry of placements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from h2fdp.config.choice import Choice
from h2fdp.config.fields import Expect, Magnitude
from h2fdp.privacy.mechanisms.central import Central
from h2fdp.privacy.mechanisms.dp_sgd import DpSgd
from h2fdp.privacy.mechanisms.hierarchical import EveryDevice, Nowhere, WhereTrustEnds
from h2fdp.privacy.mechanisms.objective import Objective
from h2fdp.privacy.mechanisms.output import Output
from h2fdp.privacy.mechanisms.placement import Placement


@dataclass(frozen=True)
class _Entry:
    build: Callable[..., Placement]
    options: Mapping[str, Any] = field(default_factory=dict)


NOISE_PLACEMENTS: dict[str, _Entry] = {
    "none": _Entry(Nowhere),
    "hierarchical": _Entry(WhereTrustEnds),
    "local": _Entry(EveryDevice),
    "central": _Entry(Central, {"noise_multiplier": None}),
    "dp-sgd": _Entry(DpSgd, {"noise_multiplier": None, "normalize": "expected", "rc_search": "safe"}),
    "output": _Entry(Output, {"model_norm": 1.0, "noise_std": None}),
    "objective": _Entry(Objective, {"rate": None, "u1": None, "u2": None, "input_bound": 1.0}),
}


class PlacementSection(Choice):
    """Where noise is added; a word, or a mapping with the placement's parameters.

    Attributes:
        noise_multiplier: z, of the cloud's noise or of every step's; null is calibrated.
        normalize, rc_search: of DP-SGD.
        model_norm, noise_std: tau and sigma of output perturbation; a noise_std of null is calibrated.
        rate, u1, u2, input_bound: of objective perturbation; a rate of null is calibrated.

    >>> PlacementSection.model_validate("dp-sgd").options()
    {'noise_multiplier': None, 'normalize': 'expected', 'rc_search': 'safe'}
    """

    choices: ClassVar = {name: dict(entry.options) for name, entry in NOISE_PLACEMENTS.items()}

    noise_multiplier: Magnitude | None = None
    normalize: Annotated[Literal["expected", "drawn"], Expect("one of expected, drawn")] | None = None
    rc_search: Annotated[Literal["safe", "paper"], Expect("one of safe, paper")] | None = None
    model_norm: Magnitude | None = None
    noise_std: Magnitude | None = None
    rate: Magnitude | None = None
    u1: Magnitude | None = None
    u2: Magnitude | None = None
    input_bound: Magnitude | None = None


def placement_of(section: PlacementSection) -> Placement:
    """The placement that a section describes."""
    return NOISE_PLACEMENTS[section.name].build(**section.options())
