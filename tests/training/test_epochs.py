"""Epochs: every record once in each, in an order of its own, whoever else is drawn."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.protocol.arrivals import Faults, epochs_under
from h2fdp.streams import Streams
from h2fdp.training.batches import EpochSampler, steps_per_epoch

SIZES = np.array([7, 32, 33, 1, 100])
RATES = np.minimum(1.0, 32 / SIZES)
EPOCHS = 3


def sampler(seed=1, sizes=SIZES, rates=RATES, sampling="fixed"):
    return EpochSampler(Streams(seed), "edge", sampling, sizes, rates, 40, EPOCHS)


def slots(sizes=SIZES, rates=RATES):
    return range(1, 1 + EPOCHS * int(steps_per_epoch(rates).max()))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(1, 20), st.integers(0, 99))
def test_an_epoch_holds_every_record_once(sizes, batch, seed):
    sizes = np.array(sizes)
    rates = np.minimum(1.0, batch / sizes)
    drawn = sampler(seed, sizes, rates).draw(0, slots(sizes, rates), np.arange(len(sizes)))
    for device, (size, each) in enumerate(zip(sizes, steps_per_epoch(rates), strict=True)):
        for epoch in range(EPOCHS):
            held = [drawn.of(slot, device) for slot in range(epoch * each, (epoch + 1) * each)]
            assert sorted(np.concatenate(held)) == list(range(size))
            assert all(len(part) == min(batch, size) for part in held[:-1])
        assert (drawn.counts[EPOCHS * each :, device] == 0).all()


def test_every_record_chooses_a_batch_of_each_epoch_by_itself():
    """Chi-square over the batches of 100 records in 600 epochs, and over pairs of two records; error rate 1e-6."""
    sizes, rates = np.array([100, 3]), np.array([1 / 4, 1.0])
    chosen = np.zeros((200 * EPOCHS, 100), dtype=int)
    for interval in range(200):
        drawn = sampler(2, sizes, rates, "allocated").draw(interval, range(1, 1 + 4 * EPOCHS), np.arange(2))
        assert drawn.counts[:, 1].tolist() == [3] * EPOCHS + [0] * 3 * EPOCHS
        for slot in range(4 * EPOCHS):
            chosen[interval * EPOCHS + slot // 4, drawn.of(slot, 0)] += slot % 4 + 1
    assert ((chosen >= 1) & (chosen <= 4)).all()
    counts = np.array([(chosen == batch).sum() for batch in range(1, 5)])
    assert ((counts - 15_000) ** 2 / 15_000).sum() < 30.7  # 3 degrees of freedom
    pairs = np.bincount(chosen[:, 3] * 4 + chosen[:, 77] - 5, minlength=16)
    assert ((pairs - 37.5) ** 2 / 37.5).sum() < 56.5  # 15 degrees of freedom
    sizes_of_batches = np.stack([(chosen == batch).sum(axis=1) for batch in range(1, 5)])
    assert 14 < sizes_of_batches.var() < 24  # 18.75 of a binomial law; of equal parts 0


def test_a_device_draws_the_same_whoever_is_drawn_beside_it():
    together = sampler().draw(2, slots(), np.arange(5))
    alone = sampler().draw(2, slots(), np.array([2]))
    assert all(np.array_equal(together.of(slot, 2), alone.of(slot, 0)) for slot in range(2 * EPOCHS))


def test_every_order_of_three_records_is_equally_likely():
    """Chi-square over the 6 orders, 3,000 draws, error rate 1e-6 (critical value 35.9 at 5 degrees of freedom)."""
    three = EpochSampler(Streams(5), "edge", "fixed", np.array([3]), np.ones(1), 4, 1)
    counts = {}
    for interval in range(3000):
        order = tuple(three.draw(interval, range(1, 2), np.array([0])).of(0, 0))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 35.9


def test_stragglers_train_one_to_nine_of_ten_epochs_equally_often():
    """Chi-square over the nine numbers of epochs, error rate 1e-6 (critical value 42.7 at 8 degrees of freedom)."""
    faults = Faults(straggler_probability=1.0, straggler_fraction=(0.1, 0.9))
    points = (("edge", 900),)
    steps = epochs_under(faults, Streams(3), points, 0, np.arange(900), (1,), 10, np.full(900, 4)).steps[0]
    epochs, counts = np.unique(steps // 4, return_counts=True)
    assert epochs.tolist() == list(range(1, 10))
    assert (steps % 4 == 0).all()
    assert ((counts - 100) ** 2 / 100).sum() < 42.7
