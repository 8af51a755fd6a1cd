"""The noises and the ledger of whole runs against formulas written out here, for every way of weighing and sampling.

Everything goes through `Experiment`, so that what is tested is what a run builds: the calibration with its counts of
releases, the plan, the nodes, the ledger.
"""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import h2fdp.privacy.mechanisms.pipeline
import h2fdp.privacy.mechanisms.stages
import h2fdp.privacy.vectors
import h2fdp.protocol.cloud
from h2fdp import Experiment, Topology
from h2fdp.costs.traffic import Tasks
from h2fdp.privacy.places import Segment
from h2fdp.protocol import Order
from h2fdp.streams import Streams
from tests.networks import placed

SIZES = {"A": 4, "B": 3}  # A is trusted, B is not
NETWORK = Topology(
    "t", tuple(placed(name, name == "A", np.full(size, 10.0), np.full(size, 24.0)) for name, size in SIZES.items())
)
EPSILON, DELTA, CLIP, STEP, INTERVALS = 3.0, 1e-4, 0.7, 0.3, 2
FAULTS = {
    "device_dropout": 0.3,
    "straggler": {"probability": 0.4, "fraction": [0.1, 0.9]},
    "edge_outage": {"probability": 0.15, "intervals": 2},
}
FAULTY_INTERVALS = 8
BATTERIES = {"A": [7.5, 22.0, 60.0, 60.0], "B": [60.0, 8.0, 30.0]}  # an interval takes 7 steps of 1 J, and messages
LASTS = {"A": [1, 3, 8, 8], "B": [8, 1, 4]}
STREAMS = Streams(seed=4)
SEGMENTS = ((3, 3, "local"), (3, 6, "local"), (1, 7, "global"))  # steps, end, kind of 7 local steps, every 3


def experiment(**settings):
    data = {"name": "digits", "partition": {"dirichlet": 0.5, "sizes": {"lognormal": 1.0}}}
    defaults = {
        "method": "h2fdp",
        "intervals": INTERVALS,
        "local_steps": 7,
        "aggregate_every": 3,
        "epsilon": EPSILON,
        "delta": DELTA,
        "clip_norm": CLIP,
        "step_size": STEP,
        "seed": 4,
    }
    return Experiment(data=data, **{"topology": NETWORK, **defaults, **settings})


def numbers(ranges):
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def with_faults(interval, edge, faults):
    """For each aggregation the devices whose uploads arrive, and their steps: the faults of the manual, by hand."""
    attending = [{} for _ in SEGMENTS]
    begun = np.random.Generator(np.random.Philox(key=STREAMS.key(edge, "outage"))).random(interval)
    if (begun[-2:] < faults["edge_outage"]["probability"]).any():  # outages last two intervals
        return attending
    draws = STREAMS.open(edge, "faults", interval - 1).random((SIZES[edge], 4))
    for device, (drops, when, slow, part) in enumerate(draws.tolist()):
        last = int(when * 7) if drops < faults["device_dropout"] else 7
        steps = 1 + int(part * 6) if slow < faults["straggler"]["probability"] else 7  # 0.1 * 7 to 0.9 * 7: 1 .. 6
        done = 0
        for number, (_, end, _) in enumerate(SEGMENTS):
            since, done = steps * end // 7 - done, steps * end // 7
            if end <= last and since:
                attending[number][device] = since
    return attending


