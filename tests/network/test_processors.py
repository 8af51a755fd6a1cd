"""Devices as machines: what steps cost, in every format; how long they wait for each other; how fast they run."""

import heapq
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from h2fdp import Experiment
from h2fdp.costs.device_costs import FrequencyRule
from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import Tasks
from h2fdp.errors import UserError
from h2fdp.network import Access, Topology, read
from h2fdp.network.devices import OF_STEPS
from h2fdp.run.forecast import planned_work
from h2fdp.streams import Streams
from tests.costs.plans import PLAIN, Failing, tasks_of
from tests.networks import placed, stored

FILE = """
devices: {cycles_per_record: 2.4e6, seconds_per_step: 0}
edges:
  - {name: a, trusted: true, devices: [{name: slow, cpu_ghz: 1}, {name: fast, cpu_ghz: 2}]}
  - name: b
    trusted: false
    devices: {count: 20, cpu_ghz: {uniform: [1, 4]}, cycles_per_record: {uniform: [1e5, 3e5]},
              capacitance: {uniform: [1e-28, 3e-28]}}
"""
STATED = ("cpu_ghz", "cycles_per_record", "capacitance", "seconds_per_step")


@pytest.fixture
def network(tmp_path):
    (tmp_path / "n.yaml").write_text(FILE)
    return read(tmp_path / "n.yaml", seed=1)


def test_a_step_costs_what_a_hand_works_out(network):
    """HierFAVG's: 2.4e7 cycles at 1 GHz take 0.024 s and 2.4 mJ; at 2 GHz half the time, four times the energy."""
    network = network.with_devices(capacitance=2e-28)
    step = NetworkCosts(network, 100, Streams(1), records=np.full(22, 10.0)).step
    assert step.seconds[:2] == pytest.approx([0.024, 0.012], rel=1e-12)
    assert step.joules[:2] == pytest.approx([0.0024, 0.0096], rel=1e-12)
    more = NetworkCosts(
        network.with_devices(seconds_per_step=2, joules_per_step=3), 100, Streams(1), records=np.full(22, 10.0)
    ).step
    assert more.seconds - step.seconds == pytest.approx(2)
    assert more.joules - step.joules == pytest.approx(3)


def test_hierfavg_costs_what_its_table_says():
    """20 devices, 15 rounds of 60 steps and one upload: the file's comment works it out by hand."""
    data = ["data.name=synthetic", "data.features=784", "data.records=60", "data.partition=null"]
    run = Experiment.from_file("experiments/published_settings/hierfavg.yaml", data).prepare()
    costs = run.costs.drawn(0)
    assert costs.step.seconds == pytest.approx(0.024, rel=1e-12)
    assert costs.step.joules == pytest.approx(2.4e-3, rel=1e-12)
    assert costs.seconds == pytest.approx(0.1233, rel=3e-3)
    assert costs.joules == pytest.approx(61.6e-3, rel=3e-3)
    by_hand = 15 * 60 * 20 * 0.0024 + 15 * 20 * 0.5 * 697_760 / (1e6 * np.log2(51))
    assert by_hand == pytest.approx(61.65, abs=0.005)
    assert planned_work(run).costs["energy_j"] == pytest.approx(by_hand, rel=1e-9)


