"""Streams: named by what they are for, the same by whichever generator they are read."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from h2fdp import streams as module
from h2fdp.streams import Streams, generator_of, standard_normal_rows, uniform_rows

NAMES = st.text(max_size=8)
NUMBERS = st.integers(0, 2**31 - 1)


def opened(streams, node, purpose, interval, slot, skipped):
    bits = np.random.Philox(key=streams.key(node, purpose, interval, slot))
    bits.advance(skipped)
    return np.random.Generator(bits)


@given(NUMBERS, NAMES, NAMES, NUMBERS, NUMBERS, st.integers(0, 10**6), st.sampled_from(["u32", "normal", "words"]))
def test_a_lent_generator_reads_the_stream_whatever_it_read_before(
    seed, node, purpose, interval, slot, skipped, before
):
    streams = Streams(seed)
    left_over = streams.borrowed("other", "purpose")
    {  # each leaves something behind in the generator
        "u32": lambda: left_over.integers(0, 2**32, dtype=np.uint32),
        "normal": lambda: left_over.standard_normal(3, dtype=np.float32),
        "words": lambda: left_over.bit_generator.random_raw(2),
    }[before]()
    borrowed = generator_of(streams.key(node, purpose, interval, slot), skipped)
    fresh = opened(streams, node, purpose, interval, slot, skipped)
    np.testing.assert_array_equal(
        borrowed.standard_normal(9, dtype=np.float32), fresh.standard_normal(9, dtype=np.float32)
    )
    np.testing.assert_array_equal(borrowed.random(5), fresh.random(5))


def test_no_two_streams_have_one_key():
    """Equal keys would be one noise on two releases."""
    seeds, attempts, secrets, names, numbers = (
        (0, 1, 10),
        ("", "1", "a"),
        (b"", b"1"),
        ("", "a", "ab", "b", "1|"),
        (0, 1, 11),
    )
    coordinates = list(itertools.product(seeds, attempts, secrets, names, names, numbers, numbers))
    keys = {Streams(seed, attempt, secret).key(*named) for seed, attempt, secret, *named in coordinates}
    assert len(keys) == len(coordinates)


def test_each_thread_has_a_generator_of_its_own():
    mine = Streams(1).borrowed("library", "noise")
    theirs = []
    thread = threading.Thread(target=lambda: theirs.append(Streams(1).borrowed("hall", "noise")))
    thread.start()
    thread.join()
    assert theirs[0] is not mine
    assert mine.random() == Streams(1).open("library", "noise").random()


@pytest.fixture(params=["numpy", "kernels"])
def rows_by(request, monkeypatch):
    """Rows are drawn by NumPy, and then by machine code."""
    monkeypatch.setattr(module, "_KERNELS", [])
    if request.param == "kernels":
        pytest.importorskip("numba")
        module.compile_rows()
        assert module._KERNELS


@pytest.mark.usefixtures("rows_by")
@pytest.mark.parametrize("size", [1, 7, 300, 7841])
@pytest.mark.parametrize("devices", [0, 1, 5])
def test_rows_of_normals_are_each_their_own_streams(devices, size):
    streams = Streams(3, secret=b"unknown")
    keys = [streams.key(f"library/{device}", "noise", 2, 5) for device in range(devices)]
    found = standard_normal_rows(keys, size)
    assert found.shape == (devices, size)
    for device, row in enumerate(found):
        expected = streams.open(f"library/{device}", "noise", 2, 5).standard_normal(size, dtype=np.float32)
        np.testing.assert_array_equal(row.view(np.uint32), expected.view(np.uint32))


ROWS = st.lists(st.tuples(st.integers(0, 2), st.one_of(st.integers(0, 40), st.integers(0, 2**40))), max_size=8)


@pytest.mark.usefixtures("rows_by")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3), ROWS, st.integers(1, 5), NUMBERS)
def test_rows_of_uniforms_are_numpys_to_the_bit_wherever_they_begin(slots, rows, blocks, seed):
    """Neighbouring rows may be read at once."""
    keys = [[Streams(seed).key(f"edge-{owner}", "batch", 0, slot) for owner in range(3)] for slot in range(slots)]
    owners, steps = (np.array(each, np.int64) for each in (zip(*rows, strict=True) if rows else ([], [])))
    drawn = uniform_rows(keys, owners, steps, 4 * blocks)
    for slot in range(slots):
        for row, (owner, skipped) in enumerate(rows):
            bits = np.random.Philox(key=keys[slot][owner]).advance(skipped)
            np.testing.assert_array_equal(drawn[slot, row], np.random.Generator(bits).random(4 * blocks))
