"""Statistics before training: what arrives, under which noise, in whose account, at what cost, and after a crash."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats

from h2fdp import Experiment, UserError, resume
from h2fdp.audit.run_audit import audit
from h2fdp.data.statistics import Bounds, Mean, Moments
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.run.forecast import planned_work
from h2fdp.run.prelude import after, plan_of, what_noise_hides, with_prelude
from tests.run.killed import assert_outlives_a_kill, killed_at

ROWS, DEVICES, EPSILON = 480, 12, 8.0
TRUST = {"nobody": {"trusted": 0}, "edges": {"trusted": 1}, "sum": {"relay": 1}, "secure": {"secure-sum": 1}}
# Independent noises, each as large as one on the sum of all records' rows.
HOLDERS = {"nobody": DEVICES, "edges": 3, "sum": DEVICES / (DEVICES - 1), "secure": 3 * 4 / 3}
ACCOUNT = {"calibration": "accounted", "accountant": "pld", "noise_key": "seed", "seed": 1, "delta": 1e-5}
SHORT = {"extends": "auto", "intervals": 3}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Columns of unlike scales, one with gaps, and one that is bounded."""
    rng = np.random.default_rng(7)
    y = rng.integers(0, 2, ROWS)
    frame = pd.DataFrame(
        {
            "a": 1e4 * (rng.normal(size=ROWS) + y),
            "b": np.exp(rng.normal(size=ROWS)) * 1e-3,
            "c": rng.normal(size=ROWS) - y,
            "age": rng.uniform(0, 110, ROWS),
            "label": y,
        }
    )
    frame.loc[::50, "c"] = np.nan
    path = tmp_path_factory.mktemp("table") / "t.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def made(table):
    def experiment(trust="nobody", data=(), devices=(), deep=False, **settings):
        edges = [{"name": "e-{i}", "repeat": 3, "devices": {"count": 4, **dict(devices)}}]
        network = {"trust": TRUST[trust], "edges": [{"name": "top", "edges": edges}] if deep else edges}
        network |= {key: settings.pop(key) for key in ("mobility", "adversaries") if key in settings}
        own = {"name": "table", "path": str(table), "classes": 2, "test": 0.25, "partition": "iid"}
        given = {"data": {**own, "ranges": {"age": [0, 110]}, **dict(data)}, "epsilon": EPSILON, **ACCOUNT}
        given |= {"method": "h2fdp", "model": "auto"}
        return Experiment(network, **{"training": SHORT} | given | settings)

    return experiment


def ledger(run):
    return [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]


def records(setup):
    return setup.given.train.x[setup.given.order].astype(np.float64)


def mu(epsilon):
    return optimize.brentq(lambda distance: gaussian_epsilon(distance, 1e-5) - epsilon, 1e-3, 100)


def test_without_noise_the_averages_are_those_of_all_records(made):
    setup = made(method="hfl", calibration=None, training={"extends": "auto", "intervals": 2}).prepare()
    assert [each.statistic.name for each in setup.prelude] == ["bounds", "moments"]
    averages = []
    ready = with_prelude(setup, averages)
    x = records(setup)
    open_columns = torch.from_numpy(x[:, :3].astype(np.float32))
    assert averages[0].numpy() == pytest.approx(Bounds().of(open_columns).mean(dim=0).numpy(), abs=1e-6)
    seen = ready.data.train.x[ready.data.order].astype(np.float64)
    assert seen.mean(axis=0) == pytest.approx(np.zeros(4), abs=0.05)
    assert np.delete(seen, 1, axis=1).std(axis=0) == pytest.approx(np.ones(3), abs=0.05)
    assert np.abs(seen).max() <= 5.0