def expected(records, rates, attendances, weights, sensitivity, local):
    """The noise of every release; the ledger: (interval, slot, kind, edge, device, observer) -> values."""
    noises, ledger = [], {}
    intervals = max(interval for interval, _ in attendances)
    for interval, edge in itertools.product(range(1, intervals + 1), SIZES):
        eta = STEP / math.sqrt(interval)
        for (planned, end, kind), attending in zip(SEGMENTS, attendances[interval, edge], strict=True):
            if not attending:
                continue
            active, done = np.array(list(attending)), np.array(list(attending.values()))
            share = records[edge][active] if weights == "by-size" else np.ones(len(active))
            share, rate = share / share.sum(), rates[edge][active]
            releases = 2 * intervals if kind == "local" else intervals
            formula = math.sqrt(2) * math.sqrt(releases * math.log(1 / DELTA)) / EPSILON
            own = formula * 2 * eta * (7 if sensitivity == "paper" else planned) * CLIP
            moved = 2 * eta * done * CLIP
            place = (interval, 7 * (interval - 1) + end, kind, edge)
            if edge == "A" and not local:
                whole = peers = np.full(len(active), own * max(share * rate))
                noises.append(whole[0])
            else:
                single = own * rate
                noises += single.tolist()
                parts = (share * single) ** 2
                whole = np.full(len(active), math.sqrt(parts.sum()))
                peers = np.array(
                    [
                        math.sqrt(
                            max(parts.sum() - max((each for j, each in enumerate(parts) if j != i), default=0.0), 0.0)
                        )
                        for i in range(len(active))
                    ]
                )
                for row, own_move, noise, steps, q in zip(active, moved, single, done, rate, strict=True):
                    ledger[(*place, row + 1, "edge")] = (own_move, noise, steps, q)
            columns = (active, moved * share, whole, peers, done, rate)
            for row, move, noise, known, steps, q in zip(*columns, strict=True):
                ledger[(*place, row + 1, "peer")] = (move, known, steps, q)
                for observer in ("cloud", "public"):
                    ledger[(*place, row + 1, observer)] = (move, noise, steps, q)
    return noises, ledger


def listen_below_the_cloud(monkeypatch, added):
    """Note the standard deviations of all Gaussian vectors that devices and edge servers add."""
    stages = h2fdp.privacy.mechanisms.stages
    original = stages.add_gaussian_noises

    def listening(vectors, noise_stds, keys):
        added.extend(noise_stds.tolist())
        return original(vectors, noise_stds, keys)

    for adding in (h2fdp.privacy.mechanisms.pipeline, stages, h2fdp.privacy.vectors):
        monkeypatch.setattr(adding, "add_gaussian_noises", listening)


