"""Images that are flipped and moved while devices train: `data.augment`, and what each record becomes in each step.

A record's gradient is the mean over its variants, and is clipped as one: a record counts once, however many there are
(De, Berrada, Hayes, Smith and Balle 2022). What is drawn depends on no record, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import BY_SHAPE, Expect, Flag, Section
from h2fdp.data.records import Rows
from h2fdp.errors import EXPERIMENT_REFUSALS, UserError, refused
from h2fdp.streams import Streams

if TYPE_CHECKING:
    from torch import Tensor

KEY = "data.augment"


class Augment(Section):
    """`augment:` under `data:`.

    Attributes:
        flip: whether half of the variants are mirrored, left for right.
        crop: pixels by which a variant is moved at most, up or down and to the side; what comes in is the image in a
            mirror at its edge.
        times: variants of a record in each step, over which its gradient is averaged before it is clipped.
    """

    flip: Flag = False
    crop: Annotated[int, Field(ge=0, le=64), Expect("a whole number from 0 to 64")] = 0
    times: Annotated[int, Field(ge=1, le=128), Expect("a whole number from 1 to 128")] = 4

    @property
    def codes(self) -> int:
        """The number of different variants, which are equally likely."""
        return (1 + self.flip) * (2 * self.crop + 1) ** 2

    def check(self, image: tuple[int, ...]) -> None:
        """Refuse records that are no images, or are moved further than they reach.

        Args:
            image: the shape of a record, as the model that is trained takes it.
        """
        if len(image) != 3:
            text = (
                "images move while devices train; expected null, or a model that takes images and no features of them"
            )
            raise UserError(f"{text}, found inputs of shape {image}", key=KEY)
        if self.crop >= min(image[1:]):
            text = f"images of {image[1]} x {image[2]} pixels are moved by less than their sides"
            raise UserError(f"{text}; expected at most {min(image[1:]) - 1}, found {self.crop}", key=f"{KEY}.crop")

    def images(self, x: Tensor, codes: NDArray[np.int64]) -> Tensor:
        """(n * times, C, H, W) the variants (n, times) of images x (n, C, H, W), those of one after another.

        >>> import torch
        >>> x = torch.tensor([[[[1, 2, 3]]]])
        >>> [Augment(flip=True).images(x, np.array([[code]])).tolist() for code in (0, 1)]
        [[[[[1, 2, 3]]]], [[[[3, 2, 1]]]]]
        """
        import torch

        moved, flipped = np.divmod(codes.reshape(-1), 1 + self.flip)
        down, aside = (each - self.crop for each in np.divmod(moved, 2 * self.crop + 1))
        height, width = x.shape[2:]
        rows, columns = _mirrored(down, height), _mirrored(aside, width)
        columns = np.where(flipped[:, None] == 1, columns[:, ::-1], columns)
        owners = np.arange(codes.size) // codes.shape[1]
        places = (owners[:, None, None] * height + rows[:, :, None]) * width + columns[:, None, :]
        pixels = x.movedim(1, -1).reshape(-1, x.shape[1])
        chosen = pixels.index_select(0, torch.from_numpy(places.reshape(-1)).to(x.device))
        return chosen.view(*places.shape, x.shape[1]).movedim(-1, 1)


def _mirrored(moved: NDArray[np.int64], side: int) -> NDArray[np.int64]:
    """(n, side) places within the side, after a move of less than the side, mirrored at its ends."""
    places = np.abs(np.arange(side) + moved[:, None])
    return np.asarray(np.where(places >= side, 2 * (side - 1) - places, places))


@EXPERIMENT_REFUSALS.register
def _bounded_inputs(experiment: Any) -> Iterator[tuple[str, str]]:
    """Noise that is sized by a bound on inputs, which are checked as they are held."""
    stated, bound = getattr(experiment.data, "augment", None), experiment.method.privacy.input_norm
    wrong = stated is not None and bound is not None
    return refused("noise by a bound on inputs knows records as they are", (KEY, wrong, "null", "variants of them"))


AugmentKey = Annotated[
    Augment | Annotated[list[Literal["flip", "crop"]], Field(min_length=1)] | None,
    BY_SHAPE,
    Expect("null, [flip, crop], or keys with values, as {flip: true, crop: 4, times: 8}"),
]
_USUAL_CROP = 4  # pixels, as usual for CIFAR-10


def augment_of(stated: Augment | list[Literal["flip", "crop"]] | None) -> Augment | None:
    """The section that a list stands for; None where nothing is augmented.

    >>> augment_of(["flip", "crop"])
    Augment(flip=True, crop=4, times=4)
    """
    if isinstance(stated, list):
        stated = Augment(flip="flip" in stated, crop=_USUAL_CROP if "crop" in stated else 0)
    return stated if stated is not None and stated.codes > 1 else None


@dataclass(frozen=True)
class Variants(Rows):
    """The variants of the records that devices draw in a stretch of local steps.

    Those of a step have a stream of their own: (device, "augment", interval, slot).

    Attributes:
        nodes: (s,) names of the devices.
        first_slot: before the stretch.
    """

    rule: Augment
    streams: Streams
    nodes: list[str]
    interval: int
    first_slot: int

    def codes(self, slot: int, device: int, records: int) -> NDArray[np.int64]:
        """(records, times) variants of the records that a device drew, in their order.

        Args:
            slot: which of the stretch's slots, from 0.
            device: its row.
        """
        at = self.interval, self.first_slot + slot + 1
        drawn = self.streams.borrowed(self.nodes[device], "augment", *at)
        return drawn.integers(self.rule.codes, size=(records, self.rule.times))
