"""Invariant 1 under central noise, DP-SGD, output and objective perturbation: who adds which noise, and nothing raw
passes where noise is due.

Statistical tests have an error rate of 1e-6 and must reject 2/3 and 3/2 of the right noise.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology
from h2fdp.arithmetic import run_arithmetic
from h2fdp.privacy.places import Segment
from h2fdp.protocol import InProcessNodes, Order
from tests.protocol.test_noise_boundaries import accepts, carries

TREE = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
NAMES = [subnet.name for subnet in TREE.subnets]
ROWS = np.arange(3)
ONE_UPLOAD = {"aggregate_every": None, "aggregations_per_interval": 0}


def prepared(privacy, model=None, objective="plain", **settings):
    """Six devices with 17,610 coordinates, under one trusted and one untrusted edge server."""
    defaults = {"intervals": 2, "local_steps": 4, "batch_size": 4, "seed": 5, "epsilon": 5.0} | ONE_UPLOAD
    model = model or {"name": "mlp", "hidden": 235}
    method = {"extends": "hfl", "privacy": privacy, "objective": objective}
    return Experiment(topology=TREE, data="digits", model=model, method=method, **{**defaults, **settings}).prepare()


def order(std, steps=1, step_size=0.0, interval=0, first_slot=0, rows=ROWS):
    segment = Segment(interval, first_slot, first_slot + steps, "global", step_size=step_size)
    return Order(segment=segment, rows=rows, levels=np.full(len(rows), std))


class Spy:
    """Sees all that crosses a boundary, with what was sent down."""

    def __init__(self, nodes):
        self._nodes = nodes
        self.heard = []

    def call(self, method, shared, each):
        answers = self._nodes.call(method, shared, each)
        self.heard.append((shared, each, answers))
        return answers


# DP-SGD


def steps_of(run, steps=1, std=1e3, number=1, **changes):
    """The updates of a subnet's devices, in units of a step on a sum divided by 4: noise that drowns the gradients."""
    group = run.blueprint.device_group(number)
    return group.train(run.initial, order(std, steps, step_size=4.0, **changes)).updates


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("number", [0, 1])
def test_every_step_carries_noise_on_its_sum_whoever_is_trusted(engine, number):
    for steps in (1, 4):
        for update in steps_of(prepared("dp-sgd", engine=engine), steps, number=number):
            assert carries(update, 1e3 * steps**0.5)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_steps_on_empty_batches_are_as_noisy(engine):
    """One record in a million is drawn: nothing but noise is there, and it is that of the expected batch."""
    run = prepared("dp-sgd", engine=engine, batch_size=None, sampling_rate=1e-6)
    group = run.blueprint.device_group(1)
    assert not group.batches(order(1.0, steps=4)).counts.any()
    updates = group.train(run.initial, order(1e-3, steps=4, step_size=0.1)).updates
    for update, batch in zip(updates, 1e-6 * run.data.sizes[3:], strict=True):
        assert carries(update, 0.1 * 1e-3 / batch * 2)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_drawn_divides_noise_and_gradients_by_what_is_drawn(engine):
    run = prepared({"name": "dp-sgd", "normalize": "drawn"}, engine=engine)
    drawn = run.blueprint.device_group(1).batches(order(1.0)).counts[0]
    assert len(set(drawn.tolist()) - {4}) > 0
    for update, count in zip(steps_of(run), drawn.tolist(), strict=True):
        assert accepts(update, 1e3 * 4 / max(count, 1))


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_stated_number_divides_the_noise_of_all_devices(engine):
    """Where nothing is drawn there is only noise, and it does not know how large a batch was expected."""
    run = prepared({"name": "dp-sgd", "normalize": 50}, batch_size=None, sampling_rate=1e-6, engine=engine)
    for steps in (1, 4):
        for update in steps_of(run, steps):
            assert carries(update, 1e3 * 4 / 50 * steps**0.5)


