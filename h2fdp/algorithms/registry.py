"""The registries of methods' parts: local objectives, server updates, and named points on the axes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, cast

from torch import nn

from h2fdp.algorithms.own import OwnServer, checked
from h2fdp.algorithms.server_update import ServerUpdate
from h2fdp.config.fields import Magnitude, Options
from h2fdp.config.named_options import Choices
from h2fdp.config.named_options import name_method as name_method
from h2fdp.config.own_parts import OwnKind, OwnPart
from h2fdp.network import Topology
from h2fdp.training.clipping import Clipping
from h2fdp.training.local_steps import LocalObjective

# One step of length 1 on all records of each device, once: keys of `training`.
ONE_STEP: Mapping[str, Any] = MappingProxyType(
    {
        "intervals": 1,
        "local_steps": 1,
        "local_epochs": None,
        "sampling_rate": 1.0,
        "batch_size": None,
        "step_size": 1.0,
        "momentum": 0.0,
        "optimizer": None,
        "device_turns": 1,
    }
)


class ObjectiveOptions(LocalObjective, Options):
    """A local objective with its options.

    Attributes:
        server: name of the server update that keeps state together with the devices; None for any.
        settles: keys of `training` in which the objective leaves no choice, and their values.
        trains: the head of `model: public-features` that it is made for; None for any model.
        features: of that model, where a file leaves their number open.
    """

    server: ClassVar[str | None] = None
    settles: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    trains: ClassVar[str | None] = None
    features: ClassVar[int] = 0

    @property
    def once(self) -> bool:
        """Whether a device sends one message in the whole run, which no model enters."""
        return self.settles.items() >= ONE_STEP.items()


@dataclass(frozen=True)
class ServerContext:
    """The facts that a server update may be built from: M, the number of the model's parameters, the devices'
    objective, what builds the model, and how gradients are clipped; None where they are not."""

    parameters: int
    objective: LocalObjective
    module: Callable[[], nn.Module]
    clipping: Clipping | None


class ServerOptions(Options):
    """The options of a server update.

    Attributes:
        objective: name of the local objective that keeps state together with it; None for any.
        personal: whether the cloud keeps a model for each child, so that devices have others than the global one.
    """

    objective: ClassVar[str | None] = None
    personal: ClassVar[bool] = False

    @property
    def audited(self) -> ServerOptions:
        """The stand-in for it in an audit, whose models have a coordinate more for each canary: the update itself,
        where each coordinate of the next model follows from the same one of averages."""
        return self

    def refusals(self, experiment: Any, topology: Topology, network: Topology) -> Iterable[tuple[str, str]]:
        """Key and text of what it does not go with.

        Args:
            experiment: an `ExperimentFile`.
            topology: as it was drawn; `network`: that is simulated.
        """
        return ()

    @abstractmethod
    def build(self, context: ServerContext) -> ServerUpdate:
        """The update with these options, at its start."""


class SteppingOptions(ServerOptions):
    """The options of servers that step along an average.

    Attributes:
        server_step: the length of the cloud's step.
    """

    server_step: Magnitude = 1.0


OBJECTIVES: Choices[ObjectiveOptions] = Choices(
    OwnKind(
        "a local objective, derived from `h2fdp.algorithms.LocalObjective`",
        ("direction", "keeps_sensitivity", "correction", "remembered"),
    )
)
SERVERS: Choices[ServerOptions] = Choices(
    OwnKind("a server update, derived from `h2fdp.algorithms.ServerUpdate`", ("apply", "variate", "state", "load"))
)


def own_objective(part: OwnPart) -> LocalObjective:
    """A user's own, whose answers are checked."""
    return checked(part.make(), part.origin)


def server_of(section: ServerOptions | OwnPart, context: ServerContext) -> ServerUpdate:
    """The server update that a section describes, at its start."""
    if isinstance(section, OwnPart):
        return cast(ServerUpdate, OwnServer(section.make(), section.origin))
    return section.build(context)


def audited(section: ServerOptions | OwnPart) -> ServerOptions | OwnPart:
    """The stand-in for a server update in an audit, see `ServerOptions`; one of the user's own stays."""
    return section if isinstance(section, OwnPart) else section.audited
