"""Fading and access are choices by name."""

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.radio.models import ACCESS, FADING, access_of, fading_of
from h2fdp.topology import Radio
from h2fdp.topology.schema import RadioSection


@pytest.mark.parametrize("name", FADING)
def test_every_fading_draws_powers_of_mean_one_and_knows_the_mean_of_its_costs(name):
    # 200,000 draws: the standard error of their mean is at most 0.0023, so 0.012 fails once in ten million
    fading, snr = fading_of(name), np.array([0.5, 20.0])
    powers = fading.draw(np.random.default_rng(1), 200_000, 1e-3)
    assert abs(powers.mean() - 1) < 0.012
    assert powers.min() >= fading.least(1e-3)
    means = [np.mean(8 / (10 * np.log2(1 + each * powers))) for each in snr]
    assert fading.mean_seconds(8, 10.0, snr, 1e-3) == pytest.approx(means, rel=0.05)


@pytest.mark.parametrize("name", ACCESS)
def test_a_device_alone_has_the_whole_channel(name):
    alone = access_of(name).uplink_seconds(np.array([2.0]), np.array([3.0]), np.array([1]), 3)
    assert alone == pytest.approx([0, 2, 0])


def test_files_know_every_name():
    for kind, names in (("fading", FADING), ("access", ACCESS)):
        for name in names:
            assert getattr(RadioSection.model_validate({kind: name}), kind) == name
        assert getattr(Radio(), kind) in names


@pytest.mark.parametrize(("find", "key"), [(fading_of, "radio.fading"), (access_of, "radio.access")])
def test_a_name_that_is_unknown_is_told_with_those_that_are_not(find, key):
    with pytest.raises(UserError, match=rf'{key}: expected one of .*, found "smoke"'):
        find("smoke")
