"""What a `tune:` section must not say: each mistake with file, line and key, before anything is made."""

import pytest

from h2fdp import UserError, tune
from h2fdp.sweeps.study import SharedInputs
from h2fdp.tuning.plan import read_plan
from tests.tuning.searches import BASE, search

PRIVATE = BASE.replace("method: hfl", "method: h2fdp")
PUBLIC = "data.public: [0.1]"
STEP = "training.step_size: {uniform: [0.1, 10]}"


@pytest.mark.parametrize(
    ("ranges", "options", "message"),
    [
        ("training.step_sise: [1, 2]", "", "8: training.step_sise: unknown key; did you mean `step_size`?"),
        (
            "training.step_size: {low: 1, high: 2}",
            "",
            "8: tune.ranges.training.step_size.low: unknown key",
        ),
        ("training.step_size: {uniform: [1, 1]}", "", "step_size: expected two ascending numbers, found 1 and 1"),
        ("training.step_size: {log: [0, 1]}", "", "expected numbers above 0 on a logarithmic scale, found 0"),
        ("training.batch_size: [8, 8.0]", "", "8: tune.ranges.training.batch_size: the value 8.0 comes twice"),
        ('"training.clip_scope, training.clip_norm": [[batch, 1], [batch, 1]]', "", "the value [batch, 1] comes twice"),
        ("training.step_size: []", "", "expected a range {uniform: [low, high]} or {log: [low, high]}, or a list of"),
        ("training.step_size: {uniform: [-1, 1]}", "", "8: training.step_size: expected a number from 1e-9 to 1e9"),
        ("training.intervals: [2, two]", "", "8: training.intervals: expected a whole number of at least 1"),
        ("privacy.epsilon: [1, 2]", "", "8: tune.ranges.privacy.epsilon: is held by calibration for every setting"),
        ("data.validation: [0.1]", "", "tune.ranges.data.validation: is the same for all trials: data.validation"),
        ('"training.intervals, training.intervals": [[1, 2]]', "", "tune.ranges.training.intervals: is searched twice"),
        ('"seed2, training.intervals": [[1, 2, 3]]', "", "expected a list of 2 values, one for each key"),
        ("training.batch_size: [2, 4]", "", "tune.ranges.training.batch_size: is in sweep too"),
        (STEP, "trials: 1", "9: tune.trials: expected a whole number from 2 to 100000, found 1"),
        (STEP, "objective: {minimize: joules}", "9: tune.objective: expected a list of measures"),
        (STEP, "objective: [joules]", "9: tune.objective: expected accuracy and costs, each once, found [joules]"),
        (STEP, "limits: {joule: 3}", "9: tune.limits.joule: expected one of joules, seconds, bytes"),
        (STEP, "trails: 5", "9: tune.trails: unknown key; did you mean `trials`?"),
        (STEP, "validation: 0.2", "9: tune.validation: unknown key; did you mean `data.validation`?"),
        (STEP, "privacy: public", '9: tune.privacy: expected account or ignore, found "public"'),
        (STEP, "privacy: ignore\n  stand_in: digits", "9: tune.privacy: means nothing with stand_in"),
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
        ("privacy: {delta: 1.0e-5}", "method: [hfl, h2fdp]", "some settings have no noise that is calibrated"),
        ("privacy: {calibration: accounted}", "method.privacy: [central]", "the account covers records, and central"),
        (
            "privacy: {calibration: accounted}",
            f"{STEP}\n    {PUBLIC}",
            "data.public draws public records by the seed",
        ),
    ],
)
def test_trials_without_a_known_account_are_refused(tmp_path, keys, ranges, message):
    base = PRIVATE + keys + "\n"
    with pytest.raises(UserError) as error:
        tune(search(tmp_path, ranges, "", base))
    assert f"tune.privacy: {message}" in str(error.value)
    assert "expected tune.privacy: ignore, or stand_in data, or" in str(error.value)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("", "empty.yaml: tune: the section is missing; expected ranges"),
        ("tune:\n\n\nname: a\n", "empty.yaml:6: tune: the section is empty; expected ranges"),
        ("tune: {}\n", "empty.yaml:6: tune: the section is empty; expected ranges"),
    ],
)
def test_an_empty_section_is_told(tmp_path, section, told):
    path = tmp_path / "empty.yaml"
    path.write_text(BASE + section)
    with pytest.raises(UserError, match=told):
        tune(path)


def test_what_is_searched_cannot_be_set_as_well(tmp_path):
    with pytest.raises(UserError, match=r"step_size: is searched; expected --set tune.ranges.training.step_size"):
        tune(search(tmp_path, STEP), ["training.step_size=1"])


def test_values_that_exclude_each_other_are_no_mistake_unless_they_never_fit(tmp_path):
    ranges = "method.objective: [plain, scaffold]\n    method.server: [average{}]"
    plan = read_plan(search(tmp_path, ranges.format(", scaffold"), "privacy: ignore"), (), SharedInputs())
    assert plan.space.keys == ("method.objective", "method.server")
    with pytest.raises(UserError, match=r"search.yaml:9: method.server: scaffold keeps its state"):
        read_plan(search(tmp_path, ranges.format(""), "privacy: ignore"), (), SharedInputs())
