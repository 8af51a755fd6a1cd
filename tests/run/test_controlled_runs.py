"""Algorithm 1 in whole runs: what it decides, what is written down, and that noise, ledger and costs follow."""

import json
import math

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Radio
from h2fdp.run.explain import first_decision
from tests.networks import placed

DISTANCES = {"A": [20.0, 60.0, 90.0], "B": [30.0, 50.0], "C": [80.0, 80.0, 15.0, 40.0]}
TRUSTED = {"A"}
EPSILON, DELTA, CLIP = 3.0, 1e-4, 0.8
INTERVALS, STEPS, PER_INTERVAL = 6, 8, 2


def network(fading="rayleigh"):
    subnets = (
        placed(name, name in TRUSTED, np.array(each), np.full(len(each), 24.0)) for name, each in DISTANCES.items()
    )
    return Topology("t", tuple(subnets), Radio(fading=fading))


def experiment(control=None, fading="rayleigh", **settings):
    defaults = {
        "intervals": INTERVALS,
        "local_steps": STEPS,
        "aggregate_every": None,
        "aggregations_per_interval": PER_INTERVAL,
        "batch_size": None,
        "sampling_rate": 0.1,
        "epsilon": EPSILON,
        "delta": DELTA,
        "clip_norm": CLIP,
        "step_size": 0.2,
        "seed": 5,
        "control": {"enabled": True, "tau_max": 12, **(control or {})},
    }
    return Experiment(topology=network(fading), data="digits", **{**defaults, **settings})


def lines(run, name):
    return [json.loads(line) for line in (run.directory / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return experiment({"alpha1": 0.01, "alpha2": 0.003}).run(tmp_path_factory.mktemp("controlled") / "run")


def objective(plan, tau, participation, most=PER_INTERVAL):
    """Problem P from the numbers of a plan alone (Secs. 5 and 8, Appendix D)."""
    c = plan["constants"]
    local = min(most, tau - 1)
    rounds = (c["T"] - c["t_k"]) / tau
    energy = delay = weights = 0.0
    for name, edge in plan["edges"].items():
        s = participation[name]
        energy += s * (edge["device_joules"] * (1 + local) + edge["relay_joules"]) + edge["link_joules"]
        there = edge["device_seconds"] + edge["relay_seconds"] + edge["link_seconds"]
        delay += 2 * s * there + local * s * edge["device_seconds"]
        weights += c["c2"] ** 2 / s**2 if edge["one_noise"] else c["v2"] ** 2 / s
    gap = 4 * tau * (local**3 + 1) * c["M"] * c["q"] ** 2 * c["G"] ** 2 * math.log(1 / c["delta"]) * weights
    gap /= c["N"] ** 2 * c["epsilon"] ** 2
    return {
        "energy": c["alpha1"] * rounds * energy,
        "delay": c["alpha2"] * rounds * delay,
        "gap": c["alpha3"] * gap / c["phi"],
    }


def every_point():
    for tau in range(1, 13):
        for a in range(1, 4):
            for b in range(1, 3):
                for c in range(1, 5):
                    yield tau, {"A": a, "B": b, "C": c}


@pytest.mark.parametrize("alphas", [(1, 1, 1), (0.01, 0.01, 1), (1, 1, 30)])
def test_a_plan_can_be_recomputed_from_what_it_prints_and_no_point_is_better(alphas):
    control = dict(zip(("alpha1", "alpha2", "alpha3"), alphas, strict=True))
    plan = first_decision(experiment(control).prepare()).as_dict()
    assert objective(plan, plan["tau"], plan["participation"]) == pytest.approx(plan["terms"], rel=1e-12)
    assert sum(plan["terms"].values()) == pytest.approx(plan["objective"], rel=1e-12)
    best = min(sum(objective(plan, *point).values()) for point in every_point())
    assert plan["objective"] == pytest.approx(best, rel=1e-12)


def test_every_decision_is_written_with_its_reasons_and_is_what_was_done(run):
    decisions, metrics = lines(run, "control.jsonl"), run.metrics
    assert len(decisions) == len(metrics)
    slot = 0
    for decision, row in zip(decisions, metrics.itertuples(), strict=True):
        assert decision["slot"] == decision["constants"]["t_k"] == slot
        slot += decision["tau"]
        assert (row.local_steps, row.slot, row.step_size) == (decision["tau"], slot, decision["step_size"])
        assert row.participants == sum(decision["participation"].values())
        assert decision["objective"] == pytest.approx(sum(decision["terms"].values()))
        assert decision["runner_up"]["objective"] >= decision["objective"]
        assert decision["runner_up"]["tau"] != decision["tau"]
        assert set(decision["rate_mbps"]) == set(DISTANCES)


def test_the_ledger_has_the_noise_of_each_decision(run):
    """(15)-(19) with each interval's own eta_k, tau_k and s_c^k, L = K_g K_l for local noises and K_g for global."""
    decisions = lines(run, "control.jsonl")
    rows = lines(run, "privacy.jsonl")
    assert {row["interval"] for row in rows} == set(range(1, len(decisions) + 1))
    assert all(max(decision["participation"][edge] for decision in decisions) > 1 for edge in DISTANCES)
    for row in rows:
        decision = decisions[row["interval"] - 1]
        active = decision["participation"][row["edge"]]
        eta, tau = decision["step_size"], decision["tau"]
        releases = INTERVALS * PER_INTERVAL if row["kind"] == "local" else INTERVALS
        formula = math.sqrt(2 * releases * math.log(1 / DELTA)) / EPSILON * 2 * eta * tau * CLIP * row["sampling_rate"]
        moved = 2 * eta * row["steps"] * CLIP
        if row["edge"] in TRUSTED:
            assert row["observer"] != "edge"
            expected = moved / active, formula / active
        elif row["observer"] == "edge":
            expected = moved, formula
        else:
            known = 1 if row["observer"] == "peer" and active > 1 else 0
            expected = moved / active, formula * math.sqrt(active - known) / active
        assert (row["sensitivity"], row["noise_std"]) == pytest.approx(expected, rel=1e-9)


def test_training_ends_at_slot_T_or_after_K_g_intervals(tmp_path):
    short = experiment({"slots": 7, "alpha3": 1e6}, intervals=50).run(tmp_path / "slots").metrics
    assert short["slot"].iloc[-1] == 7
    assert len(short) < 50
    many = experiment({"slots": 1000, "alpha3": 1e6}, intervals=3).run(tmp_path / "intervals").metrics
    assert len(many) == 3
    assert many["slot"].iloc[-1] < 1000


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"method": "hfl"}, "control.enabled"),
        ({"method": {"extends": "pedpfl", "objective": {"name": "proximal", "mu": 11}}}, "method.objective.mu"),
    ],
)
def test_what_the_controller_cannot_do_is_refused_with_its_key(settings, key):
    with pytest.raises(UserError) as refused:
        experiment(**settings)
    assert key in str(refused.value)


