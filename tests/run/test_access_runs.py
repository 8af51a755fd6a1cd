"""Whole runs over shares of the bandwidth and over the air: bits, whose rows the ledger has, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.integrity import check
from h2fdp.network import Radio
from h2fdp.privacy.releases import rows_in
from h2fdp.run.forecast import planned_accounts, planned_work
from h2fdp.run.live_accounts import OVER_THE_AIR
from tests.networks import placed
from tests.protocol.test_any_tree import epsilon_of_gaussian
from tests.runtime.runs import assert_equal, recorded

SIZES = (3, 4)
INTERVALS = 6


def campus(access="tdma", trust=(True, False), **radio):
    subnets = [
        placed(f"e{at}", each, np.linspace(20, 60, size).tolist(), [9.0] * size)
        for at, (each, size) in enumerate(zip(trust, SIZES, strict=True))
    ]
    return Topology("campus", tuple(subnets), Radio(access=access, **radio))


def experiment(topology, **settings):
    defaults = {
        "method": "h2fdp",
        "intervals": INTERVALS,
        "local_steps": 2,
        "aggregate_every": 1,
        "sampling_rate": 1.0,
        "batch_size": None,
        "epsilon": 20.0,
        "seed": 5,
        "calibration": "accounted",
        "accountant": "pld",
        "noise_key": "seed",
        "model": "softmax",
        "training": "paper",
        "control": {"enabled": False},
    }
    return Experiment(topology, "digits", **{**defaults, **settings})


def air(truncate_db=-3.0):
    return {"name": "over-the-air", "truncate_db": truncate_db}


def ledger(run):
    return [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]


def columns(run):
    return run.metrics.drop(columns=["wall_s"])


def test_shares_change_what_a_run_costs_and_no_bit_of_it(tmp_path):
    plain, equal, together = (
        experiment(campus(access)).run(tmp_path / name)
        for name, access in (
            ("plain", "ofdma"),
            ("equal", {"name": "ofdma", "shares": "equal"}),
            ("together", {"name": "experiments.parts.bands:EqualTime"}),
        )
    )
    for other in (equal, together):
        assert (other.directory / "model.pt").read_bytes() == (plain.directory / "model.pt").read_bytes()
        assert ledger(other) == ledger(plain)
    assert columns(equal)["clock_s"].tolist() == columns(plain)["clock_s"].tolist()
    assert (columns(equal)["energy_j"] > columns(plain)["energy_j"]).all()
    assert columns(together)["clock_s"].iloc[-1] < columns(plain)["clock_s"].iloc[-1]
    assert not check(together.directory).problems


def test_where_all_send_a_sum_over_the_air_is_the_run_of_any_access(tmp_path):
    plain = experiment(campus()).run(tmp_path / "plain")
    summed = experiment(campus(air(-100.0))).run(tmp_path / "air")
    assert (summed.directory / "model.pt").read_bytes() == (plain.directory / "model.pt").read_bytes()
    assert ledger(summed) == ledger(plain)
    costs = ["wall_s", "energy_j", "delay_s", "clock_s"]
    assert summed.metrics.drop(columns=costs).equals(plain.metrics.drop(columns=costs))
    assert OVER_THE_AIR in summed.summary["privacy"]["notes"]
    assert OVER_THE_AIR not in plain.summary["privacy"]["notes"]


@pytest.fixture(scope="module")
def truncated(tmp_path_factory):
    return experiment(campus(air())).run(tmp_path_factory.mktemp("air") / "run")


def test_who_is_too_weak_in_an_interval_has_no_rows_in_it_and_pays_nothing(truncated):
    setup = experiment(campus(air())).prepare()
    sends = np.array([setup.costs.sends(interval) for interval in range(INTERVALS)])
    assert 0 < sends.sum() < sends.size
    found = np.zeros_like(sends)
    rows = ledger(truncated)
    for row in rows:
        if row.get("observer") == "public":
            first = 0 if row["edge"] == "e0" else SIZES[0]
            for part in rows_in(row["devices"]):
                found[row["interval"] - 1, first + part.start : first + part.stop] = True
    assert (found == sends).all()
    cloud = setup.cloud(None)
    for interval in range(INTERVALS):
        plan = cloud.plan(interval)
        spent = setup.bill.of(plan).device_energy_j
        assert (spent > 0).tolist() == sends[interval].tolist()
        cloud.skip(plan)


def test_the_account_counts_the_rounds_in_which_a_device_sends_and_meets_the_target(truncated):
    """Of an untrusted edge server, by hand: it receives each upload, under the noise of that device alone."""
    mu = {}
    for row in ledger(truncated):
        if row.get("observer") == "edge":
            for part in rows_in(row["devices"]):
                for device in range(part.start, part.stop):
                    mu[device] = mu.get(device, 0.0) + (row["sensitivity"] / row["noise_std"]) ** 2
    worst = max(epsilon_of_gaussian(each**0.5) for each in mu.values())
    assert truncated.summary["privacy"]["worst"]["edge"]["pld"] == pytest.approx(worst, rel=1e-3)
    everywhere = max(each["pld"] for each in truncated.summary["privacy"]["worst"].values())
    assert 0.95 * 20 < everywhere <= 20
    assert not check(truncated.directory).problems


def test_a_forecast_knows_every_channel(truncated):
    setup = experiment(campus(air())).prepare()
    work = planned_work(setup).costs
    assert work["kind"] == "exact"
    for column in ("energy_j", "clock_s", "delay_s"):
        assert work[column] == pytest.approx(truncated.metrics[column].iloc[-1], rel=1e-9), column
    worst = planned_accounts(setup).worst("public", setup.config.privacy.delta)
    assert worst == pytest.approx(truncated.summary["privacy"]["worst"]["public"]["rdp"], rel=1e-6)


@pytest.mark.parametrize("trust", ["untrusted", "secure-sum"])
def test_no_observer_has_less_of_a_device_because_signals_add_up_in_the_air(trust):
    """Untrusted edge servers see single uploads, and those of secure sums the sum, whatever the access."""
    found = []
    for access in ("tdma", air(-100.0)):
        cloud = experiment(campus(access, (trust, trust))).prepare().cloud(None)
        found.append(list(cloud.releases(cloud.plan(0))))
    assert found[0] == found[1]
    assert {"edge", "peer", "cloud", "public"} == {row.observer for row in found[1]}


def test_signals_carry_no_keys_and_shares():
    """Under `secure-sum` the air adds up; no protocol exchanges keys, and nothing is paid for them."""
    trust = ("secure-sum", "secure-sum")
    setup, open_ = (experiment(campus(air(-100.0), each)).prepare() for each in (trust, ("untrusted",) * 2))
    costs = [run.bill.columns(run.cloud(None).plan(0)) for run in (setup, open_)]
    assert costs[0] == costs[1]


def test_it_resumes_and_runs_in_parallel_to_the_same_bits(tmp_path, truncated):
    again = experiment(campus(air()), runtime={"backend": "inline", "hosts": 2}).run(tmp_path / "run")
    assert_equal(recorded(again), recorded(truncated))


SECURE = ("secure-sum", "secure-sum")
REFUSED = [
    ({"method": {"extends": "h2fdp", "aggregation": "median"}}, (True, False), "aggregation compares single uploads"),
    ({"compression": {"device": {"quantise": 4}}}, (False, False), r"compression\.device: signals add up in the air"),
    ({"method": {"extends": "h2fdp", "topology": "star"}}, (False, False), "what each device of a star sends"),
    ({"method": {"extends": "h2fdp", "schedule": {"name": "buffered", "buffer": {"edge": 2}}}}, (False, False),
     "under buffered aggregators do not wait for all"),
    ({"control": {"enabled": True, "joules": 3}}, (True, False), "without shares: h2fdp prices each message by itself"),
    ({"faults": {"device_dropout": 0.2}}, SECURE, "faults: signals add up .* shares of noise would lack in the sum"),
    ({"method": {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": {"rounding": 16}}}}, SECURE,
     r"secure_sum\.rounding: signals add up in the air as they are"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "trust", "words"), REFUSED, ids=[words[:25] for *_, words in REFUSED])
def test_what_needs_single_uploads_is_refused_over_the_air(settings, trust, words):
    with pytest.raises(UserError, match=words):
        experiment(campus(air(), trust), **settings).prepare()


@pytest.mark.parametrize(
    ("access", "found"),
    [({"name": "ofdma", "shares": "equal"}, "ofdma"), ("experiments.parts.bands:EqualTime", ".*EqualTime")],
)
def test_shares_of_one_round_are_refused_where_there_are_no_rounds(access, found):
    network = campus(access, (False, False))
    buffered = {"extends": "h2fdp", "schedule": {"name": "buffered", "buffer": {"edge": 2}}}
    with pytest.raises(UserError, match=rf"ofdma without shares: under buffered .*, found {found} with shares"):
        experiment(network, method=buffered).prepare()
    experiment(replace(network, radio=Radio(access="ofdma")), method=buffered).prepare()


def test_channels_that_are_never_good_enough_are_told(tmp_path):
    lonely = Topology("net", (placed("e0", False, [20.0], [9.0]),), Radio(access=air(0.0)))
    sends = [experiment(lonely).prepare().costs.sends(interval)[0] for interval in range(INTERVALS)]
    assert 0 < sum(sends) < INTERVALS
    seldom = next(
        seed
        for seed in range(1, 50)
        if not experiment(lonely, seed=seed, method="hfl", calibration="paper", intervals=1).prepare().costs.sends(0)[0]
    )
    with pytest.raises(UserError, match="fewer truncated channels"):
        experiment(lonely, seed=seldom, intervals=1).prepare()
