"""The whitening that comes with the package is the one that its script fits, and moves features by little."""

from hashlib import blake2b

import numpy as np
import pytest

from experiments.whitening import fitted, rounded
from h2fdp.data.public_features import crops, of_length_1
from h2fdp.data.scattering import SHIPPED, SHIPPED_DIGEST, SHIPPED_SIDE, SIZE, Scattering, scattering


def test_the_file_is_the_one_of_the_digest_that_features_are_kept_by():
    content = SHIPPED.read_bytes()
    assert blake2b(content, digest_size=16).hexdigest() == SHIPPED_DIGEST
    assert len(content) < 2_000_000


@pytest.mark.parametrize(
    ("shape", "size", "shipped"),
    [((1, 28, 28), None, True), ((1, 28, 20), 9, True), ((1, 28, 28), SIZE + 1, False), ((3, 28, 28), None, False)],
)
def test_grey_images_of_its_side_are_whitened_by_it(shape, size, shipped):
    assert Scattering.of(shape, size).is_shipped == shipped
    assert SHIPPED_DIGEST not in Scattering.of(shape, size).key


def test_fewer_features_are_the_first_ones():
    images = crops(5, SHIPPED_SIDE, seed=1) / np.float32(255)
    most, fewer = (Scattering.of((1, 28, 28), size).rows(images) for size in (SIZE, 10))
    np.testing.assert_allclose(fewer, of_length_1(most[:, :10]), atol=1e-5)


@pytest.mark.slow
def test_the_script_writes_it_and_rounding_turns_features_by_few_degrees():
    """Last bits of another machine may move a number to the next step."""
    whitening = fitted()
    with np.load(SHIPPED) as shipped:
        parts = rounded(whitening)
        apart = np.abs(sum(w * (parts[name].astype(int) - shipped[name]) for w, name in ((256, "high"), (1, "low"))))
        assert apart.max() <= 2
        assert apart.mean() < 1e-2
        np.testing.assert_allclose(parts["units"], shipped["units"], rtol=1e-3)
        np.testing.assert_allclose(whitening.mean, shipped["mean"], rtol=1e-5)
    images = crops(200, SHIPPED_SIDE, seed=1) / np.float32(255)
    exact, found = of_length_1(whitening(scattering(images))), Scattering.of((1, 28, 28), None).rows(images)
    turned = np.rad2deg(np.arccos((exact * found).sum(axis=1).clip(max=1)))
    assert np.median(turned) < 0.5
    assert turned.max() < 3
