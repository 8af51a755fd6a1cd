"""Who adds the noise and what the edge server sees: two facts, and a third level of trust made of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp.privacy import (
    TRUST_MODELS,
    GradientSumMechanism,
    NoiseRequest,
    PaperCalibration,
    PlannedUpload,
    SecureSum,
    TrustModel,
    views,
)
from h2fdp.privacy.gradient_bounds import ClippedBatches

LEVELS = GradientSumMechanism(PaperCalibration(1.0, 1e-5, 1.0, 10, 10), ClippedBatches(1.0), "tight")
PEOPLE = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size),
        st.lists(st.floats(0.01, 0.5), min_size=size, max_size=size),
    )
)


def upload(trust_model, weights, rates, noise_std, **changes):
    values = {
        "interval": 1,
        "slot": 4,
        "kind": "global",
        "edge": "a",
        "trust_model": trust_model,
        "step_size": 0.1,
        "rows": np.arange(len(weights)),
        "steps": np.full(len(weights), 4),
        "weights": weights,
        "sampling_rates": rates,
        "records": np.full(len(rates), 9),
        "noise_std": noise_std,
        "size": len(weights),
        "sampling": "poisson",
        "views": views(trust_model, trusted=int(trust_model.edge_adds_noise)),
    }
    return PlannedUpload(**values | changes)


def seen(trust_model, weights, rates, noise_std=None, **changes):
    """Observer -> device -> (sensitivity, noise), by default under the noise that this trust asks for."""
    noise = noise_std
    if noise is None:
        noise = LEVELS.of_subnet(NoiseRequest(trust_model, (4,), 0.1, weights, rates, np.full(len(rates), 9)))[0]
    found = {}
    for row in LEVELS.releases(upload(trust_model, weights, rates, noise, **changes)):
        for part in row.devices.split(","):
            first, _, last = part.partition("-")
            for device in range(int(first), int(last or first) + 1):
                found.setdefault(row.observer, {})[device] = (row.sensitivity, row.noise_std)
    return found


@given(PEOPLE)
def test_a_third_level_of_trust_is_a_value_of_its_own(people):
    """Shares of one noise: whoever sees the sum gets what a trusted edge server would send, the edge server as well."""
    weights, rates = np.array(people[0]) / sum(people[0]), np.array(people[1])
    sums, trusted = seen(SecureSum(), weights, rates), seen(TRUST_MODELS["edge"], weights, rates)
    for observer in ("edge", "cloud", "public"):
        for device, (sensitivity, noise_std) in trusted["cloud"].items():
            assert sums[observer][device] == (pytest.approx(sensitivity), pytest.approx(noise_std))
    if len(weights) > 1:  # a peer subtracts its own share
        whole = trusted["cloud"][1][1]
        left = whole * math.sqrt((len(weights) - 1) / len(weights))
        assert all(noise_std == pytest.approx(left) for _, noise_std in sums["peer"].values())


def test_what_the_edge_server_sees_moves_its_own_account_alone():
    weights, rates = np.array([0.5, 0.3, 0.2]), np.full(3, 0.1)
    single, sums = (seen(TrustModel("device", sight), weights, rates) for sight in ("uploads", "sum"))
    assert {observer: rows for observer, rows in single.items() if observer != "edge"} == {
        observer: rows for observer, rows in sums.items() if observer != "edge"
    }
    assert sums["edge"] == sums["cloud"] != single["edge"]


@pytest.mark.parametrize(
    ("trust_model", "tree", "star"),
    [
        (TrustModel("none"), {}, {}),
        (TrustModel("device"), {"edge": 0, "cloud": 2}, {"edge": 0, "cloud": 0}),
        (TrustModel("device", edge_sees="sum"), {"edge": 1, "cloud": 2}, {"edge": 1, "cloud": 1}),
        (TrustModel("edge"), {"cloud": 2}, {"cloud": 1}),
        (TrustModel("cloud"), {}, {}),
    ],
)
def test_views_follow_from_both_facts(trust_model, tree, star):
    trusted = int(trust_model.edge_adds_noise)
    for found, expected in (
        (views(trust_model, heights=(1, 2), trusted=trusted, passed=2), tree),
        (views(trust_model, trusted=trusted, edge_is_cloud=True), star),
    ):
        assert {name: level for name, level in found.items() if name in ("edge", "cloud")} == expected
