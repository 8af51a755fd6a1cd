"""Learning methods, each in one file: its devices' part, its cloud's part, its options, its source and its name."""

from typing import TYPE_CHECKING

from h2fdp.algorithms import (  # noqa: F401  # each registers its choices and names, in this order
    aggregation,
    fedavg,
    feddyn,
    fednova,
    fedopt,
    fedprox,
    moon,
    pfedme,
    robust,
    scaffold,
)
from h2fdp.algorithms.aggregation import (
    AGGREGATIONS,
    Aggregation,
    AggregationOptions,
    Contributions,
    Visible,
    WeightedAverage,
    aggregation_of,
)
from h2fdp.algorithms.registry import (
    NAMED_METHODS,
    OBJECTIVES,
    SERVERS,
    ObjectiveOptions,
    ServerContext,
    ServerOptions,
    objective_of,
    server_of,
)
from h2fdp.algorithms.server_update import ServerUpdate, StatefulUpdate, Uploaded
from h2fdp.algorithms.upcycled import Factor
from h2fdp.config.own_parts import OwnPart
from h2fdp.training.local_steps import LocalObjective, LocalWork, StatelessObjective

if TYPE_CHECKING:
    AggregationSection = AggregationOptions | OwnPart
    ObjectiveSection = ObjectiveOptions | OwnPart
    ServerSection = ServerOptions | OwnPart
else:
    AggregationSection = AGGREGATIONS.section()
    ObjectiveSection = OBJECTIVES.section()
    ServerSection = SERVERS.section()

__all__ = [
    "NAMED_METHODS",
    "Aggregation",
    "AggregationOptions",
    "AggregationSection",
    "Contributions",
    "Factor",
    "LocalObjective",
    "LocalWork",
    "ObjectiveOptions",
    "ObjectiveSection",
    "ServerContext",
    "ServerOptions",
    "ServerSection",
    "ServerUpdate",
    "StatefulUpdate",
    "StatelessObjective",
    "Uploaded",
    "Visible",
    "WeightedAverage",
    "aggregation_of",
    "objective_of",
    "server_of",
]
