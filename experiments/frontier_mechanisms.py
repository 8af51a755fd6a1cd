"""The mechanisms of the frontier, and the settings that the search tries: four at each epsilon, for every mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)
PLAIN = float("inf")  # what stands for epsilon where there is no noise
TRUST = (0.0, 0.5, 1.0)  # p_c
ANY, SECURE_SUM = "any", "secure-sum"

Trial = tuple[Any, ...]


@dataclass(frozen=True)
class Mechanism:
    """A way to add noise.

    Attributes:
        label: for a reader.
        settings: changes of `frontier.yaml`.
        keys: of the settings that are searched.
        trials: their values, by epsilon.
        networks: p_c of the networks that it is run in; a word for the only one where p_c means nothing.
    """

    name: str
    label: str
    settings: tuple[str, ...]
    keys: tuple[str, ...]
    trials: dict[float, tuple[Trial, ...]]
    networks: tuple[float, ...] | tuple[str] = TRUST

    @property
    def private(self) -> bool:
        """Whether it has an epsilon."""
        return PLAIN not in self.trials

    @property
    def by_trust(self) -> bool:
        """Whether p_c means something."""
        return len(self.networks) > 1


# Trials are ordered by how far their steps can lead; the smaller epsilon is, the less far it pays to go.
_ONE_STEP_TRIALS = ((25, 0.3), (25, 0.8), (25, 2), (80, 0.6), (80, 1.5), (80, 4), (80, 8))
_PAPER_TRIALS = ((25, 1, 0.05), (60, 1, 0.05), (200, 1, 0.02), (60, 5, 0.02), (200, 1, 0.06), (200, 1, 0.15),
                 (200, 5, 0.05))  # fmt: skip
_FIRST = {0.1: 0, 0.3: 1, 1.0: 2, 3.0: 3, 8.0: 3}  # of the four trials at an epsilon


def _four(trials: tuple[Trial, ...]) -> dict[float, tuple[Trial, ...]]:
    return {epsilon: trials[first : first + 4] for epsilon, first in _FIRST.items()}


def _inside(steps: int, step_size: float) -> Trial:
    """The same steps, of which a device under an untrusted server takes several for one message."""
    local = 5 if steps == 25 else 8 if step_size < 4 else 4
    return steps // local, local, {"trusted": 1, "untrusted": local}, step_size


_ONE_STEP = ("training.intervals", "training.step_size")
_SEVERAL = ("training.intervals", "training.local_steps", "training.aggregate_every", "training.step_size")
MECHANISMS = (
    Mechanism("per-record", "per record", (), _ONE_STEP, _four(_ONE_STEP_TRIALS)),
    Mechanism(
        "secure-sum",
        "secure sums",
        ("topology.trust={secure-sum: 1}",),
        _ONE_STEP,
        _four(_ONE_STEP_TRIALS),
        (SECURE_SUM,),
    ),
    Mechanism(
        "none",
        "no noise",
        ("method=hfl", "privacy.calibration=paper"),
        _ONE_STEP,
        {PLAIN: (*_ONE_STEP_TRIALS[4:], (80, 16))},
        (ANY,),
    ),
    Mechanism(
        "paper",
        "the paper's",
        ("training.clip_scope=batch", "training.clip_norm=1", "training.sampling_rate=null", "training.batch_size=2"),
        _SEVERAL,
        _four(tuple((intervals, steps, steps, size) for intervals, steps, size in _PAPER_TRIALS)),
    ),
    Mechanism(
        "noise-inside",
        "noise inside",
        ("method={extends: h2fdp, privacy: {name: hierarchical, noise: steps}}",),
        _SEVERAL,
        _four(tuple(_inside(*trial) for trial in _ONE_STEP_TRIALS)),
    ),
)
