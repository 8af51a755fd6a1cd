"""Energy and delay of messages: wireless channels, wired links, what an interval costs and how long it takes."""

from h2fdp.costs.active import Failing
from h2fdp.costs.interval_cost import IntervalCost, interval_cost
from h2fdp.costs.messages import (
    DrawnCosts,
    MessageCosts,
    NetworkCosts,
    fading_power,
    mean_snr,
    path_gain_db,
    rate_bps,
    watts,
)
from h2fdp.costs.power import PowerRule
from h2fdp.costs.secure_messages import ExchangeSizes, SumMessages

__all__ = [
    "DrawnCosts",
    "ExchangeSizes",
    "Failing",
    "IntervalCost",
    "MessageCosts",
    "NetworkCosts",
    "PowerRule",
    "SumMessages",
    "fading_power",
    "interval_cost",
    "mean_snr",
    "path_gain_db",
    "rate_bps",
    "watts",
]
