"""Secure sums of integers in the protocol: what passes, what the ledger says of it, and equal bits."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from h2fdp import Experiment
from h2fdp.privacy.modular_sums import SMOOTHING, IntegerSum, hadamard
from h2fdp.protocol import InProcessNodes
from h2fdp.protocol.edge_server import _Subnet
from h2fdp.runtime.lockstep import lockstep_of
from tests.privacy.test_modular_sums import gaussian, hockey_stick, law, mixed, stream
from tests.protocol.overhearing import overheard
from tests.protocol.test_any_tree import records
from tests.protocol.test_noise_boundaries import carries
from tests.protocol.test_secure_sums import method, network, plans

FAULTS = {"device_dropout": 0.2, "straggler": {"probability": 0.3}}


def small(rounding, faults=None, data=records, **settings):
    sums = method(rounding=rounding, colluding=1, dropouts=2)
    fixed = {"intervals": 2, "local_steps": 5, "batch_size": None, "sampling_rate": 1.0, "clip_norm": 1.0}
    given = {"method": sums, "faults": faults or {}, "aggregate_every": 2, "seed": 5}
    return Experiment(network(size=6), data, test_data=data("test"), **fixed, **given, **settings).prepare()


def drawn_records(device):
    rng = np.random.default_rng(sum(device.encode()))
    count = 5 + sum(device.encode()) % 3
    return rng.standard_normal((count, 2)).astype(np.float32), np.arange(count) % 2


def test_what_is_decoded_has_the_noise_of_the_ledger(monkeypatch):
    """Devices that do not move: every sum that the edge server decodes is noise alone, chi-square at 1e-6 each; one
    colluder's share is in it and not in the row."""
    heard = overheard(small(20), monkeypatch, silent=20_000)
    levels = [row.noise_std for row in heard.rows if (row.edge, row.observer) == ("a", "edge")]
    assert len(heard.received["a"]) == len(levels) == 3
    for vector, level in zip(heard.received["a"], levels, strict=True):
        everybody = level * np.sqrt(6 / 5)
        assert carries(torch.from_numpy(vector), everybody)


def ended(setup, edges):
    cloud = setup.cloud(InProcessNodes(edges) if isinstance(edges, dict) else edges)
    for interval in range(2):
        cloud.run_interval(cloud.plan(interval))
    return cloud.model


def separate(setup):
    names = [subnet.name for subnet in setup.topology.subnets]
    return {name: setup.blueprint.edge_server(at, setup.blueprint.device_group(at)) for at, name in enumerate(names)}


@pytest.mark.parametrize("faults", [None, FAULTS])
@pytest.mark.parametrize("weights", ["uniform", "by-size"])
def test_sums_of_integers_train_like_sums_of_vectors(faults, weights):
    """Where there is next to no noise both runs end at the same model, also where devices fail."""
    models = []
    for rounding in (None, 32):
        setup = small(rounding, faults, weights=weights, data=drawn_records)
        quiet = replace(setup, noise=setup.noise.scaled(1e-7))
        models.append(ended(quiet, separate(quiet)))
    moved = (models[0] - setup.initial).norm()
    assert (models[0] - models[1]).norm() < 1e-4 * moved


def test_bits_do_not_depend_on_where_devices_are():
    setup = small(16, FAULTS)
    together = lockstep_of(setup.blueprint, range(3), setup.blueprint.local_engine())
    apart, again = ended(setup, separate(setup)), ended(setup, separate(setup))
    assert torch.equal(apart, again)
    assert torch.equal(apart, ended(setup, together))


def test_devices_send_residues_and_nothing_else(monkeypatch):
    sent, arrived = [], _Subnet.arrived

    def watched(subnet, phase, model, uploads):
        if subnet._server.name == "a":
            sent.extend((phase.facts.code.code, each.updates) for group in uploads for each in group.values())
        return arrived(subnet, phase, model, uploads)

    monkeypatch.setattr(_Subnet, "arrived", watched)
    setup = small(12)
    ended(setup, separate(setup))
    assert len(sent) == 6
    for code, residues in sent:
        assert residues.dtype == torch.int64
        assert residues.shape == (6, code.dimension)
        assert 0 <= int(residues.min()) <= int(residues.max()) < 2**12


@pytest.mark.parametrize("weights", ["uniform", "by-size"])
@pytest.mark.parametrize("faults", [None, FAULTS])
@pytest.mark.parametrize("clip_scope", ["batch", "record"])
def test_rows_state_rounding_and_less_noise_than_there_is(weights, faults, clip_scope):
    """Against the same run without rounding: sensitivities longer by gamma sqrt(d) for each step that a row counts at
    most and for one at least, noise of whole cells less the smoothing."""
    settings = {"weights": weights, "clip_scope": clip_scope}
    rounded, plain = small(14, faults, **settings), small(None, faults, **settings)
    seen = 0
    for (plan, rows), (_, others) in zip(plans(rounded), plans(plain), strict=True):
        part = plan.subnets["a"]
        slots = dict(zip(part.ends(), range(3), strict=True))
        of_plain = {
            (row.slot, row.observer, row.devices): row for row in others if row.edge == "a" and row.observer != "peer"
        }
        for row in rows:
            key = row.slot, row.observer, row.devices
            if row.edge != "a" or key not in of_plain:
                continue
            seen += 1
            other, segment = of_plain[key], slots[row.slot]
            arrived = part.aggregation(segment)
            whole = arrived.facts.code
            assert isinstance(whole, IntegerSum)
            code, mass = whole.code, whole.shares_of(arrived.rows).sum()
            longer = row.sensitivity - other.sensitivity
            assert code.inflation / mass * (1 - 1e-9) <= longer
            if clip_scope == "batch":
                assert longer == pytest.approx(row.steps * code.inflation / mass)
            cells = part.noise_std[segment][0] * part.shares[0] / code.spacing
            assert cells == pytest.approx(round(cells))
            known = len(arrived.rows) - 1
            stated = np.sqrt(known * (cells**2 - SMOOTHING**2)) * code.spacing / mass
            assert row.noise_std == pytest.approx(stated)
            assert np.sqrt(known) * cells * code.spacing / mass >= other.noise_std * (1 - 1e-9)
    assert seen > 10


