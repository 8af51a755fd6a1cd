"""Devices that ask for an epsilon of their own, below that of the run: they weigh less, so that noise need not grow.

Account: with weights rho_j, the release of a device j moves by rho_j s_j under noise sigma, and epsilon falls with the
ratio sigma / (rho_j s_j) alone, whatever the law, the sampling or the number of releases. Let f(e) be the factor on all
noises at which every device's account is at most e, and r_j = f(the largest target) / f(target of j), at most 1; of
Gaussians without sampling r_j is a ratio of mu's. A device whose ratio is 1 / r_j of what it is under f(the largest)
has the account that it would have if all noises were multiplied by f(its own target): it meets that target, exactly.

Least noise: let a_j be the weight of a device in the model, of sum 1. A noise that covers devices G has to be
max_G(a_j / r_j), and the variance of all noise is the sum of its squares: a convex programme in a. Where subnets are
alike its solution is a_j ~ r_j R_G, R_G the mean of r over G, as Cauchy and Schwarz show: noise at a node asks for
weights r_j, and the subnet's for R_G^2; noise at each device, where R_G = r_j, for r_j^2. (Where subnets differ in size
or trust, the file's weights stay, multiplied by these factors.)

Who asks for what is public, and must not depend on records. Equal targets change no bit.
Source: Malekmohammadi et al. 2024 (Robust-HDP: weights by the inverse variance of noise); Boenisch et al. 2023 and
arXiv 2501.17634 (a smaller reach for who asks for more).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from h2fdp.errors import NETWORK_REFUSALS, refused
from h2fdp.network import Topology
from h2fdp.privacy.accounts import DeviceClass
from h2fdp.privacy.places import OBSERVERS, Observer
from h2fdp.privacy.statement import epsilons, verdict_of
from h2fdp.wording import counted

EPSILON = "epsilon"  # the column of devices
OWN = (
    "targets: devices ask for an epsilon of their own, to which their accounts are held; epsilon is that of the worst "
    "device of all. Who asks for what is public, and must not depend on records"
)
_KNOTS = 12  # different targets of which each has its own f; between more, log f is interpolated


@dataclass(frozen=True)
class Targets:
    """The epsilon that bounds each device's account, for every target observer.

    Attributes:
        epsilon: of devices that ask for no smaller one.
        own: (I,) of all devices, as accounts number them; None where none asks.

    >>> targets = Targets(3.0, np.array([3.0, 0.5, 3.0]))
    >>> targets.of(np.array([0, 1])), targets.distinct.tolist()
    (0.5, [0.5, 3.0])
    """

    epsilon: float
    own: np.ndarray | None = None

    @classmethod
    def in_network(cls, epsilon: float, topology: Topology) -> Targets:
        """The targets of a network's devices in the order of its tree."""
        stated = topology.table.columns.get(EPSILON)
        own = None if stated is None else np.minimum(stated, epsilon)
        return cls(epsilon, None if own is None or (own == epsilon).all() else own)

    @cached_property
    def distinct(self) -> np.ndarray:
        """All different ones, ascending."""
        return np.array([self.epsilon]) if self.own is None else np.unique(self.own)

    def of(self, devices: np.ndarray) -> float:
        """The target of an account that all these devices have: the smallest of theirs."""
        return self.epsilon if self.own is None else float(self.own[devices].min())

    def eases(self, factor: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
        """A map from targets (n,) to r (n,), by f of an epsilon."""
        knots = self.distinct
        if len(knots) > _KNOTS:
            knots = np.geomspace(knots[0], knots[-1], _KNOTS)
        needed = np.log([factor(float(each)) for each in knots])
        return lambda targets: np.exp(np.minimum(needed[-1] - np.interp(np.log(targets), np.log(knots), needed), 0.0))


def of_targets(
    held: Mapping[Observer, Sequence[DeviceClass]],
    targets: Targets,
    delta: float,
    accountant: str,
    targeted: Sequence[Observer],
) -> list[dict[str, Any]]:
    """A row for each target: the largest account of its devices.

    Args:
        held: see `Accounts.held`.
        targeted: observers whose accounts have to meet targets.

    Returns:
        Of each target, ascending: `target`, number of `devices`, `accounted` (observer -> an epsilon that none of them
        exceeds), the `largest` of these for targeted observers and the `verdict`. Empty where no device asks for a
        target of its own.
    """
    found = []
    for target in targets.distinct.tolist() if targets.own is not None else ():
        theirs = targets.own == target
        accounted = {
            observer: epsilons(accountant, compositions, delta)[1]
            for observer, classes in held.items()
            if (compositions := [each.composition for each in classes if theirs[each.devices].any()])
        }
        every = tuple(targeted) == OBSERVERS  # the default stands for all that there are
        most = max((epsilon for observer, epsilon in accounted.items() if every or observer in targeted), default=0.0)
        row = {"target": target, "devices": int(theirs.sum()), "accounted": accounted, "largest": most}
        found.append(row | {"verdict": verdict_of(target, most)})
    return found


def facts_of(groups: Sequence[Mapping[str, Any]], most: int = 4) -> dict[str, str]:
    """The fact that every text about accounts has of `of_targets`, first of those that are not met; empty without any.

    >>> facts_of([{"target": 0.5, "devices": 5, "accounted": {"edge": 0.6}, "largest": 0.4, "verdict": "met"}])
    {'own epsilon': '0.5 for 5 devices: at most 0.4, met'}
    """
    ordered, words = sorted(groups, key=lambda each: each["verdict"] == "met"), []
    for each in ordered[:most]:
        devices = counted(each["devices"], "device")
        words.append(f"{each['target']:.4g} for {devices}: at most {each['largest']:.3g}, {each['verdict']}")
    words += [f"{len(ordered) - most} more"] if len(ordered) > most else []
    return {"own epsilon": "; ".join(words)} if words else {}


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of settings that know one epsilon for all.

    Args:
        experiment: an `ExperimentFile`.
        network: that is simulated.
    """
    privacy, method = experiment.privacy, experiment.method
    if not method.privacy.private or Targets.in_network(privacy.epsilon, topology).own is None:
        return
    traits, schedule = method.traits, method.schedule.name
    yield from refused(
        "devices ask for an epsilon of their own",
        ("privacy.calibration", privacy.calibration != "accounted", "accounted", privacy.calibration),
        ("method.schedule", traits.reads_releases and not traits.foreseen, "one that reads no releases", schedule),
    )
