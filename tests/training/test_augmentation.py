"""Variants of images in each step: by brute force, gradients by a plain loop, one record counts once."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional

from h2fdp.algorithms.fedavg import Plain
from h2fdp.data.augmentation import Augment, Variants, augment_of
from h2fdp.errors import UserError
from h2fdp.models.construct import ParameterLayout
from h2fdp.streams import Streams
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import TrainingJob, build_engine, chosen_engine
from h2fdp.training.gradients import gradient_rule
from h2fdp.training.gradients.rule import FunctionalGradients, LayeredGradients
from h2fdp.training.gradients.tapped import TappedGradients
from h2fdp.training.local_steps import Descent, StepTerms
from h2fdp.training.losses import CROSS_ENTROPY
from tests.training.test_tapped_gradients import Residual

RULE = Augment(flip=True, crop=2, times=3)
SHAPE, DEVICES, STEPS, SIZE = (2, 8, 8), 5, 3, 9


def by_hand(image, code, rule):
    """(C, H, W) one variant, of a padded and flipped NumPy array."""
    moved, flipped = divmod(int(code), 1 + rule.flip)
    down, aside = divmod(moved, 2 * rule.crop + 1)
    padded = np.pad(image, ((0, 0), (rule.crop,) * 2, (rule.crop,) * 2), mode="reflect")
    cut = padded[:, down : down + image.shape[1], aside : aside + image.shape[2]]
    return cut[:, :, ::-1] if flipped else cut


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("rule", [RULE, Augment(flip=True), Augment(crop=3)], ids=str)
def test_every_variant_is_the_padded_image_cut_and_flipped(rule, dtype):
    images = np.random.default_rng(1).integers(0, 255, (2, 3, 5, 7)).astype(dtype)
    codes = np.tile(np.arange(rule.codes), (2, 1))
    found = rule.images(torch.from_numpy(images), codes).numpy()
    wanted = np.stack([by_hand(image, code, rule) for image in images for code in range(rule.codes)])
    assert found.dtype == dtype
    assert np.array_equal(found, wanted)
    assert len({each.tobytes() for each in found[: rule.codes]}) == rule.codes, "no two are alike"


def test_variants_are_equally_likely_and_differ_by_device_interval_and_step():
    """Chi-square at 1e-6."""
    drawn = Variants(RULE, Streams(1), ["a/1", "a/2"], 0, 0)
    codes = drawn.codes(0, 0, 20_000)
    assert stats.chisquare(np.bincount(codes.ravel(), minlength=RULE.codes)).pvalue > 1e-6
    others = [drawn.codes(1, 0, 9), drawn.codes(0, 1, 9), Variants(RULE, Streams(1), ["a/1"], 1, 0).codes(0, 0, 9)]
    others.append(Variants(RULE, Streams(2), ["a/1"], 0, 0).codes(0, 0, 9))
    assert all((each != codes[:9]).any() for each in others)
    assert np.array_equal(drawn.codes(0, 0, 9), codes[:9])
    later = Variants(RULE, Streams(1), ["a/2"], 0, 1)
    assert np.array_equal(later.codes(0, 0, 9), others[0]) is False
    assert np.array_equal(Variants(RULE, Streams(1), ["a/1"], 0, 1).codes(0, 0, 9), others[0]), "slots go on"


class Own(nn.Module):
    """A user's own, which sees one record at a time."""

    def __init__(self):
        super().__init__()
        self.scale, self.line = nn.Parameter(torch.ones(1)), nn.Linear(128, 3)

    def forward(self, x):
        return self.line((x * self.scale).flatten(1))


def chain():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, stride=2),
        nn.Flatten(),
        nn.Linear(27, 3),
    )


MODULES = {
    "softmax": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), LayeredGradients),
    "chain": (chain, LayeredGradients),
    "library": (Residual, TappedGradients),
    "own": (Own, FunctionalGradients),
}
CLIPPINGS = {
    "none": None,
    "batch": Clipping(0.05, "batch"),
    "record": Clipping(0.05, "record"),
    "normalized": Clipping(0.05, "record", mean_too=True, gamma=0.02),
}


def group():
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.integers(0, 255, (DEVICES * SIZE, *SHAPE)).astype(np.uint8))
    y = torch.from_numpy(rng.integers(0, 3, DEVICES * SIZE))
    offsets = np.arange(DEVICES + 1) * SIZE
    counts = rng.integers(0, 7, (STEPS, DEVICES))
    counts[0, 0] = 0
    indices = np.argsort(rng.random((STEPS, DEVICES, SIZE)), axis=2)[:, :, :7]
    scale, shift = torch.tensor([1 / 200, 1 / 100]).view(2, 1, 1), torch.tensor([-0.5, -1.0]).view(2, 1, 1)
    return DeviceRecords(x, y, offsets, scale, shift), Batches(indices, counts)


