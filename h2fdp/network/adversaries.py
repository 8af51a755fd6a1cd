"""Nodes that lie: which devices and edge servers do, and what arrives in the place of their uploads.

`adversaries:` of a topology file names them, or draws a share of them by the seed: raising a share only adds liars.
They are declared, so they are public. Where uploads come together, those of the liars are replaced by what `Attack.lie`
makes of them. What this means for the accounts of the others is in docs/privacy.md: liars have no account, and no
account credits their noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from h2fdp.config import Document, Section
from h2fdp.config.fields import BY_SHAPE, Expect, Magnitude, Number, Options, Share, Whole, adds_keys
from h2fdp.config.named_options import Choices
from h2fdp.errors import NETWORK_REFUSALS, Problem, UserError
from h2fdp.network.parts import PartSection, Replacing
from h2fdp.streams import Streams

if TYPE_CHECKING:
    from torch import Tensor


class Attack(Options):
    """An attack by liars.

    Attributes:
        poisons: they train on false records, which edge servers do not have.
        omniscient: they know what the others upload to the same aggregation.
    """

    poisons: ClassVar[bool] = False
    omniscient: ClassVar[bool] = False

    @abstractmethod
    def lie(self, own: Tensor, others: Tensor) -> Tensor:
        """(m, M), or (M,) for all of them, in the place of the liars' uploads.

        Args:
            own: (m, M) what they would send if they were honest.
            others: (h, M) the honest uploads of the same aggregation; h is at least 1 for omniscient liars.
        """


ATTACKS: Choices[Attack] = Choices()


@ATTACKS.register
class LabelFlip(Attack):
    """Label y becomes classes - 1 - y in all their records (Fang et al. 2020); what they train is sent as it is."""

    name: Literal["label-flip"] = "label-flip"
    poisons: ClassVar[bool] = True

    def lie(self, own: Tensor, others: Tensor) -> Tensor:
        """The upload as it is: the lie is in the labels."""
        return own


@ATTACKS.register
class SignFlip(Attack):
    """x becomes -x."""

    name: Literal["sign-flip"] = "sign-flip"

    def lie(self, own: Tensor, others: Tensor) -> Tensor:
        """-x."""
        return -own


@ATTACKS.register
class Scaling(Attack):
    """x becomes factor x.

    Attributes:
        factor: by which uploads are multiplied; below 0 they are turned, too.
    """

    name: Literal["scaling"] = "scaling"
    factor: Number = 10.0

    def lie(self, own: Tensor, others: Tensor) -> Tensor:
        """factor x."""
        return own * self.factor


@ATTACKS.register
class Alie(Attack):
    """The mean of the honest uploads less z of their standard deviations in each coordinate: a little is enough (Baruch
    et al. 2019).

    Of n uploads, m of them lies, s = floor(n / 2 + 1) - m honest ones have to be farther away than the lie, so that it
    has a majority: z = Phi^-1((n - m - s) / (n - m)), and 0 where that is below 0.

    >>> round(Alie.largest(50, 24), 4)  # the paper's setting
    1.4261
    """

    name: Literal["alie"] = "alie"
    omniscient: ClassVar[bool] = True

    @staticmethod
    def largest(count: int, lying: int) -> float:
        """z, of so many uploads."""
        honest, supporters = count - lying, count // 2 + 1 - lying
        # A majority of liars needs no supporter: it may go as far as it likes, and goes as far as one upload in 2h.
        below = min((honest - supporters) / honest, 1 - 0.5 / honest)
        return max(0.0, NormalDist().inv_cdf(below)) if below > 0 else 0.0

    def lie(self, own: Tensor, others: Tensor) -> Tensor:
        """mean - z deviation."""
        values = others.double()
        deviation = values.var(dim=0, correction=0).sqrt()
        return values.mean(dim=0) - self.largest(len(own) + len(others), len(own)) * deviation


@ATTACKS.register
class Ipm(Attack):
    """The mean of the honest uploads, turned and scaled: its product with the truth is negative (Xie et al. 2020).

    Attributes:
        factor: epsilon of the paper, by which the mean is multiplied before it is turned.
    """

    name: Literal["ipm"] = "ipm"
    factor: Magnitude = 0.5
    omniscient: ClassVar[bool] = True

    def lie(self, own: Tensor, others: Tensor) -> Tensor:
        """-factor mean."""
        return others.double().mean(dim=0) * -self.factor


@ATTACKS.register
class Backdoor(Attack):
    """Images with a white square of 3 x 3 pixels in the lower right corner are to be called `target` (Gu et al. 2017).

    The metrics have `backdoor_accuracy`: the share of the test images of other labels that are, with the square.

    Attributes:
        target: label of the marked images.
        records: the share of a liar's records that get the square and the label.
        factor: by which uploads are multiplied, so that the backdoor survives the average (Bagdasaryan et al. 2020).
    """

    name: Literal["backdoor"] = "backdoor"
    target: Whole = 0
    records: Share = 0.5
    factor: Magnitude = 1.0
    poisons: ClassVar[bool] = True

    def lie(self, own: Tensor, others: Tensor) -> Tensor:
        """factor x."""
        return own * self.factor


Liars = Annotated[
    Annotated[float, Field(ge=0, lt=1)] | list[str],
    BY_SHAPE,
    Expect("a share of at least 0 and below 1, or a list of names"),
]


@dataclass(frozen=True)
class Adversaries(Replacing):
    """The liars of a network.

    Attributes:
        devices, edges: their names.

    >>> Adversaries(SignFlip(), edges=("library",)).values()
    {'edges': ['library'], 'attack': 'sign-flip'}
    """

    key: ClassVar[str] = "adversaries"
    note: ClassVar[str] = (
        "adversaries: these epsilons are of honest devices, which have no credit for the noise of liars; liars have "
        "none. A trusted edge server that lies does so about values, and still adds its noise"
    )

    attack: Attack
    devices: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()

    @property
    def informed(self) -> bool:
        """Whether the attack is omniscient."""
        return self.attack.omniscient

    @property
    def scored(self) -> str:
        """The prefix of scores on images with a backdoor's square."""
        return "backdoor_" if isinstance(self.attack, Backdoor) else ""

    def in_star(self) -> Adversaries:
        """The devices among them: edge servers pass messages on there."""
        return replace(self, edges=())

    def values(self) -> dict[str, Any]:
        """The section of a topology file that says the same."""
        names = {key: list(getattr(self, key)) for key in ("devices", "edges") if getattr(self, key)}
        return {**names, "attack": ATTACKS.stated(self.attack)}

    def check(self, topology: Any, key: str) -> None:
        """Refuse names that no node has, and a network in which all devices lie."""
        names = topology.names
        wrong = [
            Problem(f'expected names of {words} of this network, found "{name}"', topology.name, f"{key}.{nodes}")
            for nodes, words in (("devices", "devices"), ("edges", "edge servers"))
            for name in getattr(self, nodes)
            if name not in names[nodes]
        ]
        if not wrong and len(set(self.devices)) == len(names["devices"]):
            text = "expected at least one honest device, found none"
            wrong.append(Problem(text, topology.name, f"{key}.devices"))
        if wrong:
            raise UserError(wrong)

    def sent(self, own: Tensor, others: Tensor) -> Tensor:
        """The lies."""
        return self.attack.lie(own, others)


