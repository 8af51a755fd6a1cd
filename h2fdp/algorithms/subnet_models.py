"""A model for each subnet, pulled to the mean of all: MR-MTL (Liu et al. 2022) of edge servers instead of devices.

The cloud has received the model of every subnet anyway, so that keeping them costs no privacy: each is made of uploads
that have their noise, and of models that were sent. What a device receives is the model of its own subnet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from h2fdp.algorithms.aggregation import rules_in, weighted_sum
from h2fdp.algorithms.registry import SERVERS, ServerContext, ServerOptions
from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.config.fields import Expect
from h2fdp.errors import refused
from h2fdp.network import Topology

_STEP_BY_STEP = ("none", "hierarchical", "local", "dp-sgd")  # what is uploaded adds up steps from what was sent


class SubnetModels(ServerUpdate):
    """Subnet c trains v_c to w_c and uploads v_c - w_c; w is the mean of the w_c; then v_c <- w_c + mix (w - w_c).

    With the steps of an interval that is MR-MTL's pull of eta lambda a step, 1 - mix = (1 - eta lambda)^steps. A subnet
    of which nothing arrived has w_c = v_c.

    Attributes:
        of_children: v_c by the names of all children of the cloud; empty before the first upload.
    """

    kept = ("of_children",)

    def __init__(self, mix: float) -> None:
        self._mix = mix
        self.of_children: dict[str, Tensor] = {}

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) w."""
        ahead = [began - model for began in uploaded.began.values()]  # 0 where all share one model
        mean = model + weighted_sum(ahead, uploaded.weights) - uploaded.average
        before = self.of_children or dict.fromkeys(uploaded.children, model)
        trained = {name: uploaded.began[name] - update for name, update in uploaded.updates.items()}
        self.of_children = {name: torch.lerp(own, mean, self._mix) for name, own in (before | trained).items()}
        return mean


@SERVERS.register
class SubnetModelsOptions(ServerOptions):
    """A model for each subnet.

    Attributes:
        mix: how far it is pulled to the mean of all after each interval. With 0 a subnet learns alone; with 1 all share
            one model, to the bit.
    """

    personal: ClassVar[bool] = True

    name: Literal["subnet-models"] = "subnet-models"
    mix: Annotated[float, Field(ge=0, le=1), Expect("a number from 0 to 1")] = 0.3

    def refusals(self, experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
        """Refusals, see `ServerOptions`: who sees a sum of several subnets does not know where each began."""
        method, rule = experiment.method, rules_in(experiment.method.aggregation)["edge"].name
        placement, replacing = method.privacy, topology.replacing
        shape = "one subnet" if network is not topology else f"{topology.depth} tiers"
        return refused(
            f"{method.server.name} keeps a model for each edge server",
            ("topology", network is not topology or topology.depth > 1, "one tier of edge servers", shape),
            ("topology.cloud.trust", placement.sees(topology.cloud_trust) == "sum", "untrusted", topology.cloud_trust),
            ("topology", topology.moving, "devices that stay", topology.moving),
            ("topology", replacing is not None and replacing.edges, "honest edge servers", "some that lie"),
            (
                "method.privacy",
                placement.name not in _STEP_BY_STEP,
                f"one of {', '.join(_STEP_BY_STEP)}",
                placement.name,
            ),
            ("method.schedule", method.schedule.name != "fixed", "fixed", method.schedule.name),
            ("method.aggregation", rule != "average", "average", rule),
            ("method.upcycle", method.upcycle is not None, "null", method.upcycle),
        )

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        return SubnetModels(self.mix)