@pytest.mark.parametrize("trust", TRUST)
def test_the_noise_on_a_statistic_is_its_share_of_the_budget(made, trust):
    """By the closed form of one Gaussian of mu sqrt(share). Right noise fails once in 10^6, 2/3 and 3/2 always."""
    setup = made(trust, data={"prelude": ["bounds"], "exclude": ["c"]}).prepare()
    averages = []
    with_prelude(setup, averages)
    open_columns = torch.from_numpy(records(setup)[:, :2].astype(np.float32))
    rows = Bounds().of(open_columns).double()
    left = averages[0].double().numpy() - rows.mean(dim=0).numpy()
    deviation = Bounds().norm((2,)) * HOLDERS[trust] ** 0.5 / (len(rows) * mu(EPSILON) * Bounds.share**0.5)
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], len(left))
    inside = [bool(low < (left**2).sum() / (scale * deviation) ** 2 < high) for scale in (1.0, 2 / 3, 3 / 2)]
    assert inside == [True, False, False]


@pytest.mark.parametrize("trust", TRUST)
def test_the_ledger_has_it_before_the_first_interval_and_all_together_meet_the_target(made, tmp_path, trust):
    run = made(trust).run(tmp_path / "run")
    rows = [each for each in ledger(run) if each["observer"] == "cloud"]
    assert [each["interval"] for each in rows] == sorted(each["interval"] for each in rows)
    assert {each["interval"] for each in rows} == {-1, 0, 1, 2, 3}
    if trust == "nobody":  # each upload is a Gaussian by itself
        parts = {}
        for each in ledger(run):
            if each["observer"] == "edge":
                parts[each["interval"]] = (each["sensitivity"] / each["noise_std"]) ** 2
        whole = sum(parts.values())
        assert whole == pytest.approx(mu(EPSILON) ** 2, rel=3e-3)
        assert parts[-1] / whole == pytest.approx(Bounds.share, rel=1e-2)
        assert parts[0] / whole == pytest.approx(Moments.share, rel=1e-2)
    reached = [each["pld"] for each in run.summary["privacy"]["worst"].values() if each["pld"] is not None]
    assert max(reached) == pytest.approx(EPSILON, rel=2e-3)
    assert max(reached) <= EPSILON


def test_noise_that_hides_all_ranges_is_named_before_it_is_spent(made):
    few = made(epsilon=0.01).prepare()
    assert [line for line in what_noise_hides(few) if line.startswith("bounds: ") and "state data.ranges" in line]
    assert what_noise_hides(made(epsilon=1e3).prepare()) == []


def test_the_dry_run_knows_its_costs(made, tmp_path):
    experiment = made()
    setup, run = experiment.prepare(), experiment.run(tmp_path / "run")
    planned = planned_work(setup).costs
    for column in ("energy_j", "bytes", "delay_s", "clock_s"):
        assert run.summary[column] == pytest.approx(planned[column], rel=1e-9)
    without = made(data={"prelude": [], "exclude": ["c"]}, model={"name": "logistic"}).prepare()
    assert planned["energy_j"] > planned_work(without).costs["energy_j"]


def test_a_model_takes_inputs_as_they_are_in_the_file(made, tmp_path, table):
    run = made().run(tmp_path / "run")
    setup = made().prepare()
    raw = setup.given.test
    scores = run.model(torch.from_numpy(raw.x.astype(np.float64)))
    accuracy = float((scores.argmax(dim=1).numpy() == raw.y).mean())
    assert run.metrics["accuracy"].iloc[-1] == pytest.approx(accuracy, abs=1e-6)
    assert run.summary["prelude"] == [
        {"statistic": "bounds", "share": Bounds.share},
        {"statistic": "moments", "share": Moments.share},
    ]


@pytest.mark.process
@pytest.mark.parametrize(("step", "interval"), [("prelude", 0), ("prelude", 1), ("released", 0), ("ran", 1)])
def test_a_killed_run_goes_on_to_the_same_bits(made, tmp_path, step, interval):
    assert_outlives_a_kill(made(runtime={"checkpoint_every": 1}), tmp_path, step, interval)


