"""Invariant 1: no unnoised update of a device under an untrusted edge leaves its group; no trusted average leaves the
edge server without noise. And every release has the right noise, and its own."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from h2fdp.protocol import InProcessNodes
from tests.protocol.subnets import device_group, edge_server, subnet_plan

SIZE = 20_000
STD = 0.3
ERROR_RATE = 1e-6


def accepts(sample, std):
    """Whether a chi-square test at an error rate of 1e-6 takes the sample for N(0, std^2)."""
    statistic = float((sample.double() ** 2).sum()) / std**2
    low, high = stats.chi2.ppf([ERROR_RATE / 2, 1 - ERROR_RATE / 2], sample.numel())
    return bool(low < statistic < high)


def carries(sample, std):
    """Whether that test takes it for this noise, and neither for two thirds nor for one and a half times as much."""
    return [accepts(sample, factor * std) for factor in (1, 2 / 3, 3 / 2)] == [True, False, False]


class Spy(InProcessNodes):
    """Sees all that crosses the boundary between devices and their edge server."""

    def __init__(self, nodes):
        super().__init__(nodes)
        self.uploads = []

    def call(self, method, shared, each):
        answers = super().call(method, shared, each)
        self.uploads += [
            (order.segment.kind, upload) for name, order in each.items() for upload in answers[name].updates
        ]
        return answers


def run(source, segments=(1, 1), devices=2, stds=None, interval=0):
    """One interval of devices that do not move (step size 0), so that everything that is seen is noise."""
    targets = [[0.0] * SIZE] * devices
    spy = Spy({"devices": device_group(targets, source)})
    columns = devices if source == "device" else 1
    plan = subnet_plan(
        segments, devices, stds or [[STD] * columns] * len(segments), interval, 10 * interval, step_size=0.0
    )
    return spy, edge_server(targets, source, spy).run_interval(torch.zeros(SIZE), plan).update


@pytest.mark.parametrize("kind", ["local", "global"])
def test_each_upload_under_an_untrusted_edge_carries_its_noise(kind):
    spy, _ = run("device")
    for found, upload in spy.uploads:
        if found == kind:
            assert carries(upload, STD)


@pytest.mark.parametrize("segments", [(1, 1), (2,)])
def test_a_trusted_average_leaves_with_its_noise(segments):
    """The upload holds every piece of the interval: with a local aggregation, both noises (14)."""
    _, upload = run("edge", segments)
    assert carries(upload, STD * math.sqrt(len(segments)))


def test_a_trusted_broadcast_carries_its_noise():
    broadcasts = []

    class Listening(Spy):
        def call(self, method, shared, each):
            broadcasts.append(shared.clone())
            return super().call(method, shared, each)

    targets = [[0.0] * SIZE] * 2
    spy = Listening({"devices": device_group(targets, "edge")})
    edge_server(targets, "edge", spy).run_interval(torch.zeros(SIZE), subnet_plan((1, 1), 2, [[STD], [STD]]))
    assert carries(broadcasts[1], STD)


def test_devices_do_not_obey_an_order_that_leaves_out_their_noise():
    """A trusted-looking plan (one noise, at the edge) reaches devices that know their edge server is not trusted."""
    spy = InProcessNodes({"devices": device_group([[0.0] * 4] * 2, "device")})
    careless = edge_server([[0.0] * 4] * 2, "edge", spy)
    with pytest.raises(AssertionError, match="without noise"):
        careless.run_interval(torch.zeros(4), subnet_plan((1,), 2, [[STD]]))


def test_a_zero_noise_is_refused_where_noise_is_due():
    with pytest.raises(AssertionError, match="carries noise that"):
        run("edge", stds=[[0.0], [0.0]])
    with pytest.raises(AssertionError, match="carries noise that"):
        run("device", stds=[[0.0, 0.0], [0.0, 0.0]])


def test_no_two_releases_share_a_noise_vector():
    """Over devices, slots, intervals, kinds and both kinds of edge server."""
    seen = []
    for interval in range(3):
        spy, _ = run("device", segments=(2, 1, 1), interval=interval)
        seen += [upload for _, upload in spy.uploads]
        seen.append(run("edge", segments=(4,), interval=interval)[1])
    correlations = np.abs(np.corrcoef(torch.stack(seen).numpy()))
    np.fill_diagonal(correlations, 0)
    # Of 210 pairs over 20,000 coordinates, none reaches seven standard deviations by chance; equal vectors give 1.
    assert len(seen) == 21
    assert correlations.max() < 7 / math.sqrt(SIZE)


def test_under_a_trusted_edge_devices_send_their_updates_as_they_are():
    spy, _ = run("edge", segments=(1,))
    assert all(upload.abs().max() == 0 for _, upload in spy.uploads)
