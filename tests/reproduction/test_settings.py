"""Claims over settings: how settings are drawn, stored, told apart, counted and chosen."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import JudgedClaim, judge
from experiments.reproduction.measures import final_accuracy
from experiments.reproduction.plan import read_reproduction
from experiments.reproduction.quantities import Estimate, Finding
from experiments.reproduction.settings.design import Axis, Design, drawn
from experiments.reproduction.settings.file import Requirement, read_settings
from experiments.reproduction.settings.judged import (
    FAVOURABLE,
    PLAUSIBLE,
    JudgedSetting,
    accuracy_at,
    chosen,
    never_together,
    over_settings,
    why_not,
    within,
)
from experiments.reproduction.settings.stored_runs import RunHead, RunStore, read_runs, results_from, stored
from experiments.reproduction.settings.studies import SettingStudies, check_figures
from experiments.reproduction.verdict import Verdict
from h2fdp import UserError
from tests.docs.reader import REPOSITORY
from tests.reproduction.settings_file import SETTINGS, folder_with_settings

AXES = {
    "clip": Axis(least=0.5, most=20),
    "step": Axis(least=0.005, most=0.2, over="clip"),
    "count": Axis(of=[1, 3]),
    "batch": Axis(least=1, most=16, whole=True),
}


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), few=st.integers(1, 40), more=st.integers(1, 40))
def test_more_settings_continue_the_fewer_ones_and_stay_within_the_axes(seed, few, more):
    beginning, longer = (drawn(Design(seed=seed, settings=count), AXES) for count in sorted((few, more)))
    assert longer[: len(beginning)] == beginning
    for each in longer:
        assert 0.5 <= each["clip"] <= 20
        assert 0.0049 < each["step"] * each["clip"] < 0.202  # three digits
        assert each["count"] in (1, 3)
        assert 1 <= each["batch"] <= 16


def test_values_are_uniform_by_their_logarithm():
    found = drawn(Design(seed=3, settings=256), AXES)
    logs = [math.log(each["clip"] / 0.5) / math.log(40) for each in found]
    assert kstest(logs, "uniform").statistic < 0.02  # independent draws would have 0.05
    assert sum(each["count"] == 1 for each in found) == 128


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("least: 0.0001", "least: 2", "expected `of:`, or `least:` below `most:`"),
        ("[training.step_size, training.batch_size]", "[training.steps]", "products.both: expected one of training"),
        ("figures: [one]", "figures: [two]", "confirm.figures: expected one of one, found two"),
        ("figures: [one]", "figures: [one], chosen_by: [two]", "confirm.chosen_by: expected one of one, found two"),
        ("most: 1}", "most: 1, over: training.batch_size}", "over: expected an axis above this one"),
        ("trial: {figure: one", "trial: {figure: none", "expected a figure with a sweep, one of one, two, three"),
    ],
)
def test_a_wrong_file_is_told(tmp_path, old, new, told):
    folder = folder_with_settings(tmp_path)
    assert old in SETTINGS
    (folder / "settings.yaml").write_text(SETTINGS.replace(old, new, 1))
    with pytest.raises(UserError, match=r"settings\.yaml") as error:
        check_figures(read_reproduction(folder), read_settings(folder))
    assert told in str(error.value)


def run(values, accuracies, recipe="a", **kept):
    rows = pd.DataFrame({"accuracy": accuracies, "energy_j": [1.0, 2.5], "delay_s": [3.0, 4.0]})
    return stored(RunHead(recipe, "screen", 1, "claimed", "fig4"), values, rows, with_costs=bool(kept))


@settings(max_examples=20, deadline=None)
@given(correct=st.lists(st.integers(0, 10_000), min_size=2, max_size=2))
def test_a_stored_run_is_judged_as_the_run_itself(correct):
    accuracies = [each / 10_000 for each in correct]
    results = results_from([run({"seed": 4, "method": "hfl"}, accuracies, costs=True)])
    assert results.table["accuracy"].tolist() == accuracies
    assert results.table["delay_s"].tolist() == [3.0, 4.0]
    assert final_accuracy(results.table) == final_accuracy(pd.DataFrame({"accuracy": accuracies}))
    assert results.runs_at({"method": "hfl"}) == {4: "a"}


def test_stored_runs_come_back_and_a_later_file_prevails(tmp_path):
    first, second = (RunStore({}, []) for _ in range(2))
    first.add([run({"seed": 1, "topology.trust.share": 1}, [0.1, 0.2]), run({"seed": 2}, [0.3, 0.4], "b")], "one")
    second.add([run({"seed": 1, "topology.trust.share": 1}, [0.5, 0.6])], "two")
    first.write(tmp_path / "first.csv")
    second.write(tmp_path / "second.csv")
    both = read_runs(tmp_path / "first.csv", tmp_path / "second.csv", tmp_path / "none.csv")
    assert both.runs == first.runs | second.runs
    assert both.made == ["one", "two"]
    # an exact share stands for the probability that claims name
    assert results_from(both.runs.values()).runs_at({"topology.trust.probability": 1}) == {1: "a"}
    (tmp_path / "second.csv").write_text((tmp_path / "second.csv").read_text() + "x,y\n")
    with pytest.raises(UserError, match=r"second.csv:4: expected a line of recipe, stage"):
        read_runs(tmp_path / "second.csv")


def claim(**changed):
    values = {"id": "a", "figure": "fig4", "source": "s", "words": "w", "measure": "final accuracy"}
    points = [{"method": "h2fdp", "privacy.epsilon": [0.5, 1, 2]}]
    return Claim(
        **(values | {"comparison": "least rise", "points": points, "paper": {"d": 6}, "tolerance": 1} | changed)
    )


def test_a_claim_is_judged_at_the_points_that_are_there():
    runs = [
        run({"seed": seed, "method": "h2fdp", "privacy.epsilon": epsilon}, [0, 0.1 * epsilon], f"{seed}-{epsilon}")
        for seed in (1, 2)
        for epsilon in (0.5, 2)
    ]
    results = results_from(runs)
    assert judge(claim(), "d", results).verdict is Verdict.NOT_RUN
    smaller = within(claim(), results)
    assert judge(smaller, "d", results).finding.size.value == pytest.approx(15)
    pair = {"comparison": "difference", "points": [[{"privacy.epsilon": 2}, {"privacy.epsilon": 1}]]}
    assert within(claim(**pair), results) is None


def test_a_setting_works_where_every_requirement_is_met():
    runs = [run({"seed": 1, "method": "hfl"}, [0.2, 0.6]), run({"seed": 1, "method": "h2fdp"}, [0.1, 0.3], "b")]
    needs = [Requirement(at={"method": name}, least=30, otherwise=name) for name in ("hfl", "h2fdp")]
    assert accuracy_at({"method": "hfl"}, runs) == pytest.approx(60)
    assert why_not(needs, runs) == ""
    assert why_not([*needs, Requirement(at={"method": "h2fdp"}, least=31, otherwise="no")], runs) == "no"
    assert why_not(needs, runs[:1]) == "h2fdp"


def judged_settings(values, verdicts, plausibilities=(), **setting):
    found = []
    for number, (value, verdict) in enumerate(zip(values, verdicts, strict=True), 1):
        finding = Finding(Estimate(value, value - 1, value + 1), Estimate(value, value - 1, value + 1), 3)
        plausible = plausibilities[number - 1] if plausibilities else None
        axes = {name: of[number - 1] for name, of in setting.items()}
        found.append(JudgedSetting(number, axes, "", {}, plausible, {"a": JudgedClaim(verdict, finding)}))
    return found


def test_claims_are_counted_over_settings_and_the_axis_they_go_with_is_named():
    H, D, F = Verdict.HOLDS, Verdict.IN_DIRECTION, Verdict.FAILS
    numbers = list(range(1, 9))
    found = judged_settings([9, 7, 6, 5, 3, 2, 0, -1], [H, H, D, D, D, F, F, F], batch=numbers, other=[1, 2] * 4)
    axes = {"batch": Axis(least=1, most=9), "other": Axis(least=1, most=9)}
    over = over_settings(claim(), "d", found, axes, {})
    assert (over.judged, over.holds, over.fully, over.reached, over.best) == (8, 5, 2, 4, 1)
    assert over.goes_with == ("batch", pytest.approx(-1))
    assert over.signs == 6
    most = claim(comparison="difference", points=[[{"a": 1}, {"a": 2}]], relation="at most")
    assert over_settings(most, "d", found, axes, {}).signs == 7  # 7 and less
    elsewhere = {**axes, "batch": Axis(least=1, most=9, figures=["fig5"])}
    assert over_settings(claim(), "d", found, elsewhere, {}).goes_with is None
    assert over_settings(claim(), "d", found[:5], axes, {}).goes_with is None  # too few to tell


def test_what_is_run_again_is_the_setting_that_meets_most_claims_and_the_one_that_learns_most():
    found = judged_settings([2, 8, 7, 1], [Verdict.FAILS] * 4, plausibilities=[50, 70, 60, 65])
    assert chosen([claim()], "d", found) == {FAVOURABLE: 2, PLAUSIBLE: 4}  # 2 is taken
    assert chosen([claim()], "d", []) == {}


def test_claims_that_no_setting_meets_together_are_found():
    low, high, any_sign = claim(id="low", relation="at most"), claim(id="high"), claim(id="sign", paper={"d": None})
    found = []
    for number, values in enumerate([(9, 9, 1), (3, 2, 1), (20, 0, 1)], 1):
        estimates = [Estimate(value, value, value) for value in values]
        judged = {
            name: JudgedClaim(Verdict.FAILS, Finding(each, each, 3))
            for name, each in zip(("low", "high", "sign"), estimates, strict=True)
        }
        found.append(JudgedSetting(number, {}, judged=judged))
    assert never_together([low, high, any_sign], "d", found) == [(low, high)]
    assert never_together([low, high], "d", found[1:]) == []  # the second is met nowhere


def test_the_projects_settings_fit_its_figures_and_claims():
    of = read_reproduction(REPOSITORY / "experiments")
    file = read_settings(of.folder)
    check_figures(of, file)
    setting = drawn(file.design, file.axes)[0]
    studies = SettingStudies(of, file)
    assert len(studies.screen(1, setting, "fig4").recipes) == 4 * len(file.screen.seeds)
    assert not set(studies.screen(1, setting, "fig4").recipes) & set(
        studies.screen(2, setting, "fig4").recipes.values()
    )
    decided = studies.decisions(1, drawn(file.decisions.design, file.decisions.axes)[0], "fig8")
    assert len(decided.recipes) == 15 * len(file.decisions.seeds)
