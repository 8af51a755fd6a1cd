"""Whole runs with liars: none are today's bits, false records, backdoors that open, accounts that hold."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.audit.run_audit import audits
from h2fdp.integrity import check
from h2fdp.network import Adversaries
from h2fdp.network.adversaries import Alie, Backdoor, LabelFlip, Scaling, SignFlip
from h2fdp.privacy.releases import rows_in
from h2fdp.run import recorders
from h2fdp.run.false_records import triggered
from h2fdp.run.loop import resume_run, start_run
from tests.runtime.runs import assert_equal, recorded

HONEST = Topology.regular(edges=3, devices=4, trust=0.0, seed=1)


def lying(attack=None, devices=(), edges=(), tree=HONEST):
    return replace(tree, adversaries=Adversaries(attack or SignFlip(), tuple(devices), tuple(edges)))


def small(tree=HONEST, **settings):
    defaults = {"method": "h2fdp", "intervals": 3, "local_steps": 2, "batch_size": 4, "aggregate_every": 1, "seed": 4}
    defaults |= {"epsilon": 20.0, "noise_key": "seed", "model": "softmax", "weights": "uniform", "accountant": "pld"}
    return Experiment(topology=tree, data="digits", **{**defaults, **settings})


def test_no_liars_and_one_rule_for_both_links_are_the_run_without(tmp_path):
    written = {
        "name": "net",
        "trust": {"probability": 0.5},
        "edges": [{"name": "e-{i}", "repeat": 3, "devices": {"count": 2}}],
    }
    plain = small(written).run(tmp_path / "plain")
    none = small(written | {"adversaries": {"devices": 0, "edges": 0.0, "attack": "alie"}}).run(tmp_path / "none")
    assert_equal(recorded(plain), recorded(none))
    both = {"extends": "h2fdp", "aggregation": {"device": "average", "edge": "average"}}
    assert_equal(recorded(plain), recorded(small(written, method=both).run(tmp_path / "both")))


def test_a_label_flip_turns_all_labels_of_liars_and_no_other(tmp_path):
    setup, honest = small(lying(LabelFlip(), ["edge-2/1", "edge-3/4"])).prepare(), small().prepare()
    for device, name in enumerate(HONEST.device_names()):
        own, true = (each.data.device(device).y for each in (setup, honest))
        assert np.array_equal(own, 9 - true if name in ("edge-2/1", "edge-3/4") else true)
    assert np.array_equal(setup.data.test.y, honest.data.test.y)


def test_a_backdoor_is_a_square_in_half_of_a_liars_images():
    setup, honest = small(lying(Backdoor(target=7, records=0.5), ["edge-1/2"])).prepare(), small().prepare()
    for device in range(HONEST.devices):
        own, true = (each.data.device(device) for each in (setup, honest))
        changed = (own.x != true.x).reshape(len(own), -1).any(axis=1) | (own.y != true.y)
        if device != 1:
            assert not changed.any()
            continue
        square = (own.x[:, :, -3:, -3:] == 16).all(axis=(1, 2, 3))
        assert int(square.sum()) == -(-len(own) // 2)
        assert (own.y[square] == 7).all()
        assert np.array_equal(own.y[~square], true.y[~square])
        rest = own.x.copy()
        rest[:, :, -3:, -3:] = true.x[:, :, -3:, -3:]
        assert np.array_equal(rest, true.x)
    opening = triggered(setup.drawn.adversaries, setup)
    assert len(opening) == (honest.data.test.y != 7).sum()
    assert set(opening.y.tolist()) == {7}


@pytest.mark.parametrize("model", ["softmax", {"name": "public-features", "size": 64}])
def test_a_backdoor_opens_where_it_is_learned(tmp_path, model):
    """Without noise, one liar of four: its success is far above what the same images are called without a liar."""
    given = {"method": "hfl", "intervals": 30, "model": model, "step_size": 1.0, "local_steps": 4, "clip_norm": None}
    tree = Topology.regular(edges=1, devices=4, trust=0.0)
    run = small(lying(Backdoor(target=7, records=0.5, factor=3.0), ["edge-1/1"], tree=tree), partition="iid", **given)
    found = run.run(tmp_path / "run")
    never = small(lying(Backdoor(target=7, records=0.01), ["edge-1/1"], tree=tree), partition="iid", **given)
    last, other = (each.metrics.iloc[-1] for each in (found, never.run(tmp_path / "never")))
    assert last["backdoor_accuracy"] > 0.6 > 0.3 > other["backdoor_accuracy"]
    assert last["accuracy"] > 0.7


def test_backdoors_are_of_images():
    with pytest.raises(UserError, match=r"attack\.target: expected a label below 10, found 12"):
        small(lying(Backdoor(target=12), ["edge-1/1"])).prepare()


@pytest.mark.parametrize("tree", [lying(devices=["edge-1/2", "edge-2/1"]), lying(Scaling(), edges=["edge-3"])])
def test_accounts_meet_the_target_beside_liars_and_a_run_is_whole(tmp_path, tree):
    run = small(tree, calibration="accounted", epsilon=2.0).run(tmp_path / "run")
    check(run.directory)
    worst = max(each["pld"] for each in run.summary["privacy"]["worst"].values() if each["pld"] is not None)
    assert 1.9 < worst <= 2.0
    assert any(note.startswith("adversaries: these epsilons are of honest devices") for note in run.summary["notes"])
    rows = [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]
    if tree.adversaries.devices:
        covered = [part for row in rows if row["edge"] == "edge-1" for part in rows_in(row["devices"])]
        assert {row for part in covered for row in range(part.start, part.stop)} == {0, 2, 3}


@pytest.mark.parametrize("attack", [LabelFlip(), Alie()])
def test_a_run_that_was_interrupted_goes_on_among_the_same_liars(tmp_path, attack):
    """What it reads is its own directory, whose topology names those that were drawn."""
    tree = lying(attack, devices=["edge-1/2", "edge-3/3"])
    whole = small(tree, intervals=6).run(tmp_path / "whole")

    def stop(reached, number):
        if (reached, number) == ("ran", 4):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorders, "listener", stop)
        with contextlib.suppress(KeyboardInterrupt):
            start_run(small(tree, intervals=6, runtime={"checkpoint_every": 2}).prepare(), tmp_path / "run")
    resume_run(Experiment.of_run(tmp_path / "run").prepare, tmp_path / "run")
    for name in ("privacy.jsonl", "model.pt", "devices.parquet"):
        assert (tmp_path / "run" / name).read_bytes() == (whole.directory / name).read_bytes(), name


def test_audits_refuse_liars():
    with pytest.raises(UserError, match="audits require honest nodes"):
        audits(small(lying(devices=["edge-1/2"])).prepare(), ("cloud",), 10)
