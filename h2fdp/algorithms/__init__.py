"""Learning methods, each in one file: its devices' part, its cloud's part, its options, its source and its name."""

from typing import TYPE_CHECKING

from h2fdp.algorithms.aggregation import (
    AGGREGATIONS,
    Aggregation,
    AggregationOptions,
    Contributions,
    Visible,
    WeightedAverage,
    aggregation_of,
)
from h2fdp.algorithms.fedavg import Average, Plain
from h2fdp.algorithms.feddyn import FedDyn, FedDynServer
from h2fdp.algorithms.fednova import NormalisedAverage
from h2fdp.algorithms.fedopt import Adagrad, Adam, Momentum, Yogi
from h2fdp.algorithms.fedprox import Proximal
from h2fdp.algorithms.moon import Moon
from h2fdp.algorithms.pfedme import PFedMe
from h2fdp.algorithms.registry import (
    NAMED_METHODS,
    OBJECTIVES,
    SERVERS,
    ObjectiveOptions,
    ServerContext,
    ServerOptions,
    name_method,
    objective_of,
    server_of,
)
from h2fdp.algorithms.robust import TrimmedMean
from h2fdp.algorithms.scaffold import Scaffold, ScaffoldServer
from h2fdp.algorithms.server_update import ServerUpdate, StatefulUpdate, Uploaded
from h2fdp.algorithms.upcycled import Factor, Upcycled
from h2fdp.config.own_parts import OwnPart
from h2fdp.training.local_objective import LocalObjective, LocalWork, StatelessObjective

if TYPE_CHECKING:
    AggregationSection = AggregationOptions | OwnPart
    ObjectiveSection = ObjectiveOptions | OwnPart
    ServerSection = ServerOptions | OwnPart
else:
    AggregationSection = AGGREGATIONS.section()
    ObjectiveSection = OBJECTIVES.section()
    ServerSection = SERVERS.section()

__all__ = [
    "AGGREGATIONS",
    "NAMED_METHODS",
    "OBJECTIVES",
    "SERVERS",
    "Adagrad",
    "Adam",
    "Aggregation",
    "AggregationOptions",
    "AggregationSection",
    "Average",
    "Contributions",
    "Factor",
    "FedDyn",
    "FedDynServer",
    "LocalObjective",
    "LocalWork",
    "Momentum",
    "Moon",
    "NormalisedAverage",
    "ObjectiveOptions",
    "ObjectiveSection",
    "PFedMe",
    "Plain",
    "Proximal",
    "Scaffold",
    "ScaffoldServer",
    "ServerContext",
    "ServerOptions",
    "ServerSection",
    "ServerUpdate",
    "StatefulUpdate",
    "StatelessObjective",
    "TrimmedMean",
    "Upcycled",
    "Uploaded",
    "Visible",
    "WeightedAverage",
    "Yogi",
    "aggregation_of",
    "name_method",
    "objective_of",
    "server_of",
]