COARSE = [(8, 0.02, 1), (8, 0.1, 1), (10, 0.1, 1), (10, 1.0, 30)]  # bits, epsilon, intervals: a record moves few cells


def on_coarse_grid(bits, epsilon, intervals):
    """A sum of two coordinates, cells of its noise, and by observer the row with rounding and the row without."""

    def one_feature(device):
        return np.ones((4, 1), np.float32), np.arange(4) % 2

    fixed = {"local_steps": 1, "aggregate_every": 1, "step_size": 0.1, "sampling_rate": 1.0, "batch_size": None}
    fixed |= {"clip_norm": 1.0, "model": "softmax", "test_data": one_feature("test"), "epsilon": epsilon}
    fixed |= {"intervals": intervals, "calibration": "paper" if intervals == 1 else "accounted"}
    found = []
    for rounding in (bits, None):
        experiment = Experiment(network(size=4), one_feature, method=method(rounding=rounding, colluding=1), **fixed)
        plan, rows = next(plans(experiment.prepare(), 1))
        found.append({row.observer: row for row in rows if row.edge == "a"})
        if rounding:
            part = plan.subnets["a"]
    whole = part.aggregation(0).facts.code
    assert whole.code.dimension == whole.code.parameters == 2
    cells = round(part.noise_std[0][0] * part.shares[0] / whole.code.spacing)
    return whole, cells, {observer: (row, found[1][observer]) for observer, row in found[0].items()}


@pytest.mark.parametrize("case", COARSE, ids=str)
def test_rows_state_how_far_rounding_lets_a_record_move_the_sum(case):
    """By brute force over directions of the record, and places of the other records between grid points; the farthest
    of two sums of equal streams, so that noise cancels, is decoded. Without rounding the record would move it less."""
    whole, cells, rows = on_coarse_grid(*case)
    code, share, (row, plain) = whole.code, whole.shares[0], rows["edge"]
    moved, signs, worst = plain.sensitivity / code.spacing, np.array([1.0, -1.0]), (0.0,)
    places = np.stack(np.meshgrid(*[np.linspace(0, 1, 100, endpoint=False)] * 2), axis=-1).reshape(-1, 2)
    for angle in np.linspace(0, math.pi / 2, 46):
        record = moved * np.array([math.cos(angle), math.sin(angle)])
        rounded = np.floor(places + record + stream(1).random(2)) - np.floor(places + stream(1).random(2))
        farthest = np.linalg.norm(rounded, axis=1)
        worst = max(worst, (farthest.max(), *places[farthest.argmax()], *record))
    without, record = np.array(worst[1:]).reshape(2, 2)
    sums = []
    for rotated in (without, without + record):
        update = torch.from_numpy(hadamard(rotated) * signs * code.spacing / share)
        sums.append(code.decode(code.encode(update, share, cells, signs, stream(1))[None], signs))
    farthest = float((sums[1] - sums[0]).norm())
    assert farthest == pytest.approx(worst[0] * code.spacing)
    assert 0.8 * row.sensitivity < farthest <= row.sensitivity
    assert farthest > 1.4 * plain.sensitivity


@pytest.mark.parametrize("case", COARSE, ids=str)
def test_rows_hide_a_record_that_may_be_rounded_up_and_rows_without_rounding_would_not(case):
    """The law of what is seen, exactly, where a record moves one rotated coordinate, or both by as much."""
    whole, cells, rows = on_coarse_grid(*case)
    for observer, hidden in (("edge", 3), ("peer", 2)):
        row, plain = rows[observer]
        stated, short = row.sensitivity / row.noise_std, plain.sensitivity / row.noise_std
        exposed = False
        for coordinates in (1, 2):
            certain, perhaps = divmod(plain.sensitivity / whole.code.spacing / math.sqrt(coordinates), 1)
            noise = law(cells, coordinates * hidden, int(14 * cells * math.sqrt(coordinates * hidden)))
            up = np.arange(coordinates + 1)
            shifts = coordinates * int(certain) + up
            shown = mixed(stats.binom.pmf(up, coordinates, perhaps), shifts, noise, len(noise) // 2)
            for epsilon in short * np.linspace(0, 12, 49):
                seen = max(hockey_stick(shown, noise, epsilon), hockey_stick(noise, shown, epsilon))
                assert seen <= gaussian(stated, epsilon)
                exposed |= seen > 1.002 * gaussian(short, epsilon) > 1e-9
        assert exposed, observer


def test_a_message_has_b_bits_for_every_coordinate_of_the_rotated_vector():
    setup, plain = small(12), small(None)
    parameters = setup.initial.numel()
    dimension = 1 << (parameters - 1).bit_length()
    assert setup.exchange_sizes.vector == pytest.approx(12 * dimension / (32 * parameters))
    assert plain.exchange_sizes.vector == 1
    costs = [next(plans(each))[0] for each in (setup, plain)]
    spent = [each.bill.columns(plan)["energy_j"] for each, plan in zip((setup, plain), costs, strict=True)]
    devices = setup.costs.drawn(0).joules[:6].sum()
    assert spent[1] - spent[0] == pytest.approx(3 * devices * (1 - setup.exchange_sizes.vector))
