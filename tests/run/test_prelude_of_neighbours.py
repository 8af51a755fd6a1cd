"""What statistics before training tell of one record, by traced uploads of neighbouring data sets in random trees.

The statistics of two data sets that differ in one record are carried out without noise, and all that an observer
receives is compared: how far the record moves it, in units of the noise that is overheard by itself
(`tests.protocol.overhearing`). No row of the ledger may say less.
"""

import numpy as np
import pandas as pd
import pytest

import h2fdp.privacy.mechanisms.pipeline
import h2fdp.privacy.mechanisms.stages
import h2fdp.privacy.vectors
from h2fdp import Experiment
from h2fdp.protocol import DeviceGroup
from h2fdp.run.prelude import with_prelude
from tests.protocol.overhearing import Overheard, devices_of, listen, overheard
from tests.protocol.test_any_tree import Views, random_tree
from tests.protocol.test_relays import relays

COLUMNS, TREES = 3, 12
ADJACENCIES = ("replace", "null-record", "add-remove")
# A hundred times longer than it says.
TOO_LONG = """
import numpy as np, torch

class TooLong:
    share = 0.1
    def of(self, x):
        return 100 * x.nan_to_num(0.0)
    def norm(self, shape):
        return 1.0
    def use(self, average, noise_std, shape):
        return np.zeros(shape), np.ones(shape)
"""


def settings_of(number, tmp_path):
    rng = np.random.default_rng(number)
    tree = relays(2, 3, deep=number % 8 == 0) if number % 4 == 0 else random_tree(rng)
    (tmp_path / "mine.py").write_text(TOO_LONG)
    adjacency = ADJACENCIES[number // 3 % 3]
    weights = "uniform" if adjacency == "add-remove" else str(rng.choice(["uniform", "by-size"]))
    given = {"method": "h2fdp", "epsilon": 4.0, "adjacency": adjacency, "weights": weights, "model": "auto"}
    given |= {"calibration": "accounted", "accountant": "rdp", "noise_key": "seed"}
    return tree, given | {"training": {"extends": "auto", "intervals": 1}}, rng


def neighbours(tree, given, rng, tmp_path):
    """Two prepared runs whose data differ in a record of the first device, and that device."""
    owners = np.repeat(np.arange(tree.devices), 2 + rng.integers(0, 2, tree.devices))
    x = (10.0 ** rng.uniform(-3, 3, (len(owners), COLUMNS)) * rng.choice([-1, 1], (len(owners), COLUMNS))).astype("f4")
    names = np.array(tree.device_names())
    about = int(rng.integers(tree.devices))
    runs = []
    for other in (False, True):
        own = x.copy()
        if other:  # the farthest record there is, or one that counts for nothing
            own[np.flatnonzero(owners == about)[0]] = -1e3 if given["adjacency"] == "replace" else np.nan
        (folder := tmp_path / str(other)).mkdir()
        frame = pd.DataFrame(own, columns=list("abc")).assign(y=np.arange(len(own)) % 2, owner=names[owners])
        frame.to_csv(folder / "train.csv", index=False)
        frame.head(4).fillna(1.0).to_csv(folder / "test.csv", index=False)
        released = ["bounds", "moments", f"{tmp_path}/mine:TooLong"]
        data = {"name": "table", "path": str(folder), "label": "y", "classes": 2, "by": "owner", "prelude": released}
        runs.append(Experiment(tree, data=data, **given).prepare())
    # Of relays, the run's network is one edge server with all devices, in their order.
    return runs, [(subnet.name, row) for subnet in runs[0].topology.subnets for row in range(subnet.size)][about]


def without_noise(part):
    """What passes in the one interval of a statistic."""
    heard = Overheard()
    modules = (h2fdp.privacy.mechanisms.pipeline, h2fdp.privacy.mechanisms.stages, h2fdp.privacy.vectors)
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "add_gaussian_noises", lambda *_, **__: None)

        def group(number, name):
            return DeviceGroup(**vars(part.blueprint.device_group(number)))

        listen(part, patch, heard, group, part.initial.clone())
    return heard


def parts_of(run, averages):
    """The run of each statistic on this run's records, where those before it had these averages."""
    found = []
    for number in range(len(run.prelude)):
        parts = []
        with_prelude(run, averages[:number], lambda part, *_, kept=parts: kept.append(part))
        found.append(parts[0])
    return found


@pytest.mark.parametrize("number", range(TREES))
def test_no_record_moves_what_an_observer_has_further_than_the_ledger_says(number, tmp_path):
    tree, given, rng = settings_of(number, tmp_path)
    (one, other), device = neighbours(tree, given, rng, tmp_path)
    with_prelude(one, averages := [])
    largest = 0.0
    for part, beside in zip(parts_of(one, averages), parts_of(other, averages), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            noises = overheard(part, patch)
        here, there = without_noise(part), without_noise(beside)
        allowed = {}
        for row in noises.rows:
            if device in devices_of(row):
                allowed[row.observer] = allowed.get(row.observer, 0.0) + (row.sensitivity / row.noise_std) ** 2
        for observer, known, seen in sides(part, device):
            learned = squared(noises, [np.array(seen(each)) for each in (noises, here, there)], known)
            assert learned <= allowed.get(observer, 0.0) * (1 + 1e-5) + 1e-12, observer
            largest = max(largest, learned / allowed[observer] if learned else 0.0)
    assert largest > 0.3


def sides(part, device):
    """Observer, whose noise it knows, and which vectors it has of all that is overheard."""
    views = Views(part)
    for observer, node in views.outside_chain(device).items():
        yield observer, set(), lambda heard, node=node: heard.had_by(node)
    yield "cloud", set(), lambda heard: [*heard.received.get("cloud", ()), *heard.models]
    yield "public", set(), lambda heard: heard.models
    for node, known in views.peers(device):
        own = node in known
        yield (
            "peer",
            known,
            lambda heard, node=node, own=own: (
                heard.had_by(node) if own else [*heard.broadcasts.get(node, ()), *heard.models]
            ),
        )


def squared(noises, seen, known):
    """mu^2: how far vectors are moved together, in units of the noise that is not known."""
    made_of, here, there = seen
    hidden = [place for place, (node, _) in noises.noises.items() if node not in known]
    spread, moved = made_of[:, hidden], here - there
    telling = spread.any(axis=1) | moved.any(axis=1)
    solved, *_ = np.linalg.lstsq(spread[telling], moved[telling], rcond=1e-9)
    assert np.allclose(spread[telling] @ solved, moved[telling], atol=1e-5), "something is seen without any noise"
    return float((solved**2).sum())
