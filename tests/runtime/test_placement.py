"""Packed placement: whole subnets, every subnet once, no host empty, even loads."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from h2fdp import Experiment
from h2fdp.privacy import add_gaussian_noise
from h2fdp.runtime.placement import RuntimeSection, packed, training_device
from h2fdp.streams import Streams


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_every_device_is_placed_once_and_neighbours_stay_together(sizes, hosts):
    parts = packed(np.array(sizes), hosts)
    assert 1 <= len(parts) <= hosts
    assert all(whole or shares for whole, shares in parts)
    large = [number for number, size in enumerate(sizes) if size > 1 and size * hosts >= 1.5 * sum(sizes)]
    assert [number for whole, _ in parts for number in whole] == [at for at in range(len(sizes)) if at not in large]
    for number in large:
        rows = sorted((rows for _, shares in parts for at, rows in shares if at == number), key=lambda each: each.start)
        assert [row for each in rows for row in each] == list(range(sizes[number])), "each device once, in one piece"
        assert len(rows) == min(hosts, sizes[number])
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_no_host_has_twice_its_share_of_a_star_or_of_few_large_subnets():
    for sizes in ([1000], [500, 500], [400, 300, 200, 100]):
        for hosts in (2, 4, 8):
            loads = [
                sum(sizes[at] for at in whole) + sum(len(rows) for _, rows in shares)
                for whole, shares in packed(np.array(sizes), hosts)
            ]
            assert max(loads) < 2 * sum(sizes) / hosts


def test_a_gpu_that_is_not_there_is_said_and_the_run_goes_on(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert training_device(RuntimeSection(gpus_per_host=0.5)) == torch.device("cpu")
    assert "torch finds none" in capsys.readouterr().err
    assert training_device(RuntimeSection()) == torch.device("cpu")
    assert capsys.readouterr().err == ""


@pytest.mark.process
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_on_a_gpu_learns_what_a_run_on_a_cpu_learns(tmp_path):
    settings = {"data": "digits", "method": "hfl", "seed": 1, "intervals": 4, "local_steps": 5, "batch_size": 8}
    losses = [
        Experiment(**settings, gpus_per_host=gpus).run(tmp_path / str(gpus)).metrics["loss"].tolist() for gpus in (0, 1)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("factor", "accepted"), [(1, True), (2 / 3, False), (3 / 2, False)])
def test_noise_drawn_on_a_gpu_has_its_standard_deviation(factor, accepted):
    """Chi-square at 1e-6, and another stream gives another vector."""
    noise = [add_gaussian_noise(torch.zeros(20_000, device="cuda"), 0.3, Streams(1).open("d", p)).cpu() for p in "ab"]
    assert not torch.equal(*noise)
    statistic = float((noise[0].double() ** 2).sum()) / (0.3 * factor) ** 2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 20_000)
    assert bool(low < statistic < high) is accepted
