"""AdamW on devices, step by step against `torch.optim.AdamW`, and to the bit in any stack."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.fedprox import Proximal
from h2fdp.models.construct import ParameterLayout
from h2fdp.training.clipping import Clipping
from h2fdp.training.engine import build_engine
from h2fdp.training.local_steps import AdamW, Descent, StepTerms
from tests.training.groups import SHAPES, KnownNoise, draw, model_and_start, records

SIZES = [6, 9, 7]
OPTIMIZER = AdamW(beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.3)


def trained(engine, objective, clipping, batches, held, rows, terms=None):
    module, start = model_and_start("mlp")
    built = build_engine(engine, module, clipping, Descent(objective, optimizer=OPTIMIZER), width=8)
    given = {} if terms is None else {"terms": terms}
    updates = built.train(start.expand(len(rows), -1), held, rows, batches, 0.05, **given).updates
    return start - updates


def by_torch(device, objective, clipping, batches, held, noise=None):
    """The model of a device after steps of `torch.optim.AdamW` on the gradients that clipping makes of its records."""
    module, start = model_and_start("mlp")
    layout = ParameterLayout(module)
    parameter = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([parameter], 0.05, (0.8, 0.95), 1e-6, 0.3, foreach=False)
    for slot in range(len(batches.counts)):
        x, y = held.gather(batches.of(slot, device) + held.offsets[device])
        total = torch.zeros_like(start)
        for record, label in zip(x, y, strict=True):
            leaf = parameter.detach().clone().requires_grad_()
            scores = torch.func.functional_call(module, layout.views(leaf), (record[None],))
            (own,) = torch.autograd.grad(functional.cross_entropy(scores, label[None]), leaf)
            total += own if clipping is None else clipping.apply(own[None])[0]
        total /= float(batches.divisors[slot, device])
        if noise is not None:
            noise.add(total[None], slot, batches.divisors[slot, device : device + 1])
        parameter.grad = total + getattr(objective, "mu", 0.0) * (parameter.detach() - start)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("clipping", [None, Clipping(0.3, "record")], ids=["raw", "clipped"])
@pytest.mark.parametrize("objective", [Plain(), Proximal(mu=0.5)], ids=["plain", "proximal"])
def test_steps_are_those_of_torch(engine, clipping, objective):
    held, batches = records(SHAPES["mlp"], SIZES), draw("fixed", SIZES, [0.5] * 3, 4)
    terms = StepTerms(noise=KnownNoise(np.arange(3)))
    found = trained(engine, objective, clipping, batches, held, np.arange(3), terms)
    for device in range(3):
        noise = KnownNoise(np.array([device]))
        expected = by_torch(device, objective, clipping, batches, held, noise)
        torch.testing.assert_close(found[device], expected, rtol=1e-4, atol=2e-5)


def test_a_step_of_known_moments_by_hand():
    """w = 1, g = 2, twice, lr 0.1: both corrected means are those of g, so each step is 0.1, and decay 0.1 * 0.5 w."""
    first, second, w = torch.zeros(1), torch.zeros(1), torch.ones(1)
    for slot in range(2):
        w = AdamW(eps=0.0, weight_decay=0.5).step(w, torch.tensor([2.0]), first, second, 0.1, slot)
    assert w.item() == pytest.approx((1 * 0.95 - 0.1) * 0.95 - 0.1, abs=1e-6)


def test_a_devices_bits_do_not_depend_on_its_stack():
    held, batches = records(SHAPES["mlp"], SIZES), draw("poisson", SIZES, [0.5] * 3, 3)
    whole = trained("stacked", Plain(), Clipping(0.3, "record"), batches, held, np.arange(3))
    for rows in ([0], [2, 1]):
        part = trained("stacked", Plain(), Clipping(0.3, "record"), batches.part(np.array(rows)), held, np.array(rows))
        assert torch.equal(part, whole[rows])


def going_on(engine, calls, held, batches, optimizer, rows=None):
    """(models, kept) of devices after several received models, of which each but the first is another one."""
    module, start = model_and_start("mlp")
    rows = np.arange(3) if rows is None else rows
    built = build_engine(engine, module, Clipping(0.3, "record"), Descent(Plain(), optimizer=optimizer), width=8)
    kept = torch.zeros(len(rows), 2 * len(start) + 1)
    for call in range(calls):
        received = (start + 0.1 * call).expand(len(rows), -1)
        before = kept.clone()
        found = built.train(received, held, rows, batches, 0.05, terms=StepTerms(noise=KnownNoise(rows), kept=kept))
        assert torch.equal(kept, before), "what a device kept is not changed in place"
        kept = found.memory
    return received - found.updates, kept


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_kept_moments_go_on_as_those_of_torch_over_received_models_and_stop_with_devices_that_do(engine):
    """Devices of 3, 1 and 0 of three steps, twice: torch's own optimiser, set to each received model."""
    held, batches = (
        records(SHAPES["mlp"], SIZES),
        replace(draw("fixed", SIZES, [0.5] * 3, 3), steps=np.array([3, 1, 0])),
    )
    models, kept = going_on(engine, 2, held, batches, OPTIMIZER.model_copy(update={"state": "kept"}))
    module, start = model_and_start("mlp")
    layout = ParameterLayout(module)
    for device, steps in enumerate((3, 1, 0)):
        parameter, noise = torch.nn.Parameter(start.clone()), KnownNoise(np.array([device]))
        optimizer = torch.optim.AdamW([parameter], 0.05, (0.8, 0.95), 1e-6, 0.3, foreach=False)
        for call in range(2):
            parameter.data = start + 0.1 * call
            for slot in range(steps):
                x, y = held.gather(batches.of(slot, device) + held.offsets[device])
                total = torch.zeros_like(start)
                for record, label in zip(x, y, strict=True):
                    leaf = parameter.detach().clone().requires_grad_()
                    scores = torch.func.functional_call(module, layout.views(leaf), (record[None],))
                    (own,) = torch.autograd.grad(functional.cross_entropy(scores, label[None]), leaf)
                    total += Clipping(0.3, "record").apply(own[None])[0]
                total /= float(batches.divisors[slot, device])
                noise.add(total[None], slot, batches.divisors[slot, device : device + 1])
                parameter.grad = total
                optimizer.step()
        torch.testing.assert_close(models[device], parameter.detach(), rtol=1e-4, atol=2e-5)
        assert kept[device, -1] == 2 * steps
        if steps:
            state = optimizer.state[parameter]
            torch.testing.assert_close(kept[device, : len(start)], state["exp_avg"], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(kept[device, len(start) : -1], state["exp_avg_sq"], rtol=1e-4, atol=1e-6)


def test_bits_of_kept_moments_do_not_depend_on_a_devices_stack():
    held, batches = (
        records(SHAPES["mlp"], SIZES),
        replace(draw("poisson", SIZES, [0.5] * 3, 3), steps=np.array([2, 3, 1])),
    )
    whole = going_on("stacked", 2, held, batches, OPTIMIZER)
    for rows in ([0], [2, 1]):
        part = going_on("stacked", 2, held, batches.part(np.array(rows)), OPTIMIZER, np.array(rows))
        assert all(torch.equal(own, each[rows]) for own, each in zip(part, whole, strict=True))
