"""Each bound of a ledger's row in 200 random settings: the real mechanism never spends more than its account says."""

import numpy as np
import pytest

from tests.privacy.accounting.real_mechanisms import BOUNDS

SETTINGS = 200
CAUGHT = 3  # violations that show that a bound is broken
BROKEN = 2 / 3


def violations(name, credit=1.0, enough=SETTINGS):
    """In how many settings the account is exceeded, each at a delta of its own, if rows stated so much less."""
    found = 0
    for seed in np.random.SeedSequence([17, *name.encode()]).spawn(SETTINGS):
        random = np.random.default_rng(seed)
        delta = 10.0 ** random.uniform(-4, -1)
        found += BOUNDS[name](random).exceeds(delta, credit)
        if found >= enough:
            break
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_the_real_mechanism_never_spends_more_than_its_account(name):
    assert violations(name) == 0


@pytest.mark.parametrize("name", BOUNDS)
def test_an_account_of_less_than_the_sensitivity_is_refuted(name):
    assert violations(name, BROKEN, CAUGHT) == CAUGHT
