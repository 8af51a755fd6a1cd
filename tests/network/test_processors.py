"""A processor's cost of local steps, and the column that it declares in every format."""

import numpy as np
import pytest

from h2fdp import Experiment
from h2fdp.costs import NetworkCosts, interval_cost
from h2fdp.errors import UserError
from h2fdp.network import read, write
from h2fdp.streams import Streams

FILE = """
compute: {name: processor, cycles_per_record: 2.4e6}
edges:
  - {name: a, trusted: true, devices: [{name: slow, cpu_ghz: 1}, {name: fast, cpu_ghz: 2}]}
  - {name: b, trusted: false, devices: {count: 20, cpu_ghz: {uniform: [1, 4]}}}
"""


@pytest.fixture
def network(tmp_path):
    (tmp_path / "n.yaml").write_text(FILE)
    return read(tmp_path / "n.yaml", seed=1)


def test_a_step_costs_what_a_hand_works_out(network):
    """HierFAVG's: 2.4e7 cycles at 1 GHz take 0.024 s and 2.4 mJ; at 2 GHz half the time, four times the energy."""
    step = NetworkCosts(network, 100, Streams(1), records=np.full(22, 10.0)).step
    assert step.seconds[:2] == pytest.approx([0.024, 0.012], rel=1e-12)
    assert step.joules[:2] == pytest.approx([0.0024, 0.0096], rel=1e-12)


def test_an_interval_bills_each_devices_own_steps_and_waits_for_the_slowest(network):
    costs = NetworkCosts(network, 100, Streams(1), records=np.full(22, 10.0)).drawn(0)
    both, fast = (interval_cost(costs, network, [0], [np.array(rows)], [[3, 2]]) for rows in ([0, 1], [1]))
    assert both.compute_energy_j == pytest.approx([5 * (0.0024 + 0.0096), 0], rel=1e-12)
    air = 2 * costs.joules[:2]
    assert both.device_energy_j[:2] == pytest.approx(air + 5 * np.array([0.0024, 0.0096]), rel=1e-12)
    messages = 2 * (costs.seconds[:2].sum() + costs.seconds[:2].max()) + 2 * costs.link_seconds[0]
    assert both.clock_s == pytest.approx(5 * 0.024 + messages, rel=1e-12)
    assert fast.clock_s == pytest.approx(5 * 0.012 + 4 * costs.seconds[1] + 2 * costs.link_seconds[0], rel=1e-12)


def test_drawn_frequencies_are_in_their_range_and_differ(network):
    drawn = network.subnets[1].column("cpu_ghz")
    assert drawn.min() >= 1
    assert drawn.max() <= 4
    assert len(set(drawn)) > 10


@pytest.mark.parametrize("suffix", ["yaml", "graphml", "json"])
def test_the_column_survives_every_format(network, tmp_path, suffix):
    write(network, tmp_path / f"n.{suffix}")
    again = read(tmp_path / f"n.{suffix}", seed=2)
    assert again.compute == network.compute
    assert [each.column("cpu_ghz").tolist() for each in again.subnets] == [
        each.column("cpu_ghz").tolist() for each in network.subnets
    ]


def test_a_star_keeps_the_column(network):
    assert network.as_star().table.columns["cpu_ghz"].tolist() == network.table.columns["cpu_ghz"].tolist()


def test_a_column_that_no_model_of_the_network_reads_is_refused(tmp_path):
    (tmp_path / "n.yaml").write_text("edges: [{name: a, devices: {count: 2, cpu_ghz: 3}}]")
    with pytest.raises(UserError, match=r"expected no cpu_ghz \(a\): compute is per-step here"):
        read(tmp_path / "n.yaml", seed=1)


@pytest.mark.parametrize("wrong", ["-1", "0", ".inf", "[1, 2]", "{uniform: [0, 2]}"])
def test_a_frequency_is_above_zero(tmp_path, wrong):
    devices = f"{{count: 3, cpu_ghz: {wrong}}}"
    text = f"compute: {{name: processor, cycles_per_record: 1}}\nedges: [{{name: a, devices: {devices}}}]"
    (tmp_path / "n.yaml").write_text(text)
    with pytest.raises(UserError, match="cpu_ghz"):
        read(tmp_path / "n.yaml", seed=1)


@pytest.mark.run
def test_a_run_bills_batches_and_keeps_the_column(tmp_path):
    """Batches of 10 records: five steps of 2.4e7 cycles on each device."""
    edges = [{"name": "a", "trusted": True, "devices": {"count": 2, "cpu_ghz": [1, 2]}}]
    compute = {"name": "processor", "cycles_per_record": 2.4e6}
    asked = {"data": "digits", "batch_size": 10, "intervals": 1, "local_steps": 5, "method": "hfl"}
    free, billed = (
        Experiment(
            topology={"compute": each, "edges": edges if each else [edges[0] | {"devices": {"count": 2}}]}, **asked
        )
        for each in ({}, compute)
    )
    free, billed = free.run(tmp_path / "free"), billed.run(tmp_path / "billed")
    more = billed.metrics["energy_j"].iloc[-1] - free.metrics["energy_j"].iloc[-1]
    assert more == pytest.approx(5 * (0.0024 + 0.0096), rel=1e-9)
    assert billed.devices["cpu_ghz"].tolist() == [1, 2]
    assert "cpu_ghz" not in free.devices
