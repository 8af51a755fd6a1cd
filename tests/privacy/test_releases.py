"""The ledger's rows: what each observer of the specification's table receives."""

import math

import numpy as np
import pytest

from h2fdp.privacy import Merged, releases, vectors_of_observers
from h2fdp.privacy.views import Sensitivities
from tests.privacy.uploads import uploads_of


def rows(place, noise, weights=(0.5, 0.25, 0.25), rates=(0.1, 0.1, 0.1), size=3, heights=(1,), above=()):
    uploads = uploads_of(place, weights, rates, noise, kind="local")
    reach = Sensitivities(np.full(len(weights), 4.0), uploads.sampling_rates, uploads.steps, "poisson", "batch")
    levels = vectors_of_observers(uploads.place, heights, passed=len(heights))
    by_observer = {}
    for release in releases(uploads, "local", reach, above, levels, size > 1):
        by_observer.setdefault(release.observer, []).append(release)
    return by_observer


def test_an_untrusted_edge_server_sees_each_upload_under_its_own_noise():
    (row,) = rows("device", [3.0, 3.0, 3.0])["edge"]
    assert (row.devices, row.sensitivity, row.noise_std, row.steps, row.sampling_rate) == ("1-3", 4.0, 3.0, 4, 0.1)


def test_the_cloud_sees_the_average_under_all_devices_noise():
    large, small = sorted(rows("device", [3.0, 3.0, 3.0])["cloud"], key=lambda row: -row.sensitivity)
    noise = 3.0 * math.sqrt(0.25 + 0.0625 + 0.0625)
    assert (large.devices, large.sensitivity, large.noise_std) == ("1", 2.0, pytest.approx(noise))
    assert (small.devices, small.sensitivity, small.noise_std) == ("2-3", 1.0, pytest.approx(noise))


def test_a_peer_knows_its_own_noise():
    found = {row.devices: row for row in rows("device", [3.0, 3.0, 3.0])["peer"]}
    # The worst peer of devices 2 and 3 is device 1 (share 0.5); of device 1 it is either of the others.
    assert found["2-3"].noise_std == pytest.approx(3.0 * math.sqrt(0.0625 + 0.0625))
    assert found["1"].noise_std == pytest.approx(3.0 * math.sqrt(0.25 + 0.0625))


def test_the_peers_of_a_lonely_active_device_know_none_of_the_noise():
    (row,) = rows("device", [3.0], weights=[1.0], rates=[0.1], size=3)["peer"]
    assert row.noise_std == 3.0


def test_a_trusted_edge_server_is_no_observer_and_the_others_see_its_noise():
    found = rows("edge", [2.0], weights=[0.5, 0.5], rates=[0.1, 0.1], size=2)
    assert set(found) == {"peer", "cloud", "public"}
    assert {(row.sensitivity, row.noise_std) for group in found.values() for row in group} == {(2.0, 2.0)}


def test_devices_with_different_rates_get_rows_of_their_own():
    assert {row.devices for row in rows("device", [3.0] * 3, rates=[0.1, 0.2, 0.1])["edge"]} == {"1,3", "2"}


# Above the subnet: the vector of a region in which the subnet has a share of 1/4.

REGION = Merged(share=0.25, noise_std=1.0, known=0.6)


def above(place, noise):
    return rows(place, noise, weights=(0.5, 0.5), rates=(0.1, 0.1), size=7, heights=(1, 2), above=(REGION,))


def test_an_aggregator_outside_the_chain_sees_what_its_child_sends():
    (row,) = above("edge", [2.0])["tier-2"]
    assert (row.sensitivity, row.noise_std) == (2.0, 2.0)


def test_who_receives_a_regions_vector_sees_the_devices_share_in_it_under_all_its_noise():
    for observer in ("cloud", "public"):
        (row,) = above("edge", [2.0])[observer]
        assert (row.sensitivity, row.noise_std) == (4.0 * 0.5 * 0.25, 1.0)


def test_another_branch_of_the_region_knows_its_own_part_of_the_noise():
    (row,) = above("edge", [2.0])["peer"]
    assert row.noise_std == pytest.approx(0.8)  # sqrt(1 - 0.6^2)


def test_a_device_that_knows_more_of_the_noise_than_any_other_branch_is_the_worst_peer():
    (row,) = above("device", [6.4, 6.4])["peer"]  # each device's part: 6.4 / 2 / 4 = 0.8
    assert row.noise_std == pytest.approx(0.6)
