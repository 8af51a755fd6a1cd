"""Aggregation rules by link, one for devices' uploads, one for edge servers': `{device: average, edge: median}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from h2fdp.algorithms import fedavg, robust  # noqa: F401  # each registers what may stand for a link
from h2fdp.algorithms.aggregation import (
    AGGREGATIONS,
    Aggregation,
    AggregationOptions,
    Contributions,
    Link,
    Visible,
    WeightedAverage,
    aggregation_of,
)
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnPart

_CHOICES: Choices[AggregationOptions] = Choices(AGGREGATIONS.own)
_CHOICES.models = dict(AGGREGATIONS.models)  # but the one below
OfLink = Annotated[AggregationOptions | OwnPart, _CHOICES]


@dataclass(frozen=True)
class ByLink(Aggregation):
    """Two aggregations; each aggregator asks for the one of its link.

    Attributes:
        device: at the lowest edge servers.
        edge: above them, the cloud included.
    """

    device: Aggregation
    edge: Aggregation

    def at(self, link: Link) -> Aggregation:
        """The rule of the link; see `Aggregation.at`."""
        return self.device if link == "device" else self.edge

    @property
    def visible(self) -> Visible:
        """`each` where one of them is no sum."""
        return "each" if "each" in (self.device.visible, self.edge.visible) else "sum"

    def weights(self, uploads: Contributions) -> np.ndarray:
        """None that both have."""
        raise AssertionError("an aggregator has the rule of its link")


@AGGREGATIONS.register
class ByLinkOptions(AggregationOptions):
    """An aggregation for each link.

    Attributes:
        device: rule for the uploads of devices.
        edge: rule for the uploads of edge servers.

    >>> AGGREGATIONS.read({"edge": "median"}).made().at("edge").name
    'median'
    """

    name: Literal["by-link"] = "by-link"
    device: OfLink = WeightedAverage()
    edge: OfLink = WeightedAverage()

    @property
    def by_link(self) -> dict[Link, AggregationOptions | OwnPart]:
        """The section of each link; see `AggregationOptions.by_link`."""
        return {"device": self.device, "edge": self.edge}

    def made(self) -> Aggregation:
        """Both aggregations."""
        return ByLink(aggregation_of(self.device), aggregation_of(self.edge))

    def weights(self, uploads: Contributions) -> np.ndarray:
        """None that both have."""
        raise AssertionError("an aggregator has the rule of its link")


AGGREGATIONS.unnamed = "by-link"  # a mapping of links needs no name
