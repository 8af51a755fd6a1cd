"""The two files: what is checked, and that those of the project fit each other."""

import json
from pathlib import Path

import pytest
import yaml

from experiments.reproduction.plan import read_reproduction
from h2fdp import UserError
from h2fdp.sweeps.plan import SharedInputs
from tests.reproduction.small import folder

FOLDER = Path(__file__).parents[2] / "experiments" / "reproduction"
SEARCH = FOLDER / "open_parameters"


@pytest.fixture(scope="module")
def project():
    """The files of the project, which take seconds to read."""
    return read_reproduction(FOLDER)


def told(path, **changed):
    with pytest.raises(UserError) as error:
        read_reproduction(folder(path, **changed))
    return str(error.value)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
(("measure: final", "measure: first"), "claims.yaml:3: claims[0]: measure: expected one of final accuracy"),
(("    target: 99\n", ""), "claims.yaml:12: claims[1]: energy to target needs a target"),
(("figure: two", "figure: four"), 'claims.yaml:13: claims[1].figure: expected one of one, two, three, found'),
(("[0.3, 0.03]", "[0.3, 0.04]"), "claims.yaml:19: claims[1].points: expected a point of the grid of two.yaml, "
         "which has it not: {training.step_size: 0.04}"),
(("[0.3, 0.03]", "0.3"), "expected a list of points, or one point in which one key has a list of values"),
],
)  # fmt: skip
def test_a_claim_that_cannot_be_evaluated_is_told_by_its_line(tmp_path, claims, expected):
    assert expected in told(tmp_path, claims=claims)


@pytest.mark.slow
def test_every_part_of_the_project_can_be_run_and_quick_is_smaller(project):
    of, shared = project, SharedInputs()
    runs = {}
    for quick in (False, True):
        data_sets = list(of.file.data_sets)[:1] if quick else of.file.data_sets
        for part in of.parts(of.file.figures, data_sets, quick):
            if of.table(part.figure) is None:
                runs[part, quick] = of.study(part, quick, shared).runs
    for (part, quick), made in runs.items():
        if quick:
            assert len(made) < len(runs[part, False])
        else:
            assert len({run.point.values["seed"] for run in made}) >= 5


def test_the_files_of_the_figures_have_what_the_search_found(project):
    found = json.loads((SEARCH / "open_parameters.json").read_text())
    of = project
    for name, figure in of.file.figures.items():
        if figure.apart:
            continue
        values = yaml.safe_load((FOLDER / figure.file).read_text())
        for key in ("training.batch_size", "training.clip_norm", "training.step_size"):
            section, word = key.split(".")
            assert values[section][word] == found["chosen"][key], (name, key)
    alphas = yaml.safe_load((FOLDER / "fig5.yaml").read_text())["control"]
    assert [alphas["alpha1"], alphas["alpha2"]] == [found["chosen"][f"control.alpha{n}"] for n in (1, 2)]
    rows = next(iter((of.file.figures["fig5"].accounted or {})["sweep"].values()))
    methods = ["h2fdp-adaptive", "h2fdp", "hfl-dp", "pedpfl"]
    assert {(row[0], row[1]) for row in rows} == {(seed, method) for seed in range(1, 6) for method in methods}
    for seed, method, calibration, constant in rows:
        if method == "h2fdp-adaptive":
            least = 2**0.5 * found["factors"][str(seed)]
            assert least <= constant <= 1.001 * least
        else:
            assert (calibration, constant) == ("accounted", pytest.approx(2**0.5))


def test_the_search_has_seeds_of_its_own():
    for name in ("open_parameters", "open_alphas", "open_cifar10"):
        seeds = set(yaml.safe_load((SEARCH / f"{name}.yaml").read_text())["sweep"]["seed"])
        for number in range(4, 11):
            assert not seeds & set(yaml.safe_load((FOLDER / f"fig{number}.yaml").read_text())["sweep"]["seed"])
