"""Devices selected by utility: by hand, by brute force, in the ledger, under an account and under a filter."""

import contextlib
import json
import math
import re
from collections import Counter

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Radio
from h2fdp.privacy.releases import rows_in
from h2fdp.run import recorders
from h2fdp.run.loop import resume_run, start_run
from h2fdp.schedules.schedule import IntervalObservation
from tests.networks import placed
from tests.protocol.test_any_tree import epsilon_of_gaussian

INTERVALS, DEVICES = 7, 5


def experiment(schedule, fading="rayleigh", participation=0.4, **settings):
    rng = np.random.default_rng(4)
    network = Topology(
        "uneven",
        tuple(placed(f"e{at}", at == 0, rng.uniform(5, 300, DEVICES).tolist(), [9.0] * DEVICES) for at in range(2)),
        Radio(fading=fading),
    )
    defaults = {
        "intervals": INTERVALS,
        "local_steps": 2,
        "aggregate_every": 1,
        "batch_size": None,
        "sampling_rate": 1.0,
        "epsilon": 20.0,
        "seed": 5,
        "calibration": "accounted",
        "accountant": "pld",
        "model": "softmax",
        "training": "paper",
        "participation": participation,
    }
    method = {"extends": settings.pop("method", "h2fdp"), "schedule": schedule, **settings.pop("axes", {})}
    return Experiment(network, "digits", method=method, **{**defaults, **settings})


def utility(channel=0.0, age=0.0, norm=0.0):
    return {"name": "experiments.parts.utility:Utility", "channel": channel, "age": age, "norm": norm}


def selected(setup):
    """interval -> for each subnet the rows that take part."""
    schedule = setup.schedule()
    return [[rows.tolist() for rows in schedule.decide(interval, 0).devices] for interval in range(INTERVALS)]


def ledger(run):
    return [json.loads(line) for line in (run / "privacy.jsonl").read_text().splitlines()]


def numbers(part):
    return range(part.start, part.stop)


def without_wall(run):
    return run.metrics.drop(columns="wall_s")


FILES = ("privacy.jsonl", "model.pt", "devices.parquet")


def same(one, other):
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("method", ["h2fdp", "hfl"])
def test_where_all_take_part_it_has_the_bits_of_fixed(tmp_path, method):
    changes = {"participation": 1.0, "method": method}
    if method == "hfl":
        changes |= {"calibration": None}
    chosen = experiment(utility(1, 1), **changes).run(tmp_path / "chosen")
    fixed = experiment("fixed", **changes).run(tmp_path / "fixed")
    names = FILES if method == "h2fdp" else FILES[1:]
    for name in names:
        assert (chosen.directory / name).read_bytes() == (fixed.directory / name).read_bytes(), name
    assert without_wall(chosen).equals(without_wall(fixed))


def test_by_channel_alone_the_nearest_send_where_channels_do_not_fade():
    setup = experiment(utility(channel=1), fading="none").prepare()
    nearest = [sorted(np.argsort(subnet.column("distance_m"))[:2].tolist()) for subnet in setup.topology.subnets]
    assert selected(setup) == [nearest] * INTERVALS


def test_by_channel_alone_those_of_the_largest_signal_to_noise_ratio_send():
    setup = experiment(utility(channel=1)).prepare()
    for interval, found in enumerate(selected(setup)):
        ratios = np.split(setup.costs.drawn(interval).snr, 2)
        assert found == [sorted(np.argsort(-of_subnet)[:2].tolist()) for of_subnet in ratios]


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_by_age_alone_nobody_waits_longer_than_a_round(share):
    setup = experiment(utility(age=1), participation=share).prepare()
    round_of, found = math.ceil(DEVICES / round(share * DEVICES)), selected(setup)
    for first in range(INTERVALS - round_of + 1):
        for subnet in range(2):
            taken = {row for interval in found[first : first + round_of] for row in interval[subnet]}
            assert taken == set(range(DEVICES))


