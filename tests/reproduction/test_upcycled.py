"""The programs of Upcycled-FL's tables: who is held out, when seeds are enough, the user's files in LEAF's format."""

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from experiments.upcycled_page import TABLE_1, comparison_table, tally
from experiments.upcycled_rule import ended, half_width, seeds_afresh, seeds_needed, verdict
from experiments.upcycled_runs import DATA_SETS, Job, held_out, split_leaf
from experiments.upcycled_stored import UPCYCLED
from experiments.upcycled_table import GRIDS, afresh, differences_of, table
from h2fdp.network import Topology
from h2fdp.run.api import Experiment


def test_a_fifth_of_each_device_is_held_out_and_no_test_record_is_seen(tmp_path):
    devices = np.repeat([0, 1, 2], [4, 5, 11])
    x = np.arange(20.0)[:, None]
    np.savez(
        tmp_path / "all.npz", x_train=x, y_train=devices % 2, device_train=devices,
        x_test=x[:3] - 100, y_test=devices[:3], device_test=devices[:3],
    )  # fmt: skip
    with np.load(held_out(tmp_path / "all.npz", tmp_path / "half" / "all.npz")) as found:
        assert found["device_test"].tolist() == [1, 2, 2]
        assert found["x_test"][:, 0].tolist() == [8.0, 13.0, 18.0]
        np.testing.assert_array_equal(np.sort(np.concatenate([found["x_train"], found["x_test"]]), axis=0), x)


def test_seeds_are_enough_at_the_corrected_level():
    """Three seeds 2, 3, 4: t = 4.303 at 95 %, so half a length of 2.48; 8.860 at 98.75 %, so 5.12. Of eight seeds with
    four gains above and four below their mean by d, the deviation is 1.069 d and t 3.336: so 1.26 d."""
    assert half_width([2.0, 3.0, 4.0], 0.95) == pytest.approx(2.484, abs=1e-3)
    assert half_width([2.0, 3.0, 4.0]) == pytest.approx(8.860 / 3**0.5, abs=1e-3)
    assert half_width([1.0, -1.0] * 4) == pytest.approx(1.261, abs=1e-3)
    assert not ended([2.25, 0.25] * 4)
    assert ended([2.27, 0.27] * 4)
    assert not ended([0.4, -0.4] * 4)
    assert ended([0.39, -0.39] * 4)
    assert not ended([0.39, -0.39] * 3)  # fewer than a first look has


def test_a_comparison_that_has_ended_gets_no_more_seeds(tmp_path, monkeypatch):
    seen = []

    def accuracy(folder, job):
        """FedAvg gains a point under every seed; FedProx gains or loses ten."""
        gain = 1.0 if job.method == "fedavg" else 10.0 * (-1) ** job.seed
        return 50.0 + job.seed + (gain if "factor" in job.choice else 0.0)

    def answer(jobs, workers):
        seen.append(len(jobs))
        return {
            folder: {"rows": [{"accuracy": accuracy(folder, job) / 100}], "seconds": 0.0}
            for folder, job in jobs.items()
        }

    monkeypatch.setattr("experiments.upcycled_table.run_all", answer)
    monkeypatch.setattr("experiments.upcycled_table.commit_of", lambda folder: "no commit")
    cells = {("iid", method): {"step": 1.0} for method in ("fedavg", "fedprox")}
    choices = {"": cells, UPCYCLED: {cell: {**choice, "factor": 0.5} for cell, choice in cells.items()}}
    runs = table({"iid": tmp_path}, choices, tmp_path, 1, 0.9, 3)
    assert seen == [2 * 2 * 8, 2 * 16, 2 * 32]
    assert differences_of(runs, ("iid", "fedavg")) == pytest.approx([1.0] * 8)
    assert len(differences_of(runs, ("iid", "fedprox"))) == 32
    written = pd.read_csv(tmp_path / "upcycled.csv", comment="#", dtype={"data_set": str})
    assert len(written) == 2 * 8 + 2 * 32
    (one, other) = list(comparison_table(written, TABLE_1))[2:]
    assert "| +1.00 ± 0.00 | +0.77 | 8 | better |" in one
    assert "| 32 | open: about" in other
    assert tally(written) == "Of 2 comparisons: 1 better, 1 open."


@pytest.mark.parametrize("deviation", [0.05, 0.7, 3.0, 40.0])
def test_the_seeds_that_are_needed_are_the_fewest(deviation):
    count = seeds_needed(deviation)
    shape = np.resize([1.0, -1.0], count)
    gains = deviation * shape / shape.std(ddof=1)
    assert half_width(gains.tolist()) <= 0.5
    if count > 2:
        fewer = shape[1:] - shape[1:].mean()
        assert half_width((deviation * fewer / fewer.std(ddof=1)).tolist()) > 0.5


