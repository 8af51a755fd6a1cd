"""The mechanisms of the frontier, and the settings that the search tries: equally many for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
        keys: of the settings that are searched; none where there is nothing to choose.
        trials: their values, by epsilon.
        networks: p_c of the networks that it is run in; a word for the only one where p_c means nothing.
    """

    name: str
    label: str
    settings: tuple[str, ...]
    keys: tuple[str, ...]
    trials: dict[float, tuple[Trial, ...]]
    networks: tuple[float | str, ...] = TRUST

    @property
    def private(self) -> bool:
        """Whether it has an epsilon."""
        return PLAIN not in self.trials

    @property
    def by_trust(self) -> bool:
        """Whether p_c means something."""
        return isinstance(self.networks[0], float)


# Trials are ordered by how far their steps can lead; the smaller epsilon is, the less far it pays to go.
_ONE_STEP_TRIALS = ((25, 0.3), (25, 0.8), (25, 2), (80, 0.6), (80, 1.5), (80, 4), (80, 8))
_PAPER_TRIALS = (
    (25, 1, 0.05),
    (60, 1, 0.03),
    (60, 5, 0.02),
    (60, 1, 0.1),
    (120, 1, 0.03),
    (120, 1, 0.1),
    (120, 5, 0.05),
)
_FIRST = {0.1: 0, 0.3: 1, 1.0: 2, 3.0: 3, 8.0: 3}  # of the trials at an epsilon


def _at_each(trials: tuple[Trial, ...], smallest: Trial) -> dict[float, tuple[Trial, ...]]:
    """Four at each epsilon; at the smallest one more, between the first two, which left a wide gap there."""
    found = {epsilon: trials[first : first + 4] for epsilon, first in _FIRST.items()}
    return found | {0.1: (*found[0.1], smallest)}


def _inside(steps: int, step_size: float) -> Trial:
    """The same steps, of which a device under an untrusted server takes several for one message."""
    local = 5 if steps == 25 else 8 if step_size < 4 else 4
    return steps // local, local, {"trusted": 1, "untrusted": local}, step_size


def _paper(intervals: int, steps: int, step_size: float) -> Trial:
    return intervals, steps, steps, step_size


_ONE_STEP = ("training.intervals", "training.step_size")
_SEVERAL = ("training.intervals", "training.local_steps", "training.aggregate_every", "training.step_size")
_CHOSEN = ("training={extends: auto, evaluate_every: 1000}", "model=auto")
MECHANISMS = (
    Mechanism("default", "the defaults", _CHOSEN, (), dict.fromkeys(EPSILONS, ((),))),  # on public features, no search
    Mechanism("per-record", "per record", (), _ONE_STEP, _at_each(_ONE_STEP_TRIALS, (25, 0.5))),
    Mechanism(
        "secure-sum",
        "secure sums",
        ("topology.trust={secure-sum: 1}",),
        _ONE_STEP,
        _at_each(_ONE_STEP_TRIALS, (25, 0.5)),
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
        "noise-inside",
        "noise inside",
        ("method={extends: h2fdp, privacy: {name: hierarchical, noise: steps}}",),
        _SEVERAL,
        _at_each(tuple(_inside(*trial) for trial in _ONE_STEP_TRIALS), _inside(25, 0.5)),
    ),
    Mechanism(
        "paper",
        "the paper's",
        ("training.clip_scope=batch", "training.clip_norm=1", "training.sampling_rate=null", "training.batch_size=2"),
        _SEVERAL,
        _at_each(tuple(_paper(*trial) for trial in _PAPER_TRIALS), _paper(25, 1, 0.02)),
    ),
)


# The small CNN's: two settings at three epsilons; the less noise, the more steps, of fewer records each.
_CNN_TRIALS = {
    0.3: ((60, 0.04, 5), (60, 0.04, 10)),
    1.0: ((125, 0.04, 6), (125, 0.04, 10)),
    8.0: ((200, 0.02, 6), (200, 0.02, 10)),
    PLAIN: ((200, 0.02, 6), (200, 0.02, 10)),
}
_CNN_SETTINGS = ("model={name: 'experiments.frontier.small_cnn:small_cnn'}", "training.clip_norm=1")
_RATE = "training.sampling_rate"


def _inside_cnn(steps: int, rate: float, step_size: float) -> Trial:
    return steps // 5, 5, {"trusted": 1, "untrusted": 5}, rate, step_size


def _of_cnn(mechanism: Mechanism) -> Mechanism:
    wanted = {epsilon: trials for epsilon, trials in _CNN_TRIALS.items() if (epsilon == PLAIN) != mechanism.private}
    if mechanism.name == "noise-inside":
        wanted = {epsilon: tuple(_inside_cnn(*each) for each in trials) for epsilon, trials in wanted.items()}
    keys = (*mechanism.keys[:-1], _RATE, mechanism.keys[-1])
    return replace(mechanism, settings=(*_CNN_SETTINGS, *mechanism.settings), keys=keys, trials=wanted)


MODELS: dict[str, tuple[Mechanism, ...]] = {
    "softmax": MECHANISMS,
    "cnn": tuple(_of_cnn(each) for each in MECHANISMS if each.name not in ("default", "paper")),
}
"""The mechanisms by model."""


def part_of(mechanism: Mechanism, epsilons: Sequence[float], networks: Sequence[float]) -> Mechanism:
    """A smaller study: fewer epsilons, fewer probabilities of trust.

    >>> part_of(MECHANISMS[0], (0.3, 8.0), (0.0, 1.0)).networks
    (0.0, 1.0)
    """
    trials = {epsilon: tried for epsilon, tried in mechanism.trials.items() if epsilon in (*epsilons, PLAIN)}
    kept = tuple(each for each in mechanism.networks if each in networks) if mechanism.by_trust else mechanism.networks
    return replace(mechanism, trials=trials, networks=kept)
