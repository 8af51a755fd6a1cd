"""Devices that draw in secret whether they take part, and what an observer who does not learn the draw holds of it.

Neighbours: all uploads of one device become zero, whether it takes part or not; that it is there, and its weight, stay.

Draw: in each interval each device takes part with probability q, independently of all else, by the noise key. Its
clipped update is multiplied by 1/q where it does, else by 0. So an absent device does what its null neighbour does, and
the plan of an interval is that of all devices: weights, divisors, noise and ledger are the same for all draws, and no
code that makes them can know. An edge server of which none came sends its noise.

Account: of m releases of an interval that move by s_i under noise of sigma_i, a device is in all or in none. Without it
they are N(0, I) in units of the noise; with it (1-q) N(0, I) + q N(u, I), |u|^2 at most sum (s_i / sigma_i)^2, as later
moves may follow from earlier outcomes (composition to one Gaussian: Dong et al. 2022) and from what the device
remembers (a mixture of directions is dominated by that of the norms: Choquette-Choo et al. 2023, Cor. 4.7). So an
interval is one Poisson-subsampled Gaussian. Draws of intervals are independent, so that intervals compose.

Observers: a trusted node sees who comes, and has no account; all who see its noisy sums have the credit. A device
that adds noise of its own would show by its absence, to its edge server and by a sum with less noise to all above: so
it sends its noise always (`cover`), and its edge server, too, sees a noisy vector and no more. Records get no credit:
the other records of their device show that it takes part, beyond the noise that hides one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from h2fdp.errors import NETWORK_REFUSALS, refused
from h2fdp.network import Topology
from h2fdp.privacy.mechanisms.pipeline import Moment, Pipeline, Stage
from h2fdp.privacy.places import Observer
from h2fdp.privacy.releases import Release, device_ranges, rows_in
from h2fdp.streams import PER_STEP, Streams, generator_of
from h2fdp.wording import SCORES

if TYPE_CHECKING:
    from torch import Tensor

SECRET = (
    "training.participation: epsilon holds for observers that do not learn who takes part; hide from them the messages "
    "of single devices, and joules, seconds, bytes and participants of devices, of intervals and of the run"
)
PASSING = ", also from edge servers, which pass messages on in a star"
COVERED = (
    "training.participation: epsilon holds for observers that do not learn who takes part; hide from them "
    "participants, joules and seconds, which computing changes, also of each device; absent devices send messages too, "
    "as late as if they had computed"
)


@dataclass(frozen=True)
class SecretDraw(Stage):
    """The draw of each device, on its clipped update, before any noise.

    Attributes:
        rate: q.
        cover: absent devices send messages, too.
    """

    rate: float
    cover: bool = False

    def came(self, streams: Streams, edge: str, interval: int, rows: np.ndarray) -> np.ndarray:
        """(s,) whether each of these devices (ascending rows of an edge server) takes part.

        Each draws for itself: its number of the edge server's stream, at which any host can begin to read.

        >>> draw, rows = SecretDraw(0.5), np.arange(40)
        >>> alone = draw.came(Streams(1, secret=b"key"), "ward", 3, rows[37:38])
        >>> bool(alone[0] == draw.came(Streams(1, secret=b"key"), "ward", 3, rows)[37])
        True
        """
        if not rows.size:
            return np.zeros(0, dtype=bool)
        skipped = int(rows[0]) // PER_STEP
        first = skipped * PER_STEP
        stream = generator_of(streams.key(edge, "secret participation", interval), skipped)
        return np.asarray(stream.random(int(rows[-1]) + 1 - first)[rows - first] < self.rate)

    def encode(self, updates: Tensor, received: Tensor, at: Moment) -> Tensor:
        import torch

        assert at.steps is not None, "who did not come does no step"
        scale = torch.from_numpy((at.steps > 0) / self.rate).to(updates)
        return updates.mul_(scale[:, None])


def draw_of(pipeline: Pipeline) -> SecretDraw | None:
    """The secret draw among the stages of an upload."""
    return next((stage for stage in pipeline.stages if isinstance(stage, SecretDraw)), None)


def as_one(rows: Iterable[Release]) -> Iterator[Release]:
    """One row for all that an observer receives in an interval of a device that is in all of it or in none: that of the
    last release, moved by as much in units of its noise as all of them together."""
    received: dict[Observer, list[Release]] = {}
    for row in rows:
        received.setdefault(row.observer, []).append(row)
    for several in received.values():
        size = max(part.stop for row in several for part in rows_in(row.devices))
        squares, last = np.zeros(size), np.full(size, -1)
        for number, row in enumerate(several):
            for part in rows_in(row.devices):
                squares[part] += (row.sensitivity / row.noise_std) ** 2
                last[part] = number
        groups = np.unique(np.stack([last, squares])[:, last >= 0], axis=1)
        for number, square in groups.T.tolist():
            row, alike = several[int(number)], np.flatnonzero((last == number) & (squares == square))
            moved = row.noise_std * float(np.sqrt(square))
            yield replace(row, sensitivity=moved, devices=device_ranges(alike.tolist()))


@NETWORK_REFUSALS.register
def refusals(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of settings that would reveal the draw, or that decide themselves who takes part.

    Args:
        experiment: an `ExperimentFile`.
        network: that is simulated.
    """
    training, method, privacy = experiment.training, experiment.method, experiment.privacy
    placement, until = method.privacy, (training.until or {}).keys() - SCORES
    draw = training.draw
    if draw is None:
        return
    text = "noise that protects records does not hide whether a device takes part, as its other records show it"
    yield from refused(
        text if placement.private else "without noise nothing hides who takes part",
        ("training.participation", placement.protects != "device" or not placement.private, "a number", f"{draw}"),
    )
    if not (placement.private and placement.protects == "device"):
        return
    objective = method.objective
    kept = getattr(objective, "memory", None) is not None and not getattr(objective, "personal", False)
    rule = getattr(method.combination.at("device"), "name", "a rule of your own")
    yield from refused(
        "devices draw in secret whether they take part (training.participation)",
        ("method.schedule", method.schedule.name != "fixed", "fixed", method.schedule.name),
        ("method.objective", kept, "none that remembers uploads, which are divided by q", objective.name),
        ("training.until", bool(until), "no cost, by which draws would end the run", ", ".join(sorted(until))),
        ("method.aggregation", rule != "average", "average, which all are in, as zeros if absent", rule),
        ("privacy.adjacency", privacy.adjacency != "null-record", "null-record", privacy.adjacency),
    )
    trusts = {each.name: each.trust for each in network.servers()}
    paths = {each.name: [trusts[name] for name in network.path(each.name)] for each in network.subnets}
    places = {name: placement.place(chain, len(chain)) for name, chain in paths.items()}
    own = next((name for name, place in places.items() if place is not None and not place.by_node), None)
    if own is not None and not draw.cover:
        text = f"devices of {own} add noise themselves, and would show by its absence; expected true"
        yield "training.participation.cover", f"{text}, or trusted edge servers; found false"