def test_scores_are_products_of_powers_by_brute_force():
    """A loop over devices, with rates from Shannon's formula."""
    setup = experiment(utility(channel=2, age=0.5)).prepare()
    last = {(subnet, row): -1 for subnet in range(2) for row in range(DEVICES)}
    for interval, found in enumerate(selected(setup)):
        ratios = np.split(setup.costs.drawn(interval).snr, 2)
        for subnet in range(2):
            scores = {
                row: math.log2(1 + ratios[subnet][row]) ** 2 * math.sqrt(interval - last[subnet, row])
                for row in range(DEVICES)
            }
            assert found[subnet] == sorted(sorted(scores, key=lambda row: -scores[row])[:2])
            last |= {(subnet, row): interval for row in found[subnet]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return experiment(utility(1, 1)).run(tmp_path_factory.mktemp("whole") / "run")


def test_the_ledger_has_the_releases_of_selected_devices_and_no_others(whole):
    """Two aggregations of each interval; below the untrusted edge server each upload is a release of its own."""
    found, planned = Counter(), Counter()
    for row in ledger(whole.directory):
        if row.get("observer") == "edge" and row["edge"] == "e1":
            found.update((row["interval"] - 1, at) for part in rows_in(row["devices"]) for at in numbers(part))
    for interval, rows in enumerate(selected(experiment(utility(1, 1)).prepare())):
        planned.update({(interval, row): 2 for row in rows[1]})
    assert found == planned
    assert len({row for _, row in planned}) > 2, "not always the same ones"


def test_noise_is_made_for_those_who_will_be_selected(whole):
    """The worst device's account, from the number of its releases alone, meets the target."""
    squares = Counter()
    for row in ledger(whole.directory):
        if row.get("observer") == "edge":
            for part in rows_in(row["devices"]):
                ratio = row["sensitivity"] / row["noise_std"]
                squares.update({(row["edge"], at): ratio**2 for at in numbers(part)})
    worst = max(epsilon_of_gaussian(math.sqrt(square)) for square in squares.values())
    assert 0.97 * 20 < worst <= 20
    assert whole.summary["privacy"]["worst"]["edge"]["pld"] == pytest.approx(worst, rel=0.02)


def stopped(schedule, path):
    """A run that ended in its fourth interval, with a checkpoint after the third."""

    def stop(reached, number):
        if (reached, number) == ("ran", 4):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(recorders, "listener", stop)
        start_run(experiment(schedule).prepare(), path)
    return path


@pytest.mark.parametrize("schedule", [utility(1, 1), utility(1, 1, 1)], ids=["foreseen", "released"])
def test_a_run_that_was_interrupted_selects_the_same_devices(tmp_path, schedule):
    path = stopped(schedule, tmp_path / "run")
    resume_run(experiment(schedule).prepare, path)
    same(path, experiment(schedule).run(tmp_path / "other").directory)


def test_lengths_are_those_of_vectors_that_a_device_had_a_part_in():
    """Of two children of the cloud; a device without one counts as the longest of its subnet."""
    setup = experiment(utility(norm=1)).prepare()
    schedule = setup.schedule()
    assert [rows.tolist() for rows in schedule.decide(0, 0).devices] == [[0, 1], [0, 1]]

    def seen(interval, first, second):
        uploads = [torch.tensor([first, 0.0]), torch.tensor([0.0, second])]
        known = np.full(2, 0.5), np.zeros(2), np.array([2.0, 4.0])
        return IntervalObservation(interval, 2, 0.5, torch.zeros(2), uploads, *known, children=("e0", "e1"))

    schedule.observe(seen(0, 3.0, 8.0))
    assert schedule.state()["lengths"][[0, 1, 5, 6]].tolist() == [3.0, 3.0, 4.0, 4.0]
    assert [rows.tolist() for rows in schedule.decide(1, 2).devices] == [[2, 3], [2, 3]], "all are equal; the untried"
    other = setup.schedule()
    other.load(schedule.state())
    own = other._own
    own._last[[0, 1]], own._lengths[[2, 3]] = -1, [9.0, 7.0]  # as if others had been selected, too
    own._newest = None
    assert other.decide(1, 2).devices[0].tolist() == [2, 4]
    assert [rows.tolist() for rows in schedule.decide(2, 4).devices] == [[0, 4], [0, 4]], "then who waits longest"


def test_what_was_released_decides_under_a_filter(tmp_path):
    """A privacy filter, not a forecast, keeps the run to its target; more of the same noise would exceed it."""
    setup = experiment(utility(1, 1, 1)).prepare()
    assert setup.adapts
    assert setup.watched is not None
    assert not experiment(utility(1, 1)).prepare().adapts
    run = experiment(utility(1, 1, 1)).run(tmp_path / "run")
    assert 10 < run.summary["privacy"]["worst"]["edge"]["rdp"] <= 20


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"schedule": utility(1, 1, 1), "calibration": "paper"}, r"privacy\.calibration: .*expected accounted"),
        ({"schedule": utility(1, 1, 1), "axes": {"privacy": "central"}}, r"schedule\.norm: .*one average"),
        ({"schedule": utility()}, "expected an exponent above 0"),
        ({"schedule": utility(channel=-1)}, "channel: expected a number from 0 to 100"),
        ({"schedule": "utility"}, r"method\.schedule: .*utility\" is gone; .*experiments/parts"),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, found):
    with pytest.raises(UserError) as caught:
        experiment(settings.pop("schedule"), **settings).prepare()
    assert re.search(found, str(caught.value)), caught.value
