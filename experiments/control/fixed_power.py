"""What a finished run without control would have cost, had all its devices sent with another power, the same for all.

Training does not depend on power, and who takes part in a fixed schedule does not either: so the plans of the run are
made again, and only their messages are priced anew. What comes down to devices takes as long as before, as with
`control.least_dbm`. At the devices' own power the costs are those that the run wrote down, to the last digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from h2fdp import Experiment
from h2fdp.costs.device_costs import PowerRule
from h2fdp.costs.messages import NetworkCosts
from h2fdp.protocol import InProcessNodes

POWERS_DBM = (24.0, 20.0, 16.0, 12.0, 8.0, 4.0, 0.0)


def costs_at(
    run: Path, intervals: int, powers_dbm: Sequence[float], data_root: Path | None
) -> dict[float, dict[str, float]]:
    """Power in dBm -> joules and seconds of delay of the first intervals of a run, by columns of the metrics.

    Args:
        run: its directory.
        powers_dbm: none above that of any device.
    """
    setup = Experiment.from_file(run / "config.yaml").prepare(data_root)
    own = float(setup.topology.table.columns["power_dbm"].min())
    meters = {}
    for power in powers_dbm:
        rule = None if power == own else PowerRule(power, 1.0, 0.0)  # joules alone take the least power
        costs = NetworkCosts(setup.topology, setup.initial.numel(), setup.world, rule)
        meters[power] = replace(setup, costs=costs).bill.columns
    found = {power: {"energy_j": 0.0, "delay_s": 0.0} for power in powers_dbm}
    cloud = setup.cloud(InProcessNodes({}))
    for interval in range(intervals):
        plan = cloud.plan(interval)
        for power, sums in found.items():
            spent = meters[power](plan)
            for column in sums:
                sums[column] += spent[column]
        cloud.skip(plan)
    return found
