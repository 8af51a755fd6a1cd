"""Energy and delay of messages: wireless channels, wired links, what an interval costs and how long it takes."""

from h2fdp.costs.batteries import Batteries as Batteries
from h2fdp.costs.batteries import Charge as Charge
from h2fdp.costs.device_costs import FrequencyRule as FrequencyRule
from h2fdp.costs.device_costs import PowerRule as PowerRule
from h2fdp.costs.interval_cost import IntervalCost as IntervalCost
from h2fdp.costs.interval_cost import interval_cost as interval_cost
from h2fdp.costs.interval_cost import with_waiting as with_waiting
from h2fdp.costs.kinds import COSTS as COSTS
from h2fdp.costs.kinds import carbon_of as carbon_of
from h2fdp.costs.messages import MessageCosts as MessageCosts
from h2fdp.costs.messages import NetworkCosts as NetworkCosts
from h2fdp.costs.traffic import ExchangeSizes as ExchangeSizes
from h2fdp.costs.traffic import Tasks as Tasks
