"""A clip norm that follows a quantile: the rule, its account by brute force, and devices' votes, draw by draw."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.errors import UserError
from h2fdp.privacy import AdaptiveClipping, Moment, Pipeline, Release
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.gradient_bounds import ClippedRecords
from h2fdp.privacy.mechanisms.pipeline import StageFacts
from h2fdp.privacy.mechanisms.stages import ClippedUpdate, CutToLongest, NoisySteps, RecordVotes, noise_on_votes
from h2fdp.privacy.releases import release_of, under
from h2fdp.protocol import DeviceGroup, Order
from h2fdp.streams import Streams
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import build_engine
from tests.privacy.accounting.hockey_stick import both_directions, line_density, plane_density

SEEDS, STREAMS = st.integers(0, 10**6), Streams(seed=4)
ERROR = 1e-6  # of a test that is passed by chance, or failed


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("start", [0.1, 10.0])
def test_without_noise_the_norm_comes_to_the_quantile_from_either_side(quantile, start):
    norms = np.random.default_rng(3).lognormal(0.3, 0.8, 20_000)
    adaptive = AdaptiveClipping(start * 1.35, quantile, share=0.3)
    norm = adaptive.initial
    for _ in range(400):
        votes = np.where(norms <= norm, 1, -1).mean() * adaptive.vote(norm)
        norm = adaptive.after(norm, adaptive.fraction(float(votes), norm))
    assert math.log(norm / np.quantile(norms, quantile)) == pytest.approx(0, abs=1e-3)


@settings(max_examples=8, deadline=None)
@given(st.floats(0.8, 6.0), st.floats(0.005, 0.9), st.integers(1, 40))
def test_without_sampling_the_account_is_that_of_gradients_and_counts_composed(noise_multiplier, share, releases):
    """dp-accounting, for z_Delta and 2 sigma_b one after another: 1/z^2 = 1/z_Delta^2 + 1/(2 sigma_b)^2."""
    adaptive = AdaptiveClipping(1.7, share=share)
    length, norm = adaptive.length(0.4), 0.4
    gradient, count = noise_multiplier * length / norm, noise_multiplier * length / adaptive.vote(norm)
    assert gradient**-2 + count**-2 == pytest.approx(noise_multiplier**-2)
    parts = [pld.from_gaussian_mechanism(each, value_discretization_interval=1e-3) for each in (gradient, count)]
    expected = parts[0].self_compose(releases).compose(parts[1].self_compose(releases)).get_epsilon_for_delta(1e-5)
    joint = {ReleaseType(noise_multiplier, 1, 1.0, "fixed"): releases}
    assert ACCOUNTANTS["pld"].epsilon(joint, 1e-5) == pytest.approx(expected, rel=0.01)


def test_with_sampling_gradient_and_vote_are_one_release_and_two_rows_would_be_too_little():
    """They stand or fall with one draw: the pair is the sampled Gaussian at z, which two independent ones are not."""
    rate, noise, epsilons = 0.1, 0.7, np.array([0.3, 1.0, 2.0])
    share = 0.4
    moved = (math.sqrt(1 - share), math.sqrt(share))  # of length 1
    grid, line = np.linspace(-5, 6, 661), np.linspace(-7, 8, 30_001)
    chances = [1 - rate, rate]
    without = plane_density([(0.0, 0.0)], [1.0], noise, grid)
    together = plane_density([(0.0, 0.0), moved], chances, noise, grid)
    apart = np.outer(*(line_density([0.0, part], chances, noise, grid) for part in moved))
    cell, step = (grid[1] - grid[0]) ** 2, line[1] - line[0]
    pair = [line_density(shifts, each, noise, line) for shifts, each in (([0.0, 1.0], chances), ([0.0], [1.0]))]
    found = both_directions(together, without, epsilons, cell)
    np.testing.assert_allclose(found, both_directions(*pair, epsilons, step), rtol=2e-3, atol=1e-9)
    assert (both_directions(apart, without, epsilons, cell)[0] < found[0] * [0.7, 0.2, 0.05]).all()


@pytest.mark.parametrize("adjacency", ["null-record", "replace"])
def test_rows_say_what_part_the_vote_is_and_come_back_as_they_were(adjacency):
    made = Release(1, 5, "local", "a", "1-3", "cloud", 0.2, 0.5, 1, 0.1, "poisson", "record", 0.25, 0.7, 0.3)
    (release,) = under(adjacency, iter([made]))
    assert release.sensitivity == (0.4 if adjacency == "replace" else 0.2), "gradient and vote both move twice as far"
    row = release.as_row()
    assert (row["clip_norm"], row["vote_share"]) == (0.7, 0.3)
    assert release_of(row, "ledger:1", {"a": 3}) == release
    for key in ("clip_norm", "vote_share"):
        with pytest.raises(UserError, match="is not a release"):
            release_of({name: value for name, value in row.items() if name != key}, "ledger:1", None)
        with pytest.raises(UserError, match=f"{key}.*no release of a run has"):
            release_of(row | {key: -1.0}, "ledger:1", None)
    assert "clip_norm" not in replace(made, clip_norm=None, vote_share=None).as_row()


class Drawn:
    """A sampler that draws what it is told."""

    def __init__(self, draws, rate):
        self.draws, self.sizes, self.rates = draws, np.array([draws.shape[1]]), np.array([rate])

    def draw(self, interval, slots, rows):
        counts = self.draws.sum(axis=1)
        indices = np.zeros((len(self.draws), 1, max(int(counts.max()), 1)), dtype=np.int64)
        for slot, row in enumerate(self.draws):
            indices[slot, 0, : counts[slot]] = np.flatnonzero(row)
        return Batches(indices, counts[:, None])


def group(records, module, draws, rate, adaptive, engine, stages=None, mean_too=True):
    longest = CutToLongest(lambda step_size, steps: step_size * steps * adaptive.initial, adaptive.initial)
    clipping = Clipping(adaptive.initial, "record", mean_too=mean_too)
    return DeviceGroup(
        STREAMS,
        Pipeline(stages or (longest, RecordVotes(adaptive)), "expected"),
        0,
        lambda row: f"edge/{row + 1}",
        records,
        Drawn(draws, rate),
        build_engine(engine, module, clipping, Plain(), 4),
    )


def order(slots, step_size, norm, level=()):
    shared = {"interval": 2, "first_slot": 3, "last_slot": 3 + slots, "kind": "local", "rows": np.arange(1)}
    return Order(**shared, step_size=step_size, noise_std=np.array(level, dtype=float), facts=StageFacts(norm))


def situation(seed, records, scale):
    random = np.random.default_rng(seed)
    x = scale * random.normal(size=(records, 3))
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    held = DeviceRecords(
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(random.integers(0, 2, records)),
        np.array([0, records]),
        torch.ones(3),
        torch.zeros(3),
    )
    torch.manual_seed(seed)
    size = sum(each.numel() for each in module.parameters())
    return random, held, module, torch.cat([torch.randn(size), torch.tensor([0.3])])


@settings(max_examples=25, deadline=None)
@given(
    SEEDS, st.sampled_from([0.04, 0.3, 1.0]), st.sampled_from([0.05, 0.7]), st.sampled_from([0.3, 4.0]),
    st.sampled_from(["loop", "stacked"]),
)  # fmt: skip
def test_a_record_moves_update_and_vote_together_no_further_than_the_ledger_says(seed, rate, share, norm, engine):
    """Its own gradient and its vote, with the norm of the interval, not the first one; batches larger than expected."""
    adaptive, step_size, size = AdaptiveClipping(1.0, share=share), 0.5, 7
    random, records, module, model = situation(seed, size, scale=3.0)
    draws = random.random((1, size)) < max(rate, 0.5)
    without = draws.copy()
    without[:, -1] = False
    with_record, null = (
        group(records, module, each, rate, adaptive, engine).train(model, order(1, step_size, norm)).updates[0].double()
        for each in (draws, without)
    )
    bound = ClippedRecords(adaptive.length(norm)).sensitivity(step_size, 1, np.array([rate * size]))[0]
    assert torch.linalg.vector_norm(with_record - null) <= bound * (1 + 1e-5) + 1e-6
    assert torch.linalg.vector_norm(with_record[:-1]) <= step_size * norm * (1 + 1e-5)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_record_whose_gradient_is_as_long_as_allowed_attains_it(engine):
    adaptive, norm = AdaptiveClipping(1.0, share=0.3), 0.2
    _, records, module, model = situation(5, 7, scale=3.0)
    draws = np.zeros((1, 7), dtype=bool)
    empty = group(records, module, draws.copy(), 1.0, adaptive, engine).train(model, order(1, 0.5, norm)).updates[0]
    draws[0, -1] = True
    moved = group(records, module, draws, 1.0, adaptive, engine).train(model, order(1, 0.5, norm)).updates[0] - empty
    bound = ClippedRecords(adaptive.length(norm)).sensitivity(0.5, 1, np.array([7.0]))[0]
    assert float(torch.linalg.vector_norm(moved)) == pytest.approx(bound, rel=1e-3)
    assert moved[-1] < 0, "it is longer than the norm, and says so"
    assert empty.abs().max() == 0, "nobody drawn, nobody votes"


def test_over_several_noisy_steps_votes_add_up_under_the_noise_of_every_step():
    adaptive = AdaptiveClipping(1.0, share=0.3)
    _, records, module, model = situation(5, 7, scale=3.0)
    draws = np.ones((4, 7), dtype=bool)
    stages = NoisySteps(), RecordVotes(adaptive, noisy_gradients=True)
    made = group(records, module, draws, 0.5, adaptive, "stacked", stages, mean_too=False)
    found = made.train(model, order(4, 0.5, 1e6, level=[0.2])).updates[0]
    noise = STREAMS.open("edge/1", "noise-votes", 2, 7).standard_normal() * 0.2 * 2  # the root of four steps
    assert float(found[-1]) == pytest.approx(0.5 * (4 * 7 * adaptive.vote(1e6) + noise) / 3.5, rel=1e-6)


@pytest.mark.parametrize("wrong", [2 / 3, 1.0, 3 / 2])
def test_noise_on_votes_has_the_level_of_the_steps_noise_times_the_root_of_their_number(wrong):
    """Chi-square of 4,000 draws: accepted at the stated deviation, rejected at 2/3 and 3/2 of it, error rate 1e-6."""
    steps = np.tile([1, 4], 2000)
    at = Moment(streams=STREAMS, nodes=[f"edge/{row}" for row in range(4000)], levels=np.full(4000, 0.8), interval=3,
                first_slot=5, last_slot=9, steps=steps)  # fmt: skip
    drawn = noise_on_votes(at) / (0.8 * wrong * np.sqrt(steps))
    lowest, highest = stats.chi2.ppf([ERROR / 2, 1 - ERROR / 2], 4000)
    assert (lowest <= (drawn**2).sum() <= highest) == (wrong == 1.0)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3), st.floats(1e-12, 1e6), st.sampled_from([None, 0.01, 1.0]))
def test_a_whole_update_is_never_longer_than_the_norm_cut_or_normalised(seed, norm, length, gamma):
    direction = np.random.default_rng(seed).normal(size=50)
    update = torch.from_numpy(np.stack([length * direction / np.linalg.norm(direction), np.zeros(50)])).float()
    update = torch.cat([update, torch.full((1, 50), torch.inf)])
    before, quiet = (
        update.clone(),
        Moment(streams=STREAMS, nodes=[], levels=np.empty(0), interval=0, first_slot=0, last_slot=1),
    )
    ClippedUpdate(norm, gamma).encode(update, torch.zeros(50), quiet)
    lengths = torch.linalg.vector_norm(update.double(), dim=1)
    assert lengths.max() <= norm
    assert lengths[1:].max() == 0
    expected = min(length, norm) if gamma is None else norm * length / (length + gamma)
    assert float(lengths[0]) == pytest.approx(expected, rel=1e-5, abs=1e-30)
    towards = float(update[0].double() @ before[0].double()) / (length * float(lengths[0]))
    assert towards == pytest.approx(1, rel=1e-5)


def test_a_device_votes_about_the_whole_update_before_it_is_cut():
    adaptive, updates = AdaptiveClipping(9.0, share=0.36), torch.tensor([[3.0, 4.0, 0.0], [0.3, 0.4, 0.0]])
    _, records, module, _ = situation(5, 7, scale=3.0)
    stages = (ClippedUpdate(9.0, moving=adaptive),)
    made = group(records, module, np.ones((1, 7), dtype=bool), 0.5, adaptive, "loop", stages)
    asked = Order(interval=0, first_slot=0, last_slot=1, kind="global", step_size=0.1, rows=np.arange(2),
                  noise_std=np.empty(0), facts=StageFacts(1.0))  # fmt: skip
    found = made.pipeline.encode(updates, torch.zeros(3), made.moment(asked))
    np.testing.assert_allclose(found, [[0.6, 0.8, 0, -0.75], [0.3, 0.4, 0, 0.75]], rtol=1e-6)
    assert float(torch.linalg.vector_norm(found[0])) == pytest.approx(adaptive.length(1.0))


def test_a_device_that_is_not_told_the_norm_sends_nothing():
    _, records, module, model = situation(5, 7, scale=3.0)
    made = group(records, module, np.ones((1, 7), dtype=bool), 0.5, AdaptiveClipping(1.0), "loop")
    with pytest.raises(AssertionError, match="says what devices vote about"):
        made.train(model, order(1, 0.5, None))
