"""What a `tune:` section must not say: each mistake with file, line and key, before anything is made."""

import pytest

from h2fdp import UserError, tune
from tests.tuning.searches import BASE, search

PRIVATE = BASE.replace("method: hfl", "method: h2fdp")
PUBLIC = "data.public: [0.1]"
STEP = "training.step_size: {uniform: [0.1, 10]}"


@pytest.mark.parametrize(
    ("ranges", "options", "message"),
    [
        ("training.step_sise: [1, 2]", "", "8: training.step_sise: unknown key; did you mean `step_size`?"),
        ("training.step_size: {low: 1, high: 2}", "", "8: tune.ranges.training.step_size.low: unknown key"),
        ("training.step_size: {log: [0, 1]}", "", "expected numbers above 0 on a logarithmic scale, found 0"),
        ('"training.clip_scope, training.clip_norm": [[batch, 1], [batch, 1]]', "", "the value [batch, 1] comes twice"),
        ("privacy.epsilon: [1, 2]", "", "8: tune.ranges.privacy.epsilon: is held by calibration for every setting"),
        ('"seed2, training.intervals": [[1, 2, 3]]', "", "expected a list of 2 values, one for each key"),
        (STEP, "objective: {minimize: joules}", "9: tune.objective: expected a list of measures"),
        (
            STEP,
            "objective: [joules]",
            "9: tune.objective: expected a score, as accuracy, and costs, each once, found [joules]",
        ),
        (STEP, "trails: 5", "9: tune.trails: unknown key; did you mean `trials`?"),
    ],
)
def test_wrong_values_are_told_with_line_and_key(tmp_path, ranges, options, message):
    with pytest.raises(UserError) as error:
        tune(search(tmp_path, ranges, options), out=tmp_path / "out")
    assert message in str(error.value)
    assert f"{tmp_path}/search.yaml:" in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("objective: [accuracy, joules]", "10: tune.objective: one trial is released"),
        ("trials: 100000", "tune.trials: 100000 trials cost more than epsilon 0.0001"),
    ],
)
def test_what_no_account_covers_is_refused(tmp_path, options, message):
    base = PRIVATE + "privacy: {epsilon: 0.0001, calibration: accounted}\n"
    with pytest.raises(UserError) as error:
        tune(search(tmp_path, STEP, options, base))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("keys", "ranges", "message"),
    [
        ("privacy: {calibration: paper}", STEP, "some settings have no noise that is calibrated to an account"),
        ("privacy: {calibration: accounted}", "method.privacy: [central]", "the account covers records, and central"),
        ("privacy: {calibration: accounted}", f"{STEP}\n    {PUBLIC}", "data.public draws public records by the seed"),
    ],
)
def test_trials_without_a_known_account_are_refused(tmp_path, keys, ranges, message):
    base = PRIVATE + keys + "\n"
    with pytest.raises(UserError) as error:
        tune(search(tmp_path, ranges, "", base))
    assert f"tune.privacy: {message}" in str(error.value)
    assert "expected tune.privacy: ignore, or stand_in data, or" in str(error.value)


def test_a_search_that_counts_in_epsilon_knows_one_for_all_devices(tmp_path):
    base = PRIVATE.replace("{count: 2}", "{count: 2, epsilon: 0.5}") + "privacy: {calibration: accounted, epsilon: 3}\n"
    with pytest.raises(UserError, match=r"tune.privacy: trials divide privacy.epsilon, and devices ask for an epsilon"):
        tune(search(tmp_path, STEP, "", base))


@pytest.mark.parametrize(("section", "told"), [("", "empty.yaml: tune: the section is missing; expected ranges")])
def test_an_empty_section_is_told(tmp_path, section, told):
    path = tmp_path / "empty.yaml"
    path.write_text(BASE + section)
    with pytest.raises(UserError, match=told):
        tune(path)


def test_what_is_searched_cannot_be_set_as_well(tmp_path):
    with pytest.raises(UserError, match=r"step_size: is searched; expected --set tune.ranges.training.step_size"):
        tune(search(tmp_path, STEP), ["training.step_size=1"])