def test_a_record_moves_a_statistic_by_its_sensitivity_at_most(made):
    """Two neighbouring data sets, traced without noise: one record becomes a null record, whose row is 0."""
    setup = made().prepare()
    for each, part in zip(setup.prelude, setup.statistics, strict=True):
        cloud, plan = plan_of(part)
        rows = [row for row in cloud.releases(plan) if row.observer == "edge"]
        x = torch.from_numpy(each.run.data.train.x[setup.data.order])
        moved = each.statistic.of(x).norm(dim=1).clamp(max=each.statistic.norm(each.run.data.shape)).max()
        largest = max(row.sensitivity for row in rows)
        assert float(moved) / int(setup.data.sizes.min()) <= largest * (1 + 1e-6)
        assert float(moved) / int(setup.data.sizes.min()) >= 0.5 * largest


OWN = """
import torch
from h2fdp.data import statistics

class Halves:
    share = 0.05
    def of(self, x):
        return FACTOR * torch.sign(x.flatten(1))
    def norm(self, shape):
        return shape[0] ** 0.5
    def use(self, average, noise_std, shape):
        import numpy as np
        return USED
"""


def own(tmp_path, factor="1.0", used="np.zeros(shape), np.full(shape, 2.0)"):
    (tmp_path / "mine.py").write_text(OWN.replace("FACTOR", factor).replace("USED", used))
    return f"{tmp_path}/mine:Halves"


def test_a_statistic_of_ones_own_is_cut_to_its_norm(made, tmp_path):
    averages = {}
    for factor in ("1.0", "100.0"):
        part = own(tmp_path / "x", factor) if (tmp_path / "x").mkdir(exist_ok=True) is None else ""
        setup = made(data={"prelude": ["bounds", part], "exclude": ["c"]}).prepare()
        averages[factor] = []
        with_prelude(setup, averages[factor])
        assert setup.prelude[1].statistic.name.endswith("mine:Halves")
    assert averages["1.0"][1].numpy() == pytest.approx(averages["100.0"][1].numpy(), abs=1e-6)


def test_wrong_answers_of_ones_own_are_said(made, tmp_path):
    part = own(tmp_path, used="np.zeros(2)")
    with pytest.raises(UserError, match="two arrays of shape"):
        made(data={"prelude": ["bounds", part], "exclude": ["c"]}).prepare()
    with pytest.raises(UserError, match="statistic"):
        made(data={"prelude": "medians"})


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        ("x.sum() *", "a record's row depends on the other records"),
        ("(len(SEEN) + (SEEN.append(0) or 1)) *", "the same rows at each call"),  # of how many others it has seen
    ],
)
def test_a_statistic_that_peeks_at_other_records_is_refused(made, tmp_path, factor, why):
    part = own(tmp_path, factor=f"{factor} 1.0", used="np.zeros(shape), np.ones(shape)")
    (tmp_path / "mine.py").write_text("SEEN = []\n" + (tmp_path / "mine.py").read_text())
    with pytest.raises(UserError, match=re.escape(why)):
        made(data={"prelude": ["bounds", part], "exclude": ["c"]}).prepare()


def test_a_statistic_sees_images_as_a_model_does_and_these_are_standardised_by_it(tmp_path):
    images = {"name": "digits", "partition": "iid", "prelude": [own(tmp_path, used="np.zeros(shape), np.ones(shape)")]}
    network = {"edges": [{"name": "e-{i}", "repeat": 3, "devices": {"count": 4}}]}
    given = {"data": images, "model": "softmax", "epsilon": EPSILON, "training": SHORT, "method": "h2fdp", **ACCOUNT}
    setup = Experiment(network, **given).prepare()
    seen, scaling = with_prelude(setup, []).data, setup.data.scaling
    assert scaling.divisor == 16.0
    for found, stored in ((seen.train.x, setup.data.train.x), (seen.test.x, setup.data.test.x)):
        np.testing.assert_allclose(found, stored * scaling.scale + scaling.shift, atol=1e-6)