def drawn(stated: float | Sequence[str], names: Sequence[str], what: str, streams: Streams) -> tuple[str, ...]:
    """The names of liars: those that are stated, or just so large a share, rounded, halves up, in the order of names.

    >>> drawn(0.5, ["a", "b", "c"], "edges", Streams(1)), drawn(["c"], ["a", "b", "c"], "edges", Streams(1))
    (('a', 'b'), ('c',))
    """
    if not isinstance(stated, float | int):
        return tuple(stated)
    order = np.argsort(streams.open("", f"adversaries-{what}").random(len(names)), kind="stable")
    return tuple(names[place] for place in sorted(order[: int(stated * len(names) + 0.5)].tolist()))


class AdversariesSection(PartSection):
    """Nodes that lie.

    Attributes:
        devices, edges: names of the liars, or their share, drawn by the seed.
        attack: the attack of all liars.
    """

    devices: Liars = 0.0
    edges: Liars = 0.0
    attack: Annotated[Attack, ATTACKS]

    def drawn(self, key: str, topology: Any, document: Document, seed: int) -> Adversaries | None:
        """The liars; None where shares leave none."""
        streams = Streams(seed)
        liars = {each: drawn(getattr(self, each), names, each, streams) for each, names in topology.names.items()}
        return Adversaries(self.attack, **liars) if any(liars.values()) else None


@adds_keys("TopologyFile")
class AdversariesKey(Section):
    """The key of a topology file.

    Attributes:
        adversaries: devices and edge servers that lie; null is none.
    """

    adversaries: AdversariesSection | None = None


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Any, network: Any) -> Iterator[tuple[str, str]]:
    """Refusals of sums that hide liars, of noise that is sized for the truth, and of secrets that they lack."""
    if (liars := topology.adversaries) is None:
        return
    method = experiment.method
    edges, attack, schedule = "topology.adversaries.edges", liars.attack, method.traits
    if liars.edges and attack.poisons:
        text = f"edge servers have no records, which {attack.name} makes false"
        yield edges, f"{text}; expected devices, or another attack"
    if liars.edges and network is not topology:
        yield (
            edges,
            "edge servers of a star, and relays, pass messages on; expected devices that lie, or another network",
        )
    if (moving := topology.moving) is not None:
        yield f"topology.{moving}", f"liars are counted where they are; expected no {moving}, or no adversaries"
    if schedule.controlled or schedule.measures is not None or schedule.buffers:
        text = f"{method.schedule.name} counts on all devices alike; expected schedule fixed, or no adversaries"
        yield "method.schedule", text
    yield from _under_noise(experiment, network, liars)


def _under_noise(experiment: Any, network: Any, liars: Adversaries) -> Iterator[tuple[str, str]]:
    placement = experiment.method.privacy
    if not placement.private:
        return
    edges, attack = "topology.adversaries.edges", "topology.adversaries.attack"
    trusts = {each.name: each.trust for each in network.servers()}
    summing = any(placement.sees(trust) == "sum" for trust in (*trusts.values(), network.cloud_trust))
    if summing and (liars.edges or liars.attack.omniscient or placement.rounding is not None):
        text = "secure sums hide single uploads from liars, too, and edge servers follow their protocol"
        yield attack, f"{text}; expected devices with another attack and rounding: null, or no secure sums"
    if liars.attack.omniscient and liars.edges and network.depth > 1:
        yield attack, f"{liars.attack.name} of edge servers knows single averages; expected one tier, or another attack"
    for number, subnet in enumerate(network.subnets):
        path = network.path(subnet.name)
        place = placement.place([trusts[name] for name in path], len(path))
        if place is None or not place.by_node:
            continue
        if lying := [name for name in path[: place.node] if name in liars.edges]:
            text = f"{lying[0]} sends up what has no noise yet, and that further up is sized for the truth"
            yield edges, f"{text}; expected edge servers that add noise, or untrusted ones"
            return
        if liars.attack.omniscient and (network.replacing_devices(number) or place.node >= len(path)):
            text = f"{liars.attack.name} needs what others upload, which has no noise below {subnet.name} and is secret"
            yield attack, f"{text}; expected untrusted edge servers, or another attack"
            return
