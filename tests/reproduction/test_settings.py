"""Claims over settings: how settings are drawn, stored, told apart, counted and chosen."""

import pandas as pd
import pytest

from experiments.reproduction.claims import Claim
from experiments.reproduction.plan import read_reproduction
from experiments.reproduction.settings.design import drawn
from experiments.reproduction.settings.file import read_settings
from experiments.reproduction.settings.stored_runs import RunHead, RunStore, read_runs, results_from, stored
from experiments.reproduction.settings.studies import SettingStudies, check_figures
from experiments.reproduction.verdict_store import VERDICTS, read_verdicts
from h2fdp import UserError
from tests.docs.reader import REPOSITORY


def run(values, accuracies, recipe="a", **kept):
    rows = pd.DataFrame({"accuracy": accuracies, "energy_j": [1.0, 2.5], "delay_s": [3.0, 4.0]})
    return stored(RunHead(recipe, "screen", 1, "claimed", "fig4"), values, rows, with_costs=bool(kept))


def test_stored_runs_come_back_and_a_later_file_prevails(tmp_path):
    first, second = (RunStore({}, []) for _ in range(2))
    first.add([run({"seed": 1, "topology.trust.trusted": 1}, [0.1, 0.2]), run({"seed": 2}, [0.3, 0.4], "b")], "one")
    second.add([run({"seed": 1, "topology.trust.trusted": 1}, [0.5, 0.6])], "two")
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


def test_the_projects_settings_fit_its_figures_and_claims():
    of = read_reproduction(REPOSITORY / "experiments" / "reproduction")
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


@pytest.mark.slow
def test_all_stored_runs_and_verdicts_are_of_the_files_as_they_are_now():
    """A stale digest would drop them from the page, and runs of hours would be made again."""
    of = read_reproduction(REPOSITORY / "experiments" / "reproduction")
    file, runs = read_settings(of.folder), read_runs(of.folder / "settings.csv").runs
    every, known = SettingStudies(of, file), set()
    settings = dict(enumerate(drawn(file.design, file.axes), 1))
    controlled = dict(enumerate(drawn(file.decisions.design, file.decisions.axes), 1))
    for stage, number, column, figure in {(run.stage, run.setting, run.column, run.figure) for run in runs.values()}:
        if stage == "decisions":
            study = every.decisions(number, controlled[number], figure)
        elif stage == "trial":
            study = every.trial(number, settings[number])
        else:
            more = (column,) if stage == "confirm" else ()
            study = getattr(every, stage)(number, settings[number], figure, *more)
        known |= set(study.recipes.values())
    assert len(runs) > 6000
    assert not runs.keys() - known
    stored = read_verdicts(of.folder / VERDICTS, of.file.figures).provenance
    compares = {each.id: each.compares for each in of.claims.claims}
    assert all(compares[name] == value for place in stored.values() for name, value in place.compares.items())