def test_moments_are_of_numbers_alone_and_categories_have_a_public_length(table, made, tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.read_csv(table).assign(job=rng.choice([f"job {each}" for each in range(90)], ROWS), site="north")
    frame.loc[::3, "site"] = "south"
    frame.to_csv(tmp_path / "t.csv", index=False)
    stated = {"path": str(tmp_path / "t.csv"), "categories": {"site": ["north", "south"]}}
    setup = made(data=stated).prepare()
    assert [part.initial.numel() for part in setup.statistics] == [3 * 109, 2 * 4]  # a, b, c; and age
    assert [part.config.training.clip_norm for part in setup.statistics] == [3**0.5, 2.0]
    x, columns = with_prelude(setup, []).data.train.x, np.array(setup.data.columns.names)
    for each, width in (("job", 256), ("site", 2)):
        of_each = x[:, columns == each]
        assert of_each.shape[1] == width
        np.testing.assert_allclose(np.linalg.norm(of_each, axis=1), 3, rtol=1e-5)
    alone = {**stated, "exclude": ["a", "b", "c", "age"], "ranges": {}}
    words = made(data=alone).prepare()
    assert not words.prelude  # there is nothing to release
    np.testing.assert_allclose(np.linalg.norm(words.data.train.x, axis=1), 18**0.5, rtol=1e-5)
    with pytest.raises(UserError, match=r"no column is left to moments.*expected a list without moments"):
        made(data={**alone, "prelude": ["moments"]}).prepare()


WRONG = {
    "more than the budget": ({"prelude": ["moments"] * 13}, "104% of the privacy budget together"),
    "all of the budget": ({"prelude": ["bounds"] * 20}, "100% of the privacy budget together"),
    "bounds of no column": (
        {"prelude": ["bounds", "moments"], "ranges": {each: [-1e5, 1e5] for each in ("a", "b", "age")}},
        "expected a list without bounds",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_released_is_said(made, what):
    data, why = WRONG[what]
    with pytest.raises(UserError, match=re.escape(why)):
        made(data={"exclude": ["c"], **data}).prepare()


def test_a_statistic_of_which_nothing_arrives_is_refused(made):
    with pytest.raises(UserError, match="no upload of bounds arrives"):
        made(faults={"edge_outage": {"probability": 0.8}}, training={"extends": "auto", "intervals": 8}).prepare()


def test_noise_that_32_bits_cannot_hold_is_refused_before_a_release(made, tmp_path):
    (part := tmp_path / "mine.py").write_text(OWN.replace("FACTOR", "1e-42").replace("shape[0] ** 0.5", "1e-42"))
    part.write_text(part.read_text().replace("USED", "np.zeros(shape), np.ones(shape)"))
    with pytest.raises(UserError, match="outside the range of 32-bit numbers"):
        made(data={"prelude": [f"{tmp_path}/mine:Halves"], "exclude": ["c"]}).prepare()


@pytest.mark.process
def test_inputs_that_differ_by_less_than_32_bits_show_are_other_data(made, tmp_path):
    """What a statistic makes of them may differ by deviations: under the same noise they must not come again."""
    table = tmp_path / "t.csv"

    def write(step):
        rows = [f"{1.7e9 + step * row % 31},{row % 2}" for row in range(96)]
        table.write_text("\n".join(["t,label", *rows]))

    write(1)
    part = own(tmp_path, used="np.full(shape, 1.7e9), np.full(shape, 10.0)")
    experiment = made(data={"path": str(table), "prelude": [part], "ranges": {}}, runtime={"checkpoint_every": 1})
    killed_at(experiment, tmp_path / "run", "released", 1)
    write(7)
    with pytest.raises(UserError, match="data changed since it began"):
        resume(tmp_path / "run")


READS = """
import subprocess
import torch

class Read:
    share = 0.05
    def of(self, x):
        return float(subprocess.check_output(["cat", "FILE"])) * torch.sign(x)
    def norm(self, shape):
        return shape[0] ** 0.5
    def use(self, average, noise_std, shape):
        return average, torch.ones(shape).numpy()
"""


@pytest.mark.process
def test_a_statistic_that_comes_out_otherwise_under_the_same_noise_is_written_nowhere(made, tmp_path):
    (tmp_path / "number").write_text("1.0")
    (tmp_path / "mine.py").write_text(READS.replace("FILE", str(tmp_path / "number")))
    stated = {"prelude": [f"{tmp_path}/mine:Read", "moments"], "exclude": ["c"]}
    run = tmp_path / "run"
    killed_at(made(data=stated), run, "prelude", 1)
    rows = len((run / "privacy.jsonl").read_text())
    (tmp_path / "number").write_text("0.5")
    before = json.loads((run / "summary.json").read_text())["standardized_by"]
    with pytest.raises(UserError, match="a statistic of the prelude did not come out as it did before"):
        resume(run)
    assert json.loads((run / "summary.json").read_text())["standardized_by"] == before
    assert len((run / "privacy.jsonl").read_text()) == rows


CAR = "interval,device,edge\n1,e-1/1,e-2\n"
# What a run is -> why a stated prelude is refused, and `auto` has none; empty where it has one.
COMBINATIONS = {
    "a tree of two tiers": ({"deep": True}, ""),
    "relays": ({"trust": "sum"}, ""),
    "secure sums": ({"trust": "secure"}, ""),
    "integers": ({"trust": "secure", "method": {"extends": "h2fdp", "privacy": {"secure_sum": {"rounding": 24}}}}, ""),
    "noise at steps": ({"method": {"extends": "h2fdp", "privacy": {"noise": "steps"}}}, ""),
    "a star": ({"method": "fedavg-dp"}, ""),
    "devices as the unit": ({"protects": "device", "epsilon": 100.0}, ""),
    "faults": ({"faults": {"device_dropout": 0.1}}, ""),
    "compression": ({"compression": {"device": {"quantise": 8}}}, ""),
    "replace": ({"adjacency": "replace"}, ""),
    "add-remove": ({"adjacency": "add-remove"}, ""),
    "turns": ({"trust": "edges", "training": SHORT | {"device_turns": 2}}, ""),
    "correlated noise": ({"trust": "edges", "correlated": {"kind": "banded-inverse", "bands": 2}}, ""),
    "scaffold": ({"method": {"extends": "h2fdp", "server": {"name": "adam"}}}, ""),
    "buffers": ({"method": {"extends": "h2fdp", "schedule": {"name": "buffered"}}}, "under schedule buffered"),
    "control": ({"control": {"joules": 5.0}}, "under schedule h2fdp"),
    "devices that move": ({"mobility": {"trace": "car.csv"}}, "where devices move"),
    "batteries": ({"devices": {"battery_j": 5.0}}, "under batteries"),
    "liars": ({"adversaries": {"devices": 0.2, "attack": "sign-flip"}}, "among adversaries"),
    "medians of edge servers": (
        {"method": {"extends": "h2fdp", "aggregation": {"device": "average", "edge": "median"}}},
        "where nodes see each upload",
    ),
    "medians": ({"method": {"extends": "h2fdp", "aggregation": "median"}}, "where nodes see each upload"),
    "a formula": ({"calibration": "paper"}, "by the paper's formulas"),
    "public records": ({"data": {"public": 0.1}}, "data.public"),
    "a perturbed output": ({"method": {"extends": "fedavg-dp", "privacy": "output"}}, "under privacy"),
}


@pytest.mark.parametrize("what", COMBINATIONS)
def test_what_it_goes_with(made, tmp_path, what):
    settings, why = COMBINATIONS[what]
    settings, stated = dict(settings), {"prelude": ["bounds", "moments"], "exclude": ["c"]}
    own = settings.pop("data", {})
    if "mobility" in settings:
        (tmp_path / "car.csv").write_text(CAR)
        settings["mobility"] = {"trace": str(tmp_path / "car.csv")}
    if why:
        with pytest.raises(UserError, match=re.escape(why)):
            made(data=own | stated, **settings).prepare()
        assert not made(data=own | {"exclude": ["c"]}, **settings).prepare().prelude
        return
    run = made(data=own | stated, **settings).run(tmp_path / "run")
    assert {each["interval"] for each in ledger(run)} >= {-1, 0, 1}
    reached = [each["pld"] for each in run.summary["privacy"]["worst"].values() if each["pld"] is not None]
    assert max(reached) <= settings.get("epsilon", EPSILON)
    assert max(reached) == pytest.approx(settings.get("epsilon", EPSILON), rel=0.05)
    x = after(made(data=own | stated, **settings).prepare(), []).given.train.x
    mean, deviation = (np.array(run.summary["standardized_by"][key]) for key in ("mean", "deviation"))
    assert (np.abs(mean - x.mean(axis=0)) < 2 * x.std(axis=0) + deviation).all()


@pytest.mark.ray
def test_hosts_of_ray_train_on_the_same_bits(made, tmp_path):
    alone = made().run(tmp_path / "alone")
    spread = made(runtime={"backend": "ray", "hosts": 2}).run(tmp_path / "spread")
    assert torch.equal(alone.model.state_dict()["model.1.weight"], spread.model.state_dict()["model.1.weight"])
    assert ledger(alone) == ledger(spread)


def test_an_audit_trains_on_what_the_prelude_leaves(made):
    found = audit(made("edges").prepare(), "cloud", 16, noise_scale=1e-3)
    assert found.right == found.guesses > 0


def test_auto_takes_the_mean_off_the_features_of_images(made, tmp_path):
    images = {"name": "digits", "partition": "iid"}
    network = {"edges": [{"name": "e-{i}", "repeat": 3, "devices": {"count": 4}}]}
    run = Experiment(network, data=images, model="auto", epsilon=2.0, training=SHORT, **ACCOUNT)
    run = run.run(tmp_path / "run")
    assert run.summary["prelude"] == [{"statistic": "mean", "share": Mean.share}]
    assert {each["interval"] for each in ledger(run)} == {0, 1, 2, 3}
    assert run.summary["standardized_by"]["mean"][-1] == 0.0


@pytest.fixture
def houses(made, tmp_path):
    """Prices that columns of unlike scales explain to four fifths."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(2400, 4))
    price = 3000 + 800 * (z @ [0.6, -0.5, 0.5, 0.37] + 0.5 * rng.normal(size=2400))
    frame = pd.DataFrame((z + 1.0) * [1e4, 1e-3, 3.0, 50.0], columns=list("abcd")).assign(price=price)
    frame.to_csv(tmp_path / "houses.csv", index=False)

    def experiment(**data):
        own = {"name": "table", "path": str(tmp_path / "houses.csv"), "label": "price", "task": "regression"}
        network = {"edges": [{"name": "e-{i}", "repeat": 3, "devices": {"count": 4}}]}
        given = {**own, "partition": "iid", "test": 0.25, **data}
        return Experiment(network, data=given, model="auto", epsilon=EPSILON, training={"extends": "auto"}, **ACCOUNT)

    return experiment


def test_real_values_need_no_range(houses, tmp_path):
    run, setup = houses().run(tmp_path / "run"), houses().prepare()
    y = setup.given.train.y[setup.given.order]
    assert run.summary["target"]["shift"] == pytest.approx(y.mean(), abs=0.3 * y.std())
    assert run.summary["target"]["scale"] == pytest.approx(y.std(), rel=0.3)
    assert run.summary["r2"] > 0.7
    assert len(run.summary["standardized_by"]["mean"]) == 4
    raw = torch.from_numpy(setup.given.test.x.astype(np.float64))
    error = run.model(raw)[:, 0].detach().numpy() - setup.given.test.y
    assert run.summary["rmse"] == pytest.approx(float(np.sqrt((error**2).mean())), rel=1e-3)


def test_public_test_records_give_the_scale_of_real_values(houses):
    setup = houses(test=None).prepare()
    assert not setup.prelude
    assert setup.data.target.shift == pytest.approx(setup.data.test.y.mean())
    assert setup.data.target.scale == pytest.approx(setup.data.test.y.std())


def test_without_a_prelude_devices_values_need_a_range(houses):
    with pytest.raises(UserError, match="real values need a public range"):
        houses(prelude=[]).prepare()
