"""The description of a release for accountants, and the error of an accountant that does not support it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from h2fdp.errors import UserError

Bound: TypeAlias = Literal["batch", "record", "draws", "update", "range", "none"]
"""How the sensitivity of a release is known.

`batch`: from its first draw on the record may turn every clipped batch gradient by 2G, 2 eta m G in all. `record`: its
own clipped gradient counts 1 / (q D) of a batch's, and the later batch gradients of the same release may turn. `draws`:
steps do not expand, so that each draw moves the model by eta G / (q D) and nothing else does. `update`: a whole upload
is clipped. `range`: an estimate is clipped to its range. `none`: it is not known.
"""


@dataclass(frozen=True, slots=True, order=True)
class ReleaseType:
    """One noisy release about one device, as one observer sees it, in units of its sensitivity.

    Neighbours: one record of the device becomes a null record, which contributes nothing and is not counted when it
    is drawn. The sensitivity is that of a record which is drawn at every step.

    Attributes:
        noise_multiplier: standard deviation of the noise / sensitivity; 0 is no noise, inf a release that does not
            depend on the record at all.
        steps: m, the local steps that the release accumulates.
        sampling_rate: q, the probability that one step's batch holds the record.
        sampling: `poisson` draws the record independently of everything else, so that sampling amplifies; `fixed`
            batches claim no amplification: a plain Gaussian of the full sensitivity.
        bound: how the sensitivity is known, which also says how much less a record does that is drawn later.
        own_gradient: of a draw under `record`: how far the record's own clipped gradient moves that step, in units of
            2 eta G; 1 elsewhere.
        replaced: neighbours differ in a record that becomes another one, not a null record; the sensitivity is then the
            distance of the two outputs.
    """

    noise_multiplier: float
    steps: int
    sampling_rate: float
    sampling: Literal["poisson", "fixed"] = "poisson"
    bound: Bound = "batch"
    own_gradient: float = 1.0
    replaced: bool = False

    def __post_init__(self) -> None:
        assert self.noise_multiplier >= 0, self
        assert self.steps >= 1, self
        assert 0 <= self.sampling_rate <= 1, self
        assert self.sampling in ("poisson", "fixed"), self
        assert self.bound in get_args(Bound), self
        assert 0 < self.own_gradient <= 1, self


Composition: TypeAlias = Mapping[ReleaseType, int]
"""How often each type of release was seen, by one observer, about one device."""


def revealing(composition: Composition) -> dict[ReleaseType, int]:
    """The releases that say anything at all about the record.

    >>> silent = ReleaseType(math.inf, steps=5, sampling_rate=0.1)
    >>> revealing({silent: 3, ReleaseType(2.0, 5, 0.1): 0, ReleaseType(3.0, 5, 0.0): 7})
    {}
    """
    assert all(count >= 0 for count in composition.values()), "a release cannot be taken back"
    return {
        release: count
        for release, count in composition.items()
        if count and not math.isinf(release.noise_multiplier) and release.sampling_rate > 0
    }


class UnsupportedRelease(UserError):
    """An accountant was asked about a release that it has no sound account for: it refuses, with the reason."""
