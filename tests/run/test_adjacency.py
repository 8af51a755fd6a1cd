"""Neighbours by null record, by a record that is missing, by another record: in whole runs, and in what is refused."""

import json

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms import Aggregation
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.run import RunPrivacy
from h2fdp.run.forecast import noise_on_model, planned_accounts
from h2fdp.run.privacy import SeveralRuns

CLIP, STEPS, DELTA = 2.0, 3, 1e-5
DP_SGD = {"extends": "h2fdp", "privacy": "dp-sgd", "topology": "star"}


class BySize(Aggregation):
    def weights(self, uploads):
        return uploads.records / uploads.records.sum()


def experiment(adjacency="null-record", **settings):
    shared = {"method": DP_SGD, "calibration": "accounted", "intervals": 2, "local_steps": STEPS, "clip_norm": CLIP}
    defaults = {"sampling_rate": 0.3, "epsilon": 2.0, "accountant": "pld", "adjacency": adjacency}
    return Experiment(
        topology=Topology.regular(edges=1, devices=2), data="digits", **{**shared, **defaults, **settings}
    )


def rows_of(run):
    return [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]


def test_a_ledger_states_that_a_record_is_replaced_and_its_account_is_the_runs(tmp_path):
    run = experiment("replace").run(tmp_path / "run")
    rows = rows_of(run)
    assert {row["adjacency"] for row in rows} == {"replace"}
    assert {row["sensitivity"] for row in rows} == {2 * CLIP}
    kind = ReleaseType(rows[0]["noise_std"] / (2 * CLIP), 1, rows[0]["sampling_rate"], replaced=True)
    expected = ACCOUNTANTS["pld"].epsilon({kind: 2 * STEPS}, DELTA)
    assert RunPrivacy(run.directory).epsilon("cloud", "pld") == pytest.approx(expected, rel=1e-4)
    assert 1.9 < expected <= 2.0
    assert any(note.startswith("adjacency replace") for note in RunPrivacy(run.directory).notes)


def test_without_sampling_replacing_takes_exactly_twice_the_noise():
    null, replaced = (
        noise_on_model(experiment(each, sampling_rate=1.0).prepare()) for each in ("null-record", "replace")
    )
    assert replaced.noise_std == pytest.approx(2 * null.noise_std, rel=2e-3)


def test_a_missing_record_is_a_null_record_where_all_divisors_are_public():
    null, missing = (experiment(each).prepare() for each in ("null-record", "add-remove"))
    assert noise_on_model(null) == noise_on_model(missing)
    assert [each.composition for each in planned_accounts(missing).classes("cloud")] == [
        each.composition for each in planned_accounts(null).classes("cloud")
    ]


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"method": "hfl-dp", "clip_scope": "record", "local_steps": 1}, 2),
        ({"method": "hfl-dp", "sampling": "fixed"}, 1),
        ({"method": "hfl-dp"}, 2),
        ({"method": {"privacy": "output"}}, 1),
        ({"method": {"privacy": "central"}, "aggregations_per_interval": 0}, 2),
    ],
)
def test_every_bound_has_its_factor(settings, factor):
    sensitivities = []
    for adjacency in ("null-record", "replace"):
        setup = experiment(adjacency, calibration="paper", **settings).prepare()
        cloud = setup.cloud({})
        sensitivities.append(np.array([row.sensitivity for row in cloud.releases(cloud.plan(0))]))
    np.testing.assert_allclose(sensitivities[1], factor * sensitivities[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"adjacency": "add-remove", "weights": "by-size"}, "or training.weights uniform, found add-remove"),
        ({"adjacency": "add-remove", "sampling": "fixed"}, "or training.sampling poisson, found fixed"),
        (
            {"adjacency": "add-remove", "method": {"extends": "h2fdp", "aggregation": BySize()}},
            "your aggregation knows numbers of records",
        ),
    ],
)
def test_what_has_no_such_account_is_refused(settings, words):
    with pytest.raises(UserError, match=f"privacy.adjacency: .*{words}"):
        experiment(**settings)


def test_runs_whose_neighbours_differ_are_not_composed(tmp_path):
    runs = [experiment(each).run(tmp_path / each).directory for each in ("null-record", "replace")]
    with pytest.raises(UserError, match="another one in others"):
        SeveralRuns(runs)
    together = SeveralRuns([runs[1], experiment("replace", seed=2).run(tmp_path / "more").directory])
    assert together.statement(["pld"])["worst"]["cloud"]["pld"] > 2.0