def test_an_interval_bills_each_devices_own_steps_and_waits_for_the_slowest(network):
    network = network.with_devices(capacitance=2e-28)
    costs = NetworkCosts(network, 100, Streams(1), records=np.full(22, 10.0)).drawn(0)
    both, fast = (interval_cost(costs, network, {0: Tasks.planned(np.array(rows), (3, 2))}) for rows in ([0, 1], [1]))
    assert both.compute_energy_j == pytest.approx([5 * (0.0024 + 0.0096), 0], rel=1e-12)
    air = 2 * costs.joules[:2]
    assert both.device_energy_j[:2] == pytest.approx(air + 5 * np.array([0.0024, 0.0096]), rel=1e-12)
    assert costs.seconds[1] < 2 * 0.012  # the fast one has sent when the slow one is ready
    messages = 2 * (costs.seconds[0] + costs.seconds[:2].max()) + 2 * costs.link_seconds[0]
    assert both.clock_s == pytest.approx(5 * 0.024 + messages, rel=1e-12)
    assert fast.clock_s == pytest.approx(5 * 0.012 + 4 * costs.seconds[1] + 2 * costs.link_seconds[0], rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    step_s=st.lists(st.sampled_from([0.0, 1.0, 2.0]) | st.floats(0, 9), min_size=1, max_size=6),
    segments=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    access=st.sampled_from(["tdma", "ofdma"]),
    data=st.data(),
)
def test_the_clock_is_that_of_a_queue_of_events(step_s, segments, access, data):
    """Who is ready sends: one at a time, or each on its part of the bandwidth; an average waits for the last one."""
    size = len(step_s)
    powers = data.draw(st.lists(st.floats(0, 20), min_size=size, max_size=size))
    network = Topology(
        "n", (placed("a", True, [1.0] * size, powers),), replace(PLAIN, access=access, bits_per_parameter=1)
    )
    network = network.with_devices(seconds_per_step=step_s)
    uploads = np.array([data.draw(st.lists(st.booleans(), min_size=size, max_size=size)) for _ in segments], dtype=bool)
    costs = NetworkCosts(network, 8, Streams(1)).drawn(0)
    found = interval_cost(
        costs, network, tasks_of([0], [range(size)], [segments], [Failing(uploads, np.full(size, sum(segments)))])
    )
    clock = 0.0
    for slots, arrives in zip(segments, uploads, strict=True):
        rows = np.flatnonzero(arrives).tolist()
        snr, sharing = 10 ** (np.array(powers) / 10), len(rows)
        ready, free, end = [(slots * step_s[row], row) for row in rows], 0.0, slots * max(step_s)
        heapq.heapify(ready)
        while ready:
            at, row = heapq.heappop(ready)
            if access == "tdma":
                free = max(free, at) + 8 / np.log2(1 + snr[row])
                end = max(end, free)
            else:
                end = max(end, at + 8 * sharing / np.log2(1 + sharing * snr[row]))
        clock += end + max((8 / np.log2(1 + snr[row]) for row in rows), default=0.0)
    wire = 2 * costs.link_seconds[0] if uploads.any() else 0.0
    assert found.clock_s == pytest.approx(clock + wire, rel=1e-9)


def test_drawn_numbers_are_in_their_range_and_differ(network):
    for name, low, high in (("cpu_ghz", 1, 4), ("cycles_per_record", 1e5, 3e5), ("capacitance", 1e-28, 3e-28)):
        drawn = network.subnets[1].column(name)
        assert low <= drawn.min() < drawn.max() <= high
        assert len(set(drawn)) > 10


def test_an_edge_server_states_other_numbers_than_all_devices_have(network):
    assert network.subnets[0].column("cycles_per_record").tolist() == [2.4e6, 2.4e6]
    assert network.subnets[1].column("cycles_per_record").max() <= 3e5


@pytest.mark.parametrize("suffix", ["yaml", "graphml", "json"])
def test_the_columns_survive_every_format(network, tmp_path, suffix):
    again = read(stored(network, tmp_path / f"n.{suffix}"), seed=2)
    for name in STATED:
        assert again.table.columns[name].tolist() == network.table.columns[name].tolist()


def test_a_star_keeps_the_columns(network):
    for name in STATED:
        assert network.as_star().table.columns[name].tolist() == network.table.columns[name].tolist()


@pytest.mark.parametrize("name", ["cpu_ghz", "capacitance"])
def test_a_processor_without_cycles_is_refused(tmp_path, name):
    (tmp_path / "n.yaml").write_text(f"edges: [{{name: a, devices: {{count: 2, {name}: 3}}}}]")
    with pytest.raises(UserError, match=f"expected cycles_per_record too, without which {name} means nothing"):
        read(tmp_path / "n.yaml", seed=1)


