"""The programs of Upcycled-FL's tables: who is held out, when seeds are enough, the user's files in LEAF's format."""

import numpy as np
import pytest

from experiments.upcycled_rule import ended, half_width
from experiments.upcycled_runs import held_out


def test_a_fifth_of_each_device_is_held_out_and_no_test_record_is_seen(tmp_path):
    devices = np.repeat([0, 1, 2], [4, 5, 11])
    x = np.arange(20.0)[:, None]
    np.savez(
        tmp_path / "all.npz", x_train=x, y_train=devices % 2, device_train=devices,
        x_test=x[:3] - 100, y_test=devices[:3], device_test=devices[:3],
    )  # fmt: skip
    with np.load(held_out(tmp_path / "all.npz", tmp_path / "half" / "all.npz")) as found:
        assert found["device_test"].tolist() == [1, 2, 2]
        assert found["x_test"][:, 0].tolist() == [8.0, 13.0, 18.0]
        np.testing.assert_array_equal(np.sort(np.concatenate([found["x_train"], found["x_test"]]), axis=0), x)


def test_seeds_are_enough_at_the_corrected_level():
    """Three seeds 2, 3, 4: t = 4.303 at 95 %, so half a length of 2.48; 8.860 at 98.75 %, so 5.12. Of eight seeds with
    four gains above and four below their mean by d, the deviation is 1.069 d and t 3.336: so 1.26 d."""
    assert half_width([2.0, 3.0, 4.0], 0.95) == pytest.approx(2.484, abs=1e-3)
    assert half_width([2.0, 3.0, 4.0]) == pytest.approx(8.860 / 3**0.5, abs=1e-3)
    assert half_width([1.0, -1.0] * 4) == pytest.approx(1.261, abs=1e-3)
    assert not ended([2.25, 0.25] * 4)
    assert ended([2.27, 0.27] * 4)
    assert not ended([0.4, -0.4] * 4)
    assert ended([0.39, -0.39] * 4)
    assert not ended([0.39, -0.39] * 3)  # fewer than a first look has
