"""Canaries in local steps: drawn like records, clipped with them, absent when they are out."""

import numpy as np
import torch
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.audit.canaries import CanaryEngine, CanaryModule, CanaryRecords, CanarySampler
from h2fdp.models.construct import ParameterLayout
from h2fdp.streams import Streams
from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import Descent
from h2fdp.training.loop import LoopEngine

RNG = np.random.default_rng(0)
SIZES = np.array([5, 7])
RECORDS = DeviceRecords(
    torch.from_numpy(RNG.normal(size=(12, 3)).astype(np.float32)),
    torch.from_numpy(RNG.integers(0, 2, 12)),
    np.array([0, 5, 12]),
    torch.ones(3),
    torch.zeros(3),
)
M, G = 6, 0.3


def linear():
    torch.manual_seed(0)
    return nn.Linear(3, 2, bias=False)


def canaries(included=(True, True), dominating=False, turning=False):
    """Device 0 holds canaries on coordinates M and M + 1, device 1 none."""
    return CanaryRecords(
        G,
        [np.array([M, M + 1]), np.array([], dtype=int)],
        [np.array(included), np.array([], dtype=bool)],
        dominating,
        turning,
    )


def step(scope, dominating, positions, device=0):
    """The clipped gradient of one step of a device whose batch holds these positions."""
    module = CanaryModule(linear(), 2)
    start = ParameterLayout(module).to_vector(module)
    batches = Batches(np.array([[positions]]), np.array([[len(positions)]]))
    engine = CanaryEngine(module, Clipping(G, scope), Descent(Plain()), canaries(dominating=dominating))
    return engine.train(start[None], RECORDS, np.array([device]), batches, 1.0).updates[0].numpy()


def data_gradient(scope, positions, device=0):
    module = linear()
    batches = Batches(np.array([[positions]]), np.array([[len(positions)]]))
    clipping = None if scope is None else Clipping(G, scope)
    start = ParameterLayout(module).to_vector(module)
    return (
        LoopEngine(module, clipping, Descent(Plain()))
        .train(start[None], RECORDS, np.array([device]), batches, 1.0)
        .updates[0]
        .numpy()
    )


def test_without_canaries_in_the_batch_a_step_is_the_step_it_always_was():
    for scope in ("batch", "record"):
        np.testing.assert_allclose(step(scope, False, [0, 3])[:M], data_gradient(scope, [0, 3]), rtol=1e-5)
        assert not step(scope, False, [0, 3])[M:].any()


def test_a_dirac_canary_is_counted_and_clipped_with_the_batch():
    mean = np.zeros(M + 2)
    mean[:M] = 2 * data_gradient(None, [0, 3])
    mean[M + 1] = G
    mean /= 3
    expected = mean * min(1.0, G / np.linalg.norm(mean))
    np.testing.assert_allclose(step("batch", False, [0, 3, 6]), expected, rtol=1e-5, atol=1e-6)


def test_under_record_clipping_each_canary_is_one_clipped_record():
    expected = np.zeros(M + 2)
    expected[:M] = 2 * data_gradient("record", [0, 3])
    expected[M:] = G
    np.testing.assert_allclose(step("record", False, [0, 3, 5, 6]), expected / 4, rtol=1e-5, atol=1e-6)


def test_a_dominating_canary_turns_the_batch_gradient_from_the_worst_to_its_own_direction():
    worst = np.zeros(M + 2)
    worst[M:] = -G / np.sqrt(2)
    np.testing.assert_allclose(step("batch", True, [0, 3]), worst, atol=1e-5)
    np.testing.assert_allclose(step("batch", True, [0, 3, 5]), G * np.eye(M + 2)[M], atol=1e-5)


def test_a_turning_canary_turns_the_data_of_all_later_steps_and_of_no_other_stretch():
    """Batches of one stretch: data, nothing, data and the first canary, data, data and the second, nothing, data."""
    module = CanaryModule(linear(), 2)
    start = ParameterLayout(module).to_vector(module)
    drawn = [[0], [], [1, 5], [2], [3, 6], [], [4]]
    counts = np.array([[len(each)] for each in drawn])
    indices = np.array([[each + [0] * (2 - len(each))] for each in drawn])
    engine = CanaryEngine(module, Clipping(G, "batch"), Descent(Plain()), canaries(dominating=True, turning=True))
    part = G / np.sqrt(2)
    steps = [(-part, -part), (0, 0), (G, 0), (part, -part), (0, G), (0, 0), (part, part)]
    for stop in range(1, len(drawn) + 1):  # each stretch begins anew
        batches = Batches(indices[:stop], counts[:stop])
        moved = engine.train(start[None], RECORDS, np.array([0]), batches, 1.0).updates[0].numpy()
        np.testing.assert_allclose(moved[M:], np.sum(steps[:stop], axis=0), rtol=1e-5, atol=1e-6)
        assert not moved[:M].any()


def samplers(included, rates=(0.3, 0.6)):
    plain = BatchSampler(Streams(1), "e", "poisson", SIZES, np.array(rates), 16)
    return plain, CanarySampler(**vars(plain), canaries=canaries(included), device_name=lambda row: f"e/{row + 1}")


def test_canaries_change_no_other_draw_and_come_after_it():
    plain, with_canaries = samplers((True, True))
    before, after = (each.draw(0, range(40), np.arange(2)) for each in (plain, with_canaries))
    for slot in range(40):
        for device in range(2):
            own = after.of(slot, device)
            np.testing.assert_array_equal(own[own < SIZES[device]], before.of(slot, device))
            assert (np.diff(own) > 0).all()
    assert (after.counts[:, 1] == before.counts[:, 1]).all(), "the device without canaries"


def test_a_canary_that_is_out_is_never_drawn_and_one_that_is_in_is_drawn_with_the_devices_rate():
    _, sampler = samplers((False, True))
    batches = sampler.draw(0, range(2000), np.array([0]))
    found = [set(batches.of(slot, 0)) for slot in range(2000)]
    assert sum(5 in each for each in found) == 0
    assert abs(np.mean([6 in each for each in found]) - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 2000)
