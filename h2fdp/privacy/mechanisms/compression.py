"""Compression of what a link carries: stochastic quantisation, the largest coordinates, random ones, error feedback.

It comes after the noise, so it costs the account of the sender's own noise nothing; where a compressor does not keep
sums, no sender is credited with the noise of the others any more (docs/privacy.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import numpy as np
from pydantic import AfterValidator

from h2fdp.config.fields import Expect, Section, adds_keys
from h2fdp.errors import EXPERIMENT_REFUSALS, NETWORK_REFUSALS, hint, refused
from h2fdp.network import CLOUD, Topology
from h2fdp.privacy.mechanisms.pipeline import MESSAGES, MessageStages, Moment, Pipeline, Stage
from h2fdp.streams import generator_of

if TYPE_CHECKING:
    from torch import Tensor

SCALE_BITS = 32  # of the largest coordinate, which goes along
WHOLE = 32  # bits of a coordinate as it is
FEEDBACK = "error_feedback"


class Compressor(Stage, Protocol):
    """A stage after the noise, made of one value of the file. `compressor` registers it; a file cannot name a module.

    Attributes:
        key: of the file; `expected`: its values there, in words.
    """

    key: ClassVar[str]
    expected: ClassVar[str]
    hides: ClassVar[bool] = False

    @classmethod
    def of(cls, value: float, uplink: bool, feedback: bool) -> Stage | None:
        """The stage; None where the value asks for nothing.

        Args:
            uplink: for what edge servers send up, one sender at a time; else for uploads of devices.
            feedback: what it leaves out comes back.

        Raises:
            ValueError: no such stage, in the words of `expected`.
        """
        ...


COMPRESSORS: dict[str, type[Compressor]] = {}


def compressor(stage: type[Compressor]) -> type[Compressor]:
    """Register a stage; a decorator."""
    COMPRESSORS[stage.key] = stage
    return stage


@compressor
@dataclass(frozen=True)
class Quantise(Compressor):
    """QSGD (Alistarh et al. 2017) by the largest coordinate: x becomes A floor(L x / A + u) / L.

    A = max |x| of its vector, L = 2^(b-1) - 1, u in [0, 1). The mean over u is x, whatever the vector; the variance of
    a coordinate is (A / L)^2 p (1 - p), p the fractional part of L x / A, and at most (A / L)^2 / 4. u is private: a
    stream of its own for each sender and upload.

    Attributes:
        width: b.

    >>> Quantise(8).message_bits(32 * 1000, 1000)
    8032.0
    """

    width: int
    key: ClassVar[str] = "quantise"
    expected: ClassVar[str] = "a whole number of bits from 2 to 16, or 32 for coordinates as they are"
    draws: ClassVar[bool] = True

    @classmethod
    def of(cls, value: float, uplink: bool, feedback: bool) -> Stage | None:
        if type(value) is not int or not (2 <= value <= 16 or value == WHOLE):
            raise ValueError
        if feedback:
            raise ValueError(f"{FEEDBACK} goes with what top_k and rand_k leave out; quantise is right in the mean")
        return None if value == WHOLE else cls(value)

    def message_bits(self, bits: float, size: int) -> float:
        return float(size * self.width + SCALE_BITS)

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        levels = 2 ** (self.width - 1) - 1
        purpose = f"quantise-{'down' if at.down else at.segment.kind}"
        for node, vector in zip(at.nodes, updates, strict=True):
            stream = generator_of(at.streams.key(node, purpose, at.segment.interval, at.segment.last_slot))
            uniform = torch.from_numpy(stream.random(vector.numel(), dtype=np.float32)).to(vector)
            scale = vector.abs().max()
            if scale > 0:
                # The largest coordinate and u near 1 may round up to the next level, which no code word has.
                vector.mul_(levels / scale).add_(uniform).floor_().clamp_(max=levels).mul_(scale / levels)
        return updates


@dataclass(frozen=True)
class _Sparse(Compressor):
    """All but k = ceil(share M) coordinates become 0."""

    share: float
    expected: ClassVar[str] = "a number above 0 and below 1"
    omits: ClassVar[bool] = True

    @classmethod
    def of(cls, value: float, uplink: bool, feedback: bool) -> Stage | None:
        if type(value) is not float or not 0 < value < 1:
            raise ValueError
        return ErrorFeedback(cls(value)) if feedback else cls(value)

    def kept(self, size: int) -> int:
        """k of so many coordinates."""
        return math.ceil(self.share * size)


@compressor
@dataclass(frozen=True)
class TopK(_Sparse):
    """The coordinates that are farthest from 0 stay (Stich, Cordonnier and Jaggi 2018); of equal ones the first.

    Attributes:
        share: of the coordinates.

    >>> TopK(0.01).message_bits(32 * 1000, 1000)  # ten numbers, and ten bits to say which each is
    420.0
    """

    key: ClassVar[str] = "top_k"

    def message_bits(self, bits: float, size: int) -> float:
        """A number and its place for each; whole vectors where these are shorter."""
        return min(bits, self.kept(size) * (bits / size + math.ceil(math.log2(max(size, 2)))))

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        smaller = updates.abs().argsort(dim=1, descending=True, stable=True)[:, self.kept(updates.shape[1]) :]
        return updates.scatter_(1, smaller, 0.0)


@compressor
@dataclass(frozen=True)
class RandK(_Sparse):
    """Random coordinates stay, times M / k, so that the mean is the vector; which, everybody knows from the seed.

    All devices of the network keep the same ones at a slot: a sum of what they send is then a function of the sum of
    their vectors, and hides what that hides.

    Attributes:
        share: of the coordinates.
        own: each sender keeps others than the next, so that sums are not kept; it is given alone.
        scaled: False where what is left out comes back.

    >>> RandK(0.01).message_bits(32 * 1000, 1000)
    320.0
    """

    own: bool = False
    scaled: bool = True
    key: ClassVar[str] = "rand_k"
    draws: ClassVar[bool] = True
    keeps_sums: ClassVar[bool] = True

    @classmethod
    def of(cls, value: float, uplink: bool, feedback: bool) -> Stage | None:
        super().of(value, uplink, feedback)
        stage = cls(value, own=uplink, scaled=not feedback)
        return ErrorFeedback(stage) if feedback else stage

    def message_bits(self, bits: float, size: int) -> float:
        return self.kept(size) * bits / size

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        size, sender = updates.shape[1], "devices"
        if self.own:
            (sender,) = at.nodes
        stream = at.streams.public.open(sender, "rand-k", at.segment.interval, at.segment.last_slot)
        dropped = torch.from_numpy(stream.permutation(size)[self.kept(size) :]).to(updates.device)
        updates[:, dropped] = 0.0
        return updates.mul_(size / self.kept(size)) if self.scaled else updates


@dataclass(frozen=True)
class ErrorFeedback(Stage):
    """Q(x + e) is sent, and e becomes x + e - Q(x + e) (Seide et al. 2014; Karimireddy et al. 2019).

    x has its noise, so what is remembered follows from what the account of the sender covers already. Uploads then hang
    on earlier ones, with weights that a sum does not know: none is credited with the noise of others.
    """

    inner: Stage
    hides: ClassVar[bool] = False
    draws: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    omits: ClassVar[bool] = True

    def message_bits(self, bits: float, size: int) -> float:
        return self.inner.message_bits(bits, size)

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        assert at.memory is not None, "orders have what their devices remember"
        whole = updates + at.memory.to(updates.device)
        sent = self.inner.encode(whole.clone(), received, at)
        at.memory.copy_(whole.sub_(sent))
        return sent


def stages_of(link: Mapping[str, float] | None, uplink: bool = False) -> tuple[Stage, ...]:
    """The stages that a file asks for on a link.

    Raises:
        ValueError: it asks for none or several, or for a value that a stage does not take.

    >>> stages_of({"top_k": 0.01, "error_feedback": True}), stages_of({"quantise": 32})
    ((ErrorFeedback(inner=TopK(share=0.01)),), ())
    """
    if link is None:
        return ()
    names = [name for name in link if name != FEEDBACK]
    if len(names) != 1 or names[0] not in COMPRESSORS:
        named = ", ".join(link) or "nothing"
        near = hint(named, COMPRESSORS)
        raise ValueError(f"expected one of {', '.join(COMPRESSORS)}, as {{quantise: 8}}; found {named}{near}")
    stage, value, feedback = COMPRESSORS[names[0]], link[names[0]], link.get(FEEDBACK, False)
    if not isinstance(feedback, bool):
        raise ValueError(f"expected true or false as {FEEDBACK}, found {feedback}")
    try:
        made = stage.of(value, uplink, feedback)
    except ValueError as error:
        raise ValueError(str(error) or f"expected {stage.expected} as {stage.key}, found {value!r}") from None
    return () if made is None else (made,)


def link_in_words(link: Mapping[str, Any] | None) -> str:
    """The compression that a file asks for on a link; empty where vectors travel as they are.

    >>> link_in_words({"top_k": 0.01, "error_feedback": True}), link_in_words({"quantise": 32})
    ('top_k 0.01 with error feedback', '')
    """
    if not stages_of(link):
        return ""
    stated = [f"{name} {value:g}" for name, value in (link or {}).items() if name != FEEDBACK]
    return stated[0] + (" with error feedback" if (link or {}).get(FEEDBACK) else "")


def _checked(link: dict[str, Any]) -> dict[str, Any]:
    stages_of(link)
    return link


def _of_a_model(link: dict[str, Any]) -> dict[str, Any]:
    if any(stage.omits for stage in stages_of(link)):
        raise ValueError("what comes down is a model, of which no part may be left out; expected {quantise: 8}")
    return link


CompressedLink = Annotated[dict[str, Any], AfterValidator(_checked), Expect("a stage with its value, as {quantise: 8}")]
CompressedModel = Annotated[dict[str, Any], AfterValidator(_of_a_model), Expect("{quantise: 8}")]


class CompressionSection(Section):
    """Compression of messages, each after its noise: `{quantise: 8}`, bits of a coordinate, rounded at random;
    `{top_k: 0.01}`, the share of the coordinates that is sent, those farthest from 0; `{rand_k: 0.01}`, random ones.

    Attributes:
        device: compression of devices' uploads: `{quantise: 8}`, `{top_k: 0.01}` or `{rand_k: 0.01}`; `error_feedback:
            true` adds what the latter two leave out to the next upload. Accounts give no credit for the noise of other
            devices then, except with `rand_k` without feedback.
        edge: the same for uploads of edge servers.
        down: rounding of broadcast models, `{quantise: 8}`; devices train from the rounded model.
    """

    device: CompressedLink | None = None
    edge: CompressedLink | None = None
    down: CompressedModel | None = None

    @property
    def stages(self) -> MessageStages:
        """The stages that the links ask for."""
        devices, edges, models = stages_of(self.device), stages_of(self.edge, uplink=True), stages_of(self.down)
        words = tuple(map(link_in_words, (self.device, self.edge, self.down)))
        key = "compression" if any(words) else ""
        return MessageStages(Pipeline(devices), Pipeline(edges), Pipeline(models), key, words)


@adds_keys("ExperimentFile")
class CompressionKeys(Section):
    """The key of an experiment file.

    Attributes:
        compression: compression of messages.
    """

    compression: CompressionSection = CompressionSection()


MESSAGES["compression"] = lambda value: CompressionSection.model_validate(value or {}).stages


_DEVICE, _EDGE, _DOWN = "compression.device", "compression.edge", "compression.down"


@EXPERIMENT_REFUSALS.register
def refusals(experiment: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that need uncompressed uploads of devices, or the noise of their average."""
    links, stages, method = experiment.compression, experiment.messages, experiment.method
    if not stages.key:
        return
    asked = {f"compression.{key}": link for key, link in vars(links).items() if stages_of(link)}
    devices, models, schedule, name = stages.devices.stages, stages.models.stages, method.traits, method.objective.name
    central, star, memory = "cloud" in method.privacy.trusted, method.topology == "star", method.local_objective.memory
    reckons, right = schedule.controlled or schedule.measures is not None, "null, or another objective"
    # The largest coordinates of an update are no longer than it, and those of 0 are 0: its reach stays C.
    longer = central and not all(isinstance(stage, TopK) for stage in devices)
    raw = f"null: {'edge servers send raw averages up' if central else 'a star has no edge servers'}"
    yield from refused(
        f"{method.schedule.name} reckons with uploads as devices made them",
        *((key, reckons, "null, or schedule fixed", link) for key, link in asked.items()),
    )
    yield from refused(
        "vectors are compressed on their way",
        (_EDGE, stages.edges.stages and (central or star), raw, links.edge),
        (_DOWN, models and memory, right, f"{name}, whose devices compare models"),
        (_DEVICE, longer, "null, or top_k alone: others make updates longer, or remember", links.device),
        (_DEVICE, devices and memory, right, f"{name}, whose devices remember updates"),
    )
    once, rest = getattr(method.objective, "once", False), "{quantise: 8}, or null: the rest never comes"
    omitting = [key for key, link in asked.items() if any(stage.omits for stage in stages_of(link))]
    yield from refused(
        f"{name} is one message of each device, which no model enters and no other follows",
        *((key, once, rest, asked[key]) for key in omitting),
    )
    unlike = schedule.buffers and method.privacy.private and any(stage.keeps_sums for stage in devices)
    yield from refused(
        f"under {method.schedule.name} aggregators average what has arrived, and devices have clocks of their own",
        (_DEVICE, unlike, "top_k or quantise, error_feedback: true, or schedule fixed", "rand_k"),
    )
    kept = getattr(experiment.training.optimizer, "keeps", False) and stages.devices.remembers
    yield from refused(
        "devices keep moments of their own, from one interval of all to the next, and nothing else",
        (f"{_DEVICE}.{FEEDBACK}", kept, "false, or state: fresh", "true"),
    )


@NETWORK_REFUSALS.register
def refusals_of_network(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of links that compress vectors before their noise, or vectors that must travel as they are."""
    placement, links, stages = experiment.method.privacy, experiment.compression, experiment.messages
    if not stages.key:
        return
    devices, edges, models = stages.devices.stages, stages.edges.stages, stages.models.stages
    star, subnets = experiment.method.topology == "star", network.subnets
    trusts = {each.name: each.trust for each in subnets} | {each.name: each.trust for each in topology.aggregators}
    known = [*trusts.items(), (CLOUD, topology.cloud_trust)]
    summing = [name for name, trust in known if placement.sees(trust) == "sum"]
    upper = [name for name in summing if name == CLOUD or topology.height(name) > 1]
    unknown = "and nothing says how far a record moves"
    for subnet in subnets if placement.private and devices and not summing else ():
        place = placement.place((subnet.trust,), 1)
        if place is not None and place.by_node and "cloud" not in placement.trusted:
            text = f"{subnet.name} adds the noise, {unknown} a compressed update"
            yield _DEVICE, f"{text}; expected null, untrusted edge servers or method.privacy local"
            break
    for subnet in subnets if placement.private and edges and not upper and not star else ():
        path = topology.path(subnet.name)
        place = placement.place([trusts[name] for name in path], len(path))
        if place is not None and 1 < place.trusted <= len(path):
            text = f"{path[place.node]} adds the noise to what {subnet.name} sends up, {unknown} a compressed average"
            yield _EDGE, f"{text}; expected null"
            break
    noisy, whole = placement.private, "which are of whole vectors and hide no compressed ones"
    yield from refused(
        f"{''.join(summing[:1])} holds secure sums, {whole}",
        (_DOWN, summing and models, "null", links.down),
        (_DEVICE, summing and noisy and devices, "null", links.device),
        (_EDGE, upper and noisy and edges, "null", links.edge),
    )
    moves, found = topology.moving, "a compressor"
    yield from refused(
        f"devices change their edge server ({moves} in the topology)",
        (_DEVICE, moves and devices, "null", found),
        (_EDGE, moves and edges, "null", found),
    )
    draw, server, in_air = experiment.training.draw, experiment.method.server, topology.radio.truncation is not None
    shows = draw is not None and not draw.cover and noisy and placement.protects == "device" and devices
    secret, right = "devices draw in secret whether they take part (training.participation)", "null, or cover: true"
    own = getattr(server, "personal", False) and models
    yield from refused(secret, (_DEVICE, shows, right, found))
    yield from refused("signals add up in the air as they are", (_DEVICE, in_air and devices, "null", links.device))
    yield from refused(f"{server.name} keeps a model for each edge server", (_DOWN, own, "null", links.down))
