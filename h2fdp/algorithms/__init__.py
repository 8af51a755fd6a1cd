"""Learning methods, each in one file, some with relatives: devices' part, cloud's part, options, source and name."""

from typing import Annotated

from h2fdp.algorithms import (  # each registers parts
    by_link,  # noqa: F401
    fedat,  # noqa: F401
    fedavg,  # noqa: F401
    fedopt,  # noqa: F401
    fedprox,  # noqa: F401
    moon,  # noqa: F401
    one_shot,  # noqa: F401
    own_models,  # noqa: F401
    pfedme,  # noqa: F401
    robust,  # noqa: F401
    scaffold,  # noqa: F401
    subnet_models,  # noqa: F401
)
from h2fdp.algorithms.aggregation import AGGREGATIONS as AGGREGATIONS
from h2fdp.algorithms.aggregation import Aggregation as Aggregation
from h2fdp.algorithms.aggregation import AggregationOptions as AggregationOptions
from h2fdp.algorithms.aggregation import Contributions as Contributions
from h2fdp.algorithms.aggregation import Visible as Visible
from h2fdp.algorithms.aggregation import WeightedAverage as WeightedAverage
from h2fdp.algorithms.aggregation import aggregation_of as aggregation_of
from h2fdp.algorithms.aggregation import rules_in as rules_in
from h2fdp.algorithms.registry import OBJECTIVES as OBJECTIVES
from h2fdp.algorithms.registry import SERVERS as SERVERS
from h2fdp.algorithms.registry import ObjectiveOptions as ObjectiveOptions
from h2fdp.algorithms.registry import ServerContext as ServerContext
from h2fdp.algorithms.registry import ServerOptions as ServerOptions
from h2fdp.algorithms.registry import own_objective as own_objective
from h2fdp.algorithms.registry import server_of as server_of
from h2fdp.algorithms.server_update import Factor as Factor
from h2fdp.algorithms.server_update import ServerUpdate as ServerUpdate
from h2fdp.algorithms.server_update import ServerUpdate as StatefulUpdate  # noqa: F401 - its name in older files
from h2fdp.algorithms.server_update import Uploaded as Uploaded
from h2fdp.config.own_parts import OwnPart
from h2fdp.training.local_steps import LocalObjective as LocalObjective
from h2fdp.training.local_steps import LocalObjective as StatelessObjective  # noqa: F401 - its name in older files
from h2fdp.training.local_steps import LocalWork as LocalWork

AggregationSection = Annotated[AggregationOptions | OwnPart, AGGREGATIONS]
ObjectiveSection = Annotated[ObjectiveOptions | OwnPart, OBJECTIVES]
ServerSection = Annotated[ServerOptions | OwnPart, SERVERS]