def test_local_noises_cover_the_most_local_aggregations_that_any_tau_has(tmp_path):
    """Every 2 slots: 5 local aggregations in the longest interval of 12 slots, 3 in tau_0 = 8."""
    aggregation_times = {"aggregate_every": 2, "aggregations_per_interval": None}
    done = experiment({"alpha1": 1e6}, **aggregation_times).run(tmp_path / "run")
    decisions = lines(done, "control.jsonl")
    local = [row for row in lines(done, "privacy.jsonl") if row["kind"] == "local" and row["observer"] == "edge"]
    assert max(decision["tau"] for decision in decisions) == 12
    for row in local:
        decision = decisions[row["interval"] - 1]
        formula = math.sqrt(2 * INTERVALS * 5 * math.log(1 / DELTA)) / EPSILON * row["sampling_rate"]
        assert row["noise_std"] == pytest.approx(formula * 2 * decision["step_size"] * decision["tau"] * CLIP, rel=1e-9)
    assert done.metrics["epsilon_claimed"].notna().all()


def test_under_an_accounted_epsilon_its_noise_covers_what_it_will_decide(tmp_path):
    """Its decisions depend on nothing that is released: the forecast is the run, and meets the target closely."""
    done = experiment({"alpha1": 0.03, "alpha2": 0.01}, calibration="accounted", accountant="pld").run(tmp_path / "run")
    held = max(done.privacy.epsilon(observer, accountant="pld") for observer in ("edge", "peer", "cloud", "public"))
    assert 0.99 * EPSILON < held <= EPSILON
    decided = {(row["tau"], *row["participation"].values()) for row in lines(done, "control.jsonl")}
    assert len(decided) > 1, "they are not all alike"
