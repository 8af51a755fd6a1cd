"""FedAT (Chai et al. 2021): subnets are tiers of one speed, synchronous inside, asynchronous between; seldom ones weigh
as much as frequent ones do elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from torch import Tensor

from h2fdp.algorithms.aggregation import weighted_sum
from h2fdp.algorithms.registry import SERVERS, ServerContext, ServerOptions, name_method
from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.errors import EXPERIMENT_REFUSALS, refused


class ReverseCounts(ServerUpdate):
    """w = sum_m T_(M+1-m) / T w_m over the last models of all M subnets, m = 1 the one with most updates.

    T_m counts the updates of subnet m, T = sum_m T_m; of equal counts the one that had them first comes first. The
    model of a subnet that sent none yet is w(0). All of it is computed from what the cloud has received, so it costs no
    privacy that the uploads have not cost. (Sec. 4.2, Eq. 5.)
    """

    kept = ("first", "models", "counts")

    def __init__(self) -> None:
        self.first: Tensor | None = None
        self.models: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}  # most first

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the weighted sum."""
        self.first = model if self.first is None else self.first
        for name, update in uploaded.updates.items():
            self.models[name] = uploaded.began[name] - update
            self.counts[name] = self.counts.get(name, 0) + 1
        self.counts = dict(sorted(self.counts.items(), key=lambda each: -each[1]))
        counts = np.zeros(len(uploaded.children))
        counts[: len(self.counts)] = list(self.counts.values())
        weights = counts[::-1] / counts.sum()
        heard, silent = np.split(weights, [len(self.counts)])
        return weighted_sum([*(self.models[name] for name in self.counts), self.first], np.append(heard, silent.sum()))


@SERVERS.register
class ReverseCountsOptions(ServerOptions):
    """The last models of all edge servers, weighed by update counts in reverse order (FedAT)."""

    name: Literal["reverse-counts"] = "reverse-counts"

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        return ReverseCounts()


@EXPERIMENT_REFUSALS.register
def refusals(experiment: Any) -> Iterator[tuple[str, str]]:
    """Refusals of rounds that wait for all, and of one average of all uploads, of which no subnet has its own."""
    method, star = experiment.method, experiment.method.topology == "star"
    if not isinstance(method.server, ReverseCountsOptions):
        return
    central, found = "cloud" in method.privacy.trusted, "a star" if star else method.schedule.name
    yield from refused(
        f"{method.server.name} weighs edge servers by how often each uploads",
        ("method.server", star or not method.traits.buffers, "schedule buffered and a tree", found),
        ("method.server", central, "average, as central releases one average of all uploads", method.server.name),
    )


name_method(
    "fedat",
    "edge servers wait for their devices, the cloud for no edge server, and weighs seldom ones more (Chai et al. 2021)",
    objective="proximal",
    server="reverse-counts",
    schedule={"name": "buffered", "buffer": {"cloud": 1}},
)