def terms():
    return StepTerms(variants=Variants(RULE, Streams(4), [f"a/{at}" for at in range(DEVICES)], 2, 5))


def plain(module, clipping, start, records, batches):
    """(devices, M) updates, by autograd on one variant after another."""
    layout, updates = ParameterLayout(module), []
    for device in range(DEVICES):
        model = start.clone()
        for slot in range(STEPS):
            total, drawn = torch.zeros_like(model), batches.of(slot, device)
            codes = terms().variants.codes(slot, device, len(drawn))
            for place, own in zip(drawn, codes, strict=True):
                at = records.offsets[device] + place
                each = []
                for code in own:
                    leaf = model.clone().requires_grad_()
                    stored = torch.from_numpy(by_hand(records.x[at].numpy(), code, RULE).copy())
                    scores = torch.func.functional_call(module, layout.views(leaf), (records.scaled(stored)[None],))
                    (found,) = torch.autograd.grad(functional.cross_entropy(scores, records.y[at : at + 1]), leaf)
                    each.append(found)
                mean = torch.stack(each).mean(dim=0)
                per_record = clipping is not None and clipping.scope == "record"
                total += clipping.apply(mean[None])[0] if per_record else mean
            total /= max(len(drawn), 1)
            if clipping is not None and clipping.of_batches:
                total = clipping.for_batches.apply(total)
            model = model - 0.1 * total
        updates.append(start - model)
    return torch.stack(updates)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("engine", "width"), [("loop", 4), ("stacked", 8), ("stacked", 4)])
def test_updates_are_those_of_a_plain_loop_over_variants(engine, width, name, clipping):
    """Batches of none to six records, in one pass or two."""
    torch.manual_seed(3)
    build, rule = MODULES[name]
    module, clip = build(), CLIPPINGS[clipping]
    if clip is not None and clip.scope == "record":
        assert type(gradient_rule(module, clip)) is rule
    records, batches = group()
    start = ParameterLayout(module).to_vector(module)
    work = records, np.arange(DEVICES), batches, 0.1, terms()
    found = build_engine(engine, module, clip, Descent(Plain()), width).train(start.expand(DEVICES, -1), *work).updates
    wanted = plain(module, clip, start, records, batches)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6 * float(wanted.abs().max()) + 1e-7)


@pytest.mark.parametrize("clipping", ["batch", "record"])
@pytest.mark.parametrize("name", MODULES)
def test_a_device_has_the_same_bits_whoever_shares_its_stack(name, clipping):
    module, (records, batches) = MODULES[name][0](), group()
    start = ParameterLayout(module).to_vector(module)
    engine = build_engine("stacked", module, CLIPPINGS[clipping], Descent(Plain()), 8)
    whole = engine.train(start.expand(DEVICES, -1), records, np.arange(DEVICES), batches, 0.1, terms()).updates
    some = np.array([3, 1])
    own = records, some, batches.part(some), 0.1, terms().part(some)
    assert torch.equal(engine.train(start.expand(2, -1), *own).updates, whole[[3, 1]])


@pytest.mark.parametrize("name", MODULES)
def test_a_record_moves_a_clipped_sum_by_no_more_than_the_norm_whatever_its_variants(name):
    """Records far larger than others, with and without the one; a device's sum moves by G alone, not by times G."""
    module = MODULES[name][0]()
    rule, model = gradient_rule(module, Clipping(0.5, "record")), ParameterLayout(module).to_vector(module)[None]
    rng = torch.Generator().manual_seed(5)
    x, y = (
        50 * torch.randn(1, 4 * RULE.times, *SHAPE, generator=rng),
        torch.randint(0, 3, (1, 4 * RULE.times), generator=rng),
    )
    with_all, without = (rule.sums(model, x, y, torch.tensor([[1.0, 1.0, 1.0, last]])) for last in (1.0, 0.0))
    moved = float(torch.linalg.vector_norm(with_all - without))
    assert 0.4 < moved <= 0.5 * (1 + 1e-5)


def test_what_compiles_steps_leaves_variants_to_others():
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    job = TrainingJob(Descent(Plain()), CROSS_ENTROPY, Clipping(1.0, "record"), (1, 28, 28), 1e12, 44)
    assert chosen_engine(module, torch.device("cpu"), job) == "compiled"
    changed = TrainingJob(
        Descent(Plain()), CROSS_ENTROPY, Clipping(1.0, "record"), (1, 28, 28), 1e12, 44, augments=True
    )
    assert chosen_engine(module, torch.device("cpu"), changed) == "stacked"


def test_lists_are_short_forms_and_what_changes_nothing_is_none():
    assert augment_of(["crop"]) == Augment(flip=False, crop=4, times=4)
    assert augment_of([]) is augment_of(None) is augment_of(Augment(times=9)) is None
    with pytest.raises(UserError, match=r"data.augment.crop: .*8 x 8 pixels.*expected at most 7, found 8"):
        Augment(crop=8).check((1, 8, 8))
