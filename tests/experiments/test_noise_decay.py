"""Noise that falls once the loss has fallen for some rounds (Adap DP-FL)."""

import numpy as np

from experiments.noise_decay import NoiseDecay
from tests.experiments.observations import context, reloaded


def decaying(factor=0.5, patience=2, least=0.1):
    return NoiseDecay(factor, patience, least).build(context())


def factors(of, losses):
    """The factor of each interval, the first before any loss is known."""
    found = [of.decide(0, 0).noise_factor]
    for interval, loss in enumerate(losses):
        of.scored(loss)
        found.append(of.decide(interval + 1, 0).noise_factor)
    return found


def test_noise_falls_after_so_many_rounds_of_falling_loss_and_the_count_begins_anew():
    # The second and third losses are falls; a third fall begins the next count, a fourth ends it.
    assert factors(decaying(), [9, 8, 7, 6, 5]) == [1, 1, 1, 0.5, 0.5, 0.25]


def test_noise_never_rises_again_nor_falls_below_its_least_share():
    assert factors(decaying(patience=1, least=0.3), [9, 8, 10, 7, 6]) == [1, 1, 0.5, 0.5, 0.3, 0.3]


def test_a_schedule_that_is_killed_after_any_round_goes_on_as_if_it_had_not_been(tmp_path):
    losses = np.random.default_rng(1).uniform(0, 1, 30)
    through = factors(decaying(), losses)
    of, killed = decaying(), [1.0]
    for loss in losses.tolist():
        of.scored(loss)
        of = reloaded(of, decaying(), tmp_path)
        killed.append(of.decide(0, 0).noise_factor)
    assert killed == through
    assert through[-1] < 0.5