@pytest.mark.parametrize(
    ("weights", "participation", "sensitivity", "sampling_rate", "method", "faults"),
    [
        *itertools.product(("uniform", "by-size"), (1.0, 0.5), ("paper", "tight"), (None, 0.1), ("h2fdp",), (None,)),
        ("by-size", 0.5, "tight", None, "hfl-dp", None),
        ("uniform", 1.0, "tight", None, "h2fdp", FAULTS),
        ("by-size", 1.0, "paper", None, "h2fdp", FAULTS),
        ("by-size", 1.0, "tight", None, "hfl-dp", FAULTS),
        ("by-size", 1.0, "tight", None, "h2fdp", BATTERIES),
        ("uniform", 1.0, "paper", None, "hfl-dp", BATTERIES),
    ],
)
def test_every_noise_and_every_row_of_a_run(
    tmp_path, monkeypatch, weights, participation, sensitivity, sampling_rate, method, faults
):
    added = []
    original = h2fdp.protocol.cloud.add_gaussian_noise

    def listening(vector, noise_std, generator, out=None):
        added.append(noise_std)
        return original(vector, noise_std, generator, out)

    listen_below_the_cloud(monkeypatch, added)
    monkeypatch.setattr(h2fdp.protocol.cloud, "add_gaussian_noise", listening)
    batches = {"batch_size": 6} if sampling_rate is None else {"sampling_rate": sampling_rate}
    if faults is BATTERIES:
        network = NETWORK.with_devices(joules_per_step=1.0, battery_j=np.concatenate([*BATTERIES.values()]))
        batches |= {"topology": network, "intervals": FAULTY_INTERVALS}
    elif faults:
        batches |= {"faults": faults, "intervals": FAULTY_INTERVALS}
    made = experiment(weights=weights, participation=participation, sensitivity=sensitivity, method=method, **batches)
    sizes = made.prepare().data.sizes
    records = {"A": sizes[:4], "B": sizes[4:]}
    rates = {
        edge: np.minimum(1, 6 / each) if sampling_rate is None else np.full(len(each), sampling_rate)
        for edge, each in records.items()
    }
    run = made.run(tmp_path / "run")
    found, taking_part = {}, {}
    for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
        for device in numbers(row["devices"]):
            key = (row["interval"], row["slot"], row["kind"], row["edge"], device, row["observer"])
            assert key not in found
            found[key] = (row["sensitivity"], row["noise_std"], row["steps"], row["sampling_rate"])
            taking_part.setdefault((row["interval"], row["edge"]), set()).add(device - 1)
            assert row["sampling"] == "poisson"
    if faults is BATTERIES:  # who died in interval k has rows of its k - 1 intervals alone, and others' noise is less
        attendances = {
            (interval, edge): [
                {row: steps for row, last in enumerate(LASTS[edge]) if interval <= last} for steps, _, _ in SEGMENTS
            ]
            for interval, edge in itertools.product(range(1, FAULTY_INTERVALS + 1), SIZES)
        }
    elif faults:
        places = itertools.product(range(1, FAULTY_INTERVALS + 1), SIZES)
        attendances = {place: with_faults(*place, faults) for place in places}
        assert any(not any(each) for each in attendances.values())  # an outage, and devices missing in a part
        assert any(0 < len(each[-1]) < len(each[0]) for each in attendances.values())
    else:
        attendances = {
            place: [dict.fromkeys(sorted(rows), steps) for steps, _, _ in SEGMENTS]
            for place, rows in taking_part.items()
        }
        for (_, edge), (first, *_) in attendances.items():
            assert len(first) == max(1, round(participation * SIZES[edge]))
    noises, ledger = expected(records, rates, attendances, weights, sensitivity, local=method == "hfl-dp")
    np.testing.assert_allclose(sorted(added), sorted(noises), rtol=1e-9)
    assert found.keys() == ledger.keys()
    keys = sorted(found)
    np.testing.assert_allclose([found[key] for key in keys], [ledger[key] for key in keys], rtol=1e-9)


@pytest.mark.parametrize("method", ["h2fdp", "hfl-dp"])
@pytest.mark.parametrize("edge", ["A", "B"])
def test_the_nodes_that_a_run_builds_add_the_noise_themselves(method, edge):
    """Chi-square on one upload of the group and on one of its edge server, at an error rate of 1e-6."""
    made = experiment(method=method, model={"name": "mlp", "hidden": 200}, batch_size=6).prepare()
    number, std = ("A", "B").index(edge), 0.5
    devices_add = method == "hfl-dp" or edge == "B"
    size, rows = made.initial.numel(), np.arange(SIZES[edge])
    order = Order(
        segment=Segment(0, 0, 1, "global"),
        rows=rows,
        levels=np.full(len(rows), std) if devices_add else np.empty(0),
    )
    upload = made.blueprint.device_group(number).train(made.initial, order).updates[0].double()
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], size)
    assert bool(low < float((upload**2).sum()) / std**2 < high) is devices_add
    assert torch.equal(upload, torch.zeros_like(upload)) is not devices_add
    plan = made.cloud(None).plan(0).subnets[edge]
    flat = replace(
        plan,
        at=Segment.row(0, 0, (1,), 0.0),
        tasks=Tasks.planned(plan.rows, (1,)),
        weights=plan.shares[None],
        reach=plan.shares[None],
        noise_std=np.full((1, len(rows) if devices_add else 1), std),
    )
    average = made.blueprint.edge_server(number).run_interval(made.initial, flat).update.double()
    scale = std * math.sqrt(float((plan.shares**2).sum())) if devices_add else std
    assert low < float((average**2).sum()) / scale**2 < high