def test_a_stated_number_divides_the_gradients_too():
    """So a number equal to the expected batch changes nothing."""
    stated, expected = (
        prepared({"name": "dp-sgd", "normalize": normalize}, batch_size=4) for normalize in (4, "expected")
    )
    for one, other in zip(steps_of(stated), steps_of(expected), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("normalize", ["expected", "drawn", 64])
def test_the_loop_and_the_stack_take_the_same_noisy_steps(normalize):
    runs = [prepared({"name": "dp-sgd", "normalize": normalize}, engine=engine) for engine in ("loop", "stacked")]
    one, other = (
        run.blueprint.device_group(1).train(run.initial, order(0.7, steps=4, step_size=0.1)).updates for run in runs
    )
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_no_two_steps_share_a_noise_vector():
    """Over devices, subnets, slots and intervals; and the noise of a stretch is that of its single steps."""
    run = prepared("dp-sgd", batch_size=None, sampling_rate=1e-6)
    seen = []
    for number in (0, 1):
        for interval, first in ((0, 0), (0, 1), (1, 2)):
            seen += list(steps_of(run, number=number, interval=interval, first_slot=first))
    correlations = np.abs(np.corrcoef(torch.stack(seen).numpy()))
    np.fill_diagonal(correlations, 0)
    assert len(seen) == 18
    assert correlations.max() < 7 / seen[0].numel() ** 0.5
    both = torch.stack(list(steps_of(run, steps=2, number=1)))
    single = torch.stack(seen[9:12]) + torch.stack(seen[12:15])
    torch.testing.assert_close(both, single, rtol=1e-4, atol=1e-5 * float(both.std()))


def test_a_device_that_stops_early_has_the_noise_of_its_steps():
    run = prepared("dp-sgd", batch_size=None, sampling_rate=1e-6)
    group = run.blueprint.device_group(1)
    asked = replace(order(1e3, steps=4, step_size=4.0), steps=np.array([1, 4, 2]))
    updates = group.train(run.initial, asked).updates / (4.0 * 1e3)
    for update, steps, batch in zip(updates, (1, 4, 2), 1e-6 * run.data.sizes[3:], strict=True):
        assert accepts(update, steps**0.5 / batch)


# Central noise


def interval_of(run, noise_scale=1.0):
    """A cloud after its first interval, what went up to it and to the edge servers, and the plan."""
    groups = {name: Spy(InProcessNodes({"devices": run.blueprint.device_group(n)})) for n, name in enumerate(NAMES)}
    servers = {name: replace(run.blueprint.edge_server(n), groups=groups[name]) for n, name in enumerate(NAMES)}
    edges = Spy(InProcessNodes(servers))
    cloud = run.cloud(edges)
    plan = cloud.plan(0)
    cloud.run_interval(replace(plan, noise_std=plan.noise_std * noise_scale))
    return cloud, edges, groups, plan


@pytest.mark.parametrize("settings", [{}, {"participation": 0.7}])
def test_the_cloud_adds_noise_for_the_largest_weight_of_those_averaged(settings):
    run = prepared({"name": "central", "noise_multiplier": 2.0}, clip_norm=0.01, **settings)
    cloud, edges, _, plan = interval_of(run)
    ((_, _, uploads),) = edges.heard
    average = sum(share * uploads[name].update for name, share in zip(plan.subnets, plan.weights, strict=True))
    parts = zip(plan.subnets.values(), plan.weights.tolist(), strict=True)
    largest = max(float((share * part.shares).max()) for part, share in parts)
    assert carries(run.initial - average - cloud.model, 2.0 * 0.01 * largest)


def test_devices_clip_their_whole_updates_and_gradients_stay_as_they_are():
    run, free = prepared("central", clip_norm=0.01, sampling="fixed", step_size=0.5), prepared("none")
    asked = replace(order(0.0, steps=4, step_size=0.5), levels=np.empty(0))
    for number in (0, 1):
        sent, raw = (each.blueprint.device_group(number).train(run.initial, asked).updates for each in (run, free))
        norms = torch.linalg.vector_norm(raw, dim=1, keepdim=True)
        assert (norms > 0.01).all()
        assert (torch.linalg.vector_norm(sent.double(), dim=1) <= 0.01).all()
        torch.testing.assert_close(sent, raw / norms * 0.01, rtol=1e-4, atol=1e-8)


def test_a_cloud_that_must_add_noise_does_not_go_on_without():
    with pytest.raises(AssertionError, match="carries noise that"):
        interval_of(prepared("central"), noise_scale=0.0)


def test_no_two_intervals_share_the_clouds_noise():
    run = prepared({"name": "central", "noise_multiplier": 2.0}, step_size=1e-9)
    cloud = run.cloud(InProcessNodes({name: run.blueprint.edge_server(n) for n, name in enumerate(NAMES)}))
    moved = []
    for interval in range(2):
        before = cloud.model
        cloud.run_interval(cloud.plan(interval))
        moved.append((cloud.model - before).numpy())
    assert abs(np.corrcoef(moved)[0, 1]) < 7 / len(moved[0]) ** 0.5


# Output perturbation


@pytest.mark.parametrize("number", [0, 1])
def test_a_model_goes_up_clipped_and_under_noise_whoever_is_trusted(number):
    run = prepared("output", clip_norm=0.5)
    assert float(run.initial.norm()) > 0.5
    for update in run.blueprint.device_group(number).train(run.initial, order(0.05)).updates:
        sent = run.initial - update
        assert carries(sent - run.initial * (0.5 / run.initial.norm()), 0.05)
        assert not accepts(sent - run.initial, 0.05)


def test_a_short_model_is_not_lengthened():
    run = prepared("output", clip_norm=1e3)
    for update in run.blueprint.device_group(1).train(run.initial, order(0.3)).updates:
        assert accepts(update, 0.3)


def test_every_local_aggregation_has_noise_of_its_own():
    run = prepared({"name": "output", "noise_multiplier": 1e-4}, clip_norm=1e3, aggregations_per_interval=3)
    plan = run.cloud(None).plan(0).subnets[NAMES[1]]
    server = run.blueprint.edge_server(1)
    spy = Spy(server.groups)
    replace(server, groups=spy).run_interval(
        run.initial, replace(plan, at=tuple(replace(each, step_size=0.0) for each in plan.at))
    )
    assert len(spy.heard) == 4
    seen = [update for model, _, answers in spy.heard for update in answers["devices"].updates]
    for update in seen:
        assert carries(update, 0.2)
    correlations = np.abs(np.corrcoef(torch.stack(seen).numpy()))
    np.fill_diagonal(correlations, 0)
    assert correlations.max() < 7 / len(seen[0]) ** 0.5


# Objective perturbation


def perturbed(run, std=1e-3, steps=1, **changes):
    group = run.blueprint.device_group(1)
    return group.terms(run.initial, order(std, steps, **changes))


def test_a_linear_term_is_drawn_for_an_interval_and_followed_by_every_step():
    privacy, objective = {"name": "objective", "input_bound": 60.0}, {"name": "proximal", "mu": 0.5}
    run = prepared(privacy, "softmax", objective, epsilon=500.0, sampling="fixed")
    group = run.blueprint.device_group(1)

    def drawn(**changes):
        return group.terms(run.initial, order(1e-3, **changes)).corrections

    assert drawn().shape == (3, run.initial.numel())
    assert torch.equal(drawn(), drawn())
    assert not torch.equal(drawn(), drawn(interval=1, first_slot=1))
    # One step from the received model: eta (gradient + n), and n is all that two runs differ in.
    weak, strong = (group.train(run.initial, order(std, step_size=0.1)).updates for std in (1e-6, 1e-2))
    torch.testing.assert_close(strong - weak, 0.1 * (1e-2 - 1e-6) * drawn() / 1e-3, rtol=1e-3, atol=1e-6)


# All of them


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("privacy", ["dp-sgd", {"name": "dp-sgd", "normalize": "drawn"}, "central", "output"])
def test_a_device_on_a_host_of_its_own_does_the_same_to_the_bit(privacy, engine):
    run = prepared(privacy, engine=engine)
    with run_arithmetic():
        asked = order(0.5, steps=3, step_size=0.1)
        together = run.blueprint.device_group(1).train(run.initial, asked).updates
        for row in range(3):
            own = replace(asked, rows=np.array([row]), levels=asked.levels[[row]])
            (alone,) = run.blueprint.devices(1, range(row, row + 1)).train(run.initial, own).updates
            assert torch.equal(alone, together[row])


@pytest.mark.parametrize("privacy", ["dp-sgd", "output"])
def test_devices_do_not_obey_an_order_that_leaves_out_their_noise(privacy):
    run = prepared(privacy)
    careless = replace(order(1.0), levels=np.empty(0))
    for number in (0, 1):
        with pytest.raises(AssertionError, match="without noise"):
            run.blueprint.device_group(number).train(run.initial, careless)


@pytest.mark.parametrize("privacy", ["dp-sgd", "output"])
def test_a_zero_noise_is_refused_where_noise_is_due(privacy):
    run = prepared(privacy)
    with pytest.raises(AssertionError, match="carries noise that"):
        run.blueprint.device_group(0).train(run.initial, order(0.0))
