"""Any two features go together or are refused, as the stored table says; `experiments.combinations` runs all pairs."""

import pytest

from experiments.combinations.features import FEATURES, pairs
from experiments.combinations.table import stored
from experiments.combinations.trial import APART, RIGHT, outcome, planned

pytestmark = pytest.mark.usefixtures("users_defaults")
STORED = stored()


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_goes_with_others_or_is_refused_as_stored(feature, tmp_path):
    assert planned((feature,), tmp_path) == (RIGHT, "")
    for pair in pairs():
        if pair[0] == feature and STORED[pair][0] != APART:
            assert planned(pair, tmp_path) == STORED[pair], pair


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_with_another_runs_and_resumes(feature, tmp_path):
    """With that feature among those it goes with whose number in the table comes next after half of them."""
    names = list(FEATURES)
    at = names.index(feature)
    others = [names[(at + step) % len(names)] for step in range(len(names) // 2, len(names))]
    partner = next(each for each in others if STORED.get((feature, each), STORED.get((each, feature)))[0] == RIGHT)
    pair = (feature, partner) if (feature, partner) in STORED else (partner, feature)
    assert outcome(pair, tmp_path) == (RIGHT, "")


def test_the_table_is_of_the_features():
    assert list(STORED) == pairs()