def test_what_all_rounds_leave_open_is_judged_by_new_seeds_alone(tmp_path, monkeypatch):
    """The first 64 gains deviate by 3 points around 0, as the first new ones do; what others say is another matter."""
    asked, open_until = [], [64]

    def answer(jobs, workers):
        asked.extend(job.seed for job in jobs.values())
        last = open_until[0]
        return {
            folder: {"rows": [{"accuracy": (50.0 + gain(job.seed, last) * ("factor" in job.choice)) / 100}],
                     "seconds": 0.0}
            for folder, job in jobs.items()
        }  # fmt: skip

    def gain(seed, last):
        return 3.0 * (-1) ** seed if seed <= last else 2.0

    monkeypatch.setattr("experiments.upcycled_table.run_all", answer)
    monkeypatch.setattr("experiments.upcycled_table.commit_of", lambda folder: "now")
    runs = {("iid", kind + "fedprox", seed): 50.0 + 3.0 * (-1) ** seed * bool(kind)
            for kind in ("", UPCYCLED) for seed in range(1, 65)}  # fmt: skip
    runs |= {("iid", kind + "fedavg", seed): 50.0 + bool(kind) for kind in ("", UPCYCLED) for seed in range(1, 5)}
    cells = {("iid", method): {"step": 1.0} for method in ("fedavg", "fedprox")}
    choices = {"": cells, UPCYCLED: {cell: {**choice, "factor": 0.5} for cell, choice in cells.items()}}
    gains = differences_of(runs, ("iid", "fedprox"))
    assert verdict(gains).startswith("open")
    found = afresh({"iid": tmp_path}, choices, tmp_path, 1, 0.9, runs)
    new = seeds_afresh(gains)
    assert sorted(asked) == sorted([1, 1, *new, *new])  # the first again, which must be what it was
    assert min(new) == 65
    assert len(new) == pytest.approx(1.2 * seeds_needed(float(np.std(gains, ddof=1))), abs=1)
    assert differences_of(found, ("iid", "fedprox")) == pytest.approx([2.0] * len(new))
    assert {seed for _, method, seed in found if method == "fedprox"} == set(new)
    assert differences_of(found, ("iid", "fedavg")) == [1.0] * 4
    written = pd.read_csv(tmp_path / "upcycled.csv", comment="#", dtype={"data_set": str})
    assert f"| {len(new)} new | better |" in list(comparison_table(written, TABLE_1))[3]
    asked.clear()
    assert afresh({"iid": tmp_path}, choices, tmp_path, 1, 0.9, found) == found
    assert not asked
    # The new ones leave it open, too: others, beyond them, judge it alone.
    wide = {("iid", kind + "fedprox", seed): 50.0 + 3.0 * (-1) ** seed * bool(kind)
            for kind in ("", UPCYCLED) for seed in range(65, 165)}  # fmt: skip
    open_until[0] = 164
    again = afresh({"iid": tmp_path}, choices, tmp_path, 1, 0.9, wide)
    others = seeds_afresh(differences_of(wide, ("iid", "fedprox")), 164)
    assert sorted(asked) == sorted([65, 65, *others, *others])
    assert {seed for *_, seed in again} == set(others) == set(range(165, 165 + len(others)))
    with pytest.raises(SystemExit, match="make all runs again"):
        afresh({"iid": tmp_path}, choices, tmp_path, 1, 0.9, wide | {("iid", "fedprox", 65): 51.0})


def leaf_files(folder, users, record):
    """Two files of training users and one of tests, as LEAF's preprocessing writes them."""
    names = [f"u{n:03d}" for n in range(users)]
    for part, count, cuts in (("train", 6, (0, users // 2, users)), ("test", 2, (0, users))):
        (folder / part).mkdir(parents=True)
        for number, (first, last) in enumerate(pairwise(cuts)):
            data = {name: {"x": [record(n) for n in range(count)], "y": [n % 2 for n in range(count)]}
                    for name in names[first:last]}  # fmt: skip
            text = {"users": names[first:last], "num_samples": [count] * (last - first), "user_data": data}
            (folder / part / f"all_data_{number}_{part}.json").write_text(json.dumps(text))
    return folder


RECORDS = {
    "femnist": lambda n: [n / 10] * 784,
    "sent140": lambda n: ["0", "1", "Mon", "NO_QUERY", "who", f"so {n} good"],
}


@pytest.mark.parametrize("name", ["femnist", "sent140"])
def test_the_users_own_leaf_files_are_a_column_of_the_tables(tmp_path, name):
    devices = DATA_SETS[name].devices
    files = leaf_files(tmp_path / "files", devices, RECORDS[name])
    topology = Topology.regular(edges=1, devices=devices, trust=0.0, seed=1)
    half = split_leaf(files, tmp_path / "half")
    for folder, records, tests in ((files, 6, 2), (half, 5, 1)):
        job = Job(name, "fedprox", {**GRIDS["fedprox"][0], "factor": 0.5}, 1, folder)
        run = Experiment(topology=topology, name="upcycled", **job.experiment).prepare()
        assert run.data.sizes.tolist() == [records] * devices
        assert np.bincount(run.data.test_owners).tolist() == [tests] * devices
        assert run.config.training.intervals == DATA_SETS[name].intervals