@pytest.mark.parametrize("wrong", ["-1", "0", ".inf", "[1, 2]", "{uniform: [0, 2]}"])
@pytest.mark.parametrize(
    "place", ["devices: {%s}\nedges: [{name: a, devices: {count: 3}}]", "edges: [{name: a, devices: {count: 3, %s}}]"]
)
def test_a_frequency_is_above_zero(tmp_path, place, wrong):
    (tmp_path / "n.yaml").write_text(place % f"cycles_per_record: 1, cpu_ghz: {wrong}")
    with pytest.raises(UserError, match="cpu_ghz"):
        read(tmp_path / "n.yaml", seed=1)


def test_alone_and_without_messages_a_device_runs_as_the_closed_form_says():
    """f = (w2 / (alpha w1))^(1/3), within its range, whatever it has to compute."""
    cycles, capacitance, joule, second = 3e9, 2e-28, 0.7, 0.2
    closed = (second / (capacitance * joule)) ** (1 / 3)

    def weighed(logarithm):
        hertz = np.exp(logarithm)
        return joule * capacitance / 2 * cycles * hertz**2 + second * cycles / hertz

    assert np.exp(
        minimize_scalar(weighed, bounds=(18, 25), method="bounded", options={"xatol": 1e-10}).x
    ) == pytest.approx(closed, rel=1e-6)
    for least, most, expected in ((0.1, 9e9, closed), (2.0, 9e9, 2e9), (0.1, 4e8, 4e8), (2.0, 4e8, 4e8)):
        rule = FrequencyRule(least, joule, second)
        chosen = rule.chosen_hertz(np.array([cycles]), np.array([capacitance]), np.array([most]), np.zeros(1))
        assert chosen == pytest.approx([expected], rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_several_devices_choose_what_a_solver_of_convex_problems_finds(seed):
    """HFEL's problem, min w1 sum E + w2 t, by SciPy's SLSQP over the deadline and all frequencies."""
    draws = np.random.default_rng(seed)
    cycles, own = draws.uniform(1e7, 3e9, 5), draws.uniform(1e9, 5e9, 5)
    capacitance, waits = draws.uniform(1e-28, 3e-28, 5), draws.uniform(0, 2, 5)
    joule, second = draws.uniform(0.1, 2, 2)
    chosen = FrequencyRule(0.5, joule, second).chosen_hertz(cycles, capacitance, own, waits)

    def weighed(ghz, deadline):
        return joule * float((capacitance / 2 * cycles * (ghz * 1e9) ** 2).sum()) + second * deadline

    solved = minimize(
        lambda x: weighed(x[:5], x[5]),
        [*(own / 1e9), float((cycles / own + waits).max()) + 1],
        bounds=[*((0.5, most / 1e9) for most in own), (0, None)],
        constraints={"type": "ineq", "fun": lambda x: x[5] - waits - cycles / (x[:5] * 1e9)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert solved.success
    found = weighed(chosen / 1e9, float((cycles / chosen + waits).max()))
    assert found == pytest.approx(solved.fun, rel=1e-6)
    assert chosen / 1e9 == pytest.approx(solved.x[:5], rel=1e-3)


def _interval(rule, access="ofdma", segments=(4,), **columns):
    """Three devices of one edge server, one of them slow, far from what they have to send."""
    network = Topology(
        "n", (placed("a", True, [1.0] * 3, [5.0, 10.0, 20.0]),), replace(PLAIN, access=access, bits_per_parameter=1)
    )
    network = network.with_devices(**{"cycles_per_record": [1e9, 2e9, 4e9], "cpu_ghz": [4, 3, 2], **columns})
    costs = NetworkCosts(network, 8, Streams(1), frequency=rule).drawn(0)
    return interval_cost(costs, network, {0: Tasks.planned(np.arange(3), segments)}), costs


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("segments", [(4,), (2, 2)])
def test_who_would_wait_computes_slowly_without_making_the_interval_longer(access, segments):
    """Seconds weigh everything: the clock stays, the joules that waiting wasted are saved."""
    (fast, _), (thrifty, _) = (_interval(rule, access, segments) for rule in (None, FrequencyRule(0.1, 1e-12, 1.0)))
    assert thrifty.clock_s == pytest.approx(fast.clock_s, rel=1e-9)
    assert thrifty.compute_energy_j[0] < 0.9 * fast.compute_energy_j[0]


def test_an_interval_is_billed_at_the_frequencies_that_are_chosen():
    rule = FrequencyRule(0.5, 1.0, 3.0)
    found, costs = _interval(rule)
    shared = 8 * 3 / np.log2(1 + 3 * 10 ** (np.array([0.5, 1.0, 2.0])))
    cycles = 4 * np.array([1e9, 2e9, 4e9])
    down = costs.down_seconds.max()
    hertz = rule.chosen_hertz(cycles, np.full(3, 2e-28), np.array([4e9, 3e9, 2e9]), shared + down)
    assert found.compute_energy_j == pytest.approx([float((1e-28 * cycles * hertz**2).sum())])
    assert found.clock_s == pytest.approx(float((cycles / hertz + shared).max()) + down + 2 * costs.link_seconds[0])


class OneByOne(Access):
    """A user's own."""

    def uplink_seconds(self, seconds, snr, points, count):
        return np.bincount(points, seconds, count)


def test_under_a_users_own_access_all_wait_for_the_slowest():
    for rule in (None, FrequencyRule(0.1, 1e-12, 1.0)):
        found, costs = _interval(rule, OneByOne)
        air = costs.seconds.sum() + costs.down_seconds.max() + 2 * costs.link_seconds[0]
        assert found.clock_s == pytest.approx(4 * 2.0 + air)


def test_without_a_weight_of_joules_the_bits_are_those_without_a_rule():
    (fast, _), (same, _) = (_interval(rule) for rule in (None, FrequencyRule(0.5, 0.0, 1.0)))
    assert (same.energy_j, same.clock_s, same.delay_s) == pytest.approx(
        (fast.energy_j, fast.clock_s, fast.delay_s), rel=1e-15
    )


def test_machines_that_are_alike_cost_what_a_number_for_all_costs():
    (alike, _), (number, _) = (
        _interval(None, cycles_per_record=1e9, cpu_ghz=2.0),
        _interval(None, cycles_per_record=0, seconds_per_step=0.5, joules_per_step=1e-28 * 1e9 * 4e18),
    )
    assert alike.clock_s == number.clock_s
    assert alike.energy_j == pytest.approx(number.energy_j, rel=1e-14)


@pytest.mark.run
def test_a_run_bills_batches_and_keeps_the_columns(tmp_path):
    """Batches of 10 records: five steps of 2.4e7 cycles on each device."""
    edges = [{"name": "a", "trusted": True, "devices": {"count": 2}}]
    machines = {"cycles_per_record": 2.4e6, "cpu_ghz": {"uniform": [1, 1]}}
    fast = [{"name": "a", "trusted": True, "devices": {"count": 2, "cpu_ghz": [1, 2]}}]
    asked = {"data": "digits", "batch_size": 10, "intervals": 2, "local_steps": 5, "method": "hfl"}
    free, billed, thrifty = (
        Experiment(topology=network, control=control, **asked).run(tmp_path / name)
        for name, network, control in (
            ("free", {"edges": edges}, {}),
            ("billed", {"devices": machines, "edges": fast}, {}),
            ("thrifty", {"devices": machines, "edges": fast}, {"least_ghz": 0.5, "alpha2": 0.001}),
        )
    )
    more = billed.metrics["energy_j"].iloc[-1] - free.metrics["energy_j"].iloc[-1]
    assert more == pytest.approx(10 * (0.0024 + 0.0096), rel=1e-9)
    assert billed.devices["cpu_ghz"].tolist() == [1, 2]
    assert set(free.devices) == set(billed.devices) - {"cpu_ghz", "cycles_per_record"}
    spent = billed.devices["energy_j"] - free.devices["energy_j"]
    assert spent.tolist() == pytest.approx([0.024, 0.096], rel=1e-9)
    assert thrifty.metrics["energy_j"].iloc[-1] == pytest.approx(
        free.metrics["energy_j"].iloc[-1] + 10 * 0.0012, rel=1e-9
    )
    assert thrifty.metrics["accuracy"].tolist() == billed.metrics["accuracy"].tolist()


@pytest.mark.parametrize(
    ("devices", "least", "words"),
    [
        ({}, 0.5, "the devices of this network state no cycles_per_record; expected null"),
        ({"cycles_per_record": 1e6}, 1.0, "expected a number below 1, the cpu_ghz of a/1; found 1"),
    ],
)
def test_a_least_frequency_that_leaves_no_choice_is_refused(devices, least, words):
    edges = [{"name": "a", "trusted": True, "devices": {"count": 2}}]
    asked = Experiment(
        topology={"devices": devices, "edges": edges}, data="digits", method="hfl", control={"least_ghz": least}
    )
    with pytest.raises(UserError, match=words):
        asked.prepare()


def test_every_column_of_machines_is_neutral_by_default():
    assert {name for name, column in OF_STEPS.items() if not column.default} == {
        "seconds_per_step",
        "joules_per_step",
        "cycles_per_record",
    }


def test_hfels_plans_are_billed_as_an_independent_model_bills_them():
    """As fast as possible on equal shares of the band; the best frequencies: by SciPy from the words of the file. The
    best frequencies and shares together, which nobody plans here, are less than a hundredth cheaper."""
    path, one = "experiments/published_settings/hfel.yaml", ["sweep={}", "training.intervals=1"]

    def plan(least):
        return Experiment.from_file(path, [*one, f"control.least_ghz={least}"]).prepare()

    runs = [plan("null"), plan("0.5")]
    table = runs[0].topology.table.columns
    cycles, own = 5 * 20 * table["cycles_per_record"], table["cpu_ghz"]
    snr = 10 ** ((23 - 30 - 37.5 * np.log10(table["distance_m"]) + 173 - 60) / 10)
    bits, watt = 32 * 640, 10**-0.7

    def air(share):
        return bits / (1e6 * share * np.log2(1 + snr / share))

    def joules(ghz, share):
        return float((1e-28 * cycles * (ghz * 1e9) ** 2 + watt * air(share)).sum())

    def seconds(ghz, share):
        return cycles / (ghz * 1e9) + air(share)

    down = np.maximum.reduceat(air(1.0), [0, 5, 10])[[0] * 5 + [1] * 5 + [2] * 5]
    wires, after = 3 * 10**0.8 * bits / 1e8, 2 * bits / 1e8
    fixed, thrifty = (planned_work(run).costs for run in runs)
    assert fixed["energy_j"] == pytest.approx(joules(own, 0.2) + wires, rel=1e-6)
    assert fixed["clock_s"] == pytest.approx(float((seconds(own, 0.2) + down).max() + after), rel=1e-6)

    def solved(shares):
        def weighed(x):
            return joules(x[:15], x[16:] if shares else 0.2) + x[15]

        def slack(x):
            return x[15] - seconds(x[:15], x[16:] if shares else 0.2) - down

        rest = {"type": "eq", "fun": lambda x: x[16:].reshape(3, 5).sum(axis=1) - 1}
        begin = [*own, float((seconds(own, 0.2) + down).max()) + 0.01, *([0.2] * 15 if shares else [])]
        bounds = [*((0.5, most) for most in own), (0, 1), *([(0.01, 1)] * 15 if shares else [])]
        constraints = [{"type": "ineq", "fun": slack}, *([rest] if shares else [])]
        options = {"ftol": 1e-13, "maxiter": 2000}
        return minimize(weighed, begin, bounds=bounds, constraints=constraints, method="SLSQP", options=options)

    expected, together = solved(False), solved(True)
    assert expected.success
    assert together.success
    weighed = thrifty["energy_j"] + thrifty["clock_s"]
    assert weighed == pytest.approx(expected.fun + wires + after, rel=1e-4)
    assert thrifty["clock_s"] == pytest.approx(float(expected.x[15] + after), rel=5e-3)
    assert 0.99 * weighed < together.fun + wires + after < weighed
    assert thrifty["energy_j"] < 0.2 * fixed["energy_j"]
