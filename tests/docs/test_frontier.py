"""The page shows what the tables of the frontier hold, and the tables keep the rules of the study."""

import pandas as pd

from experiments.defaults import without_ranges
from experiments.frontier import sources
from experiments.frontier.page import FIRST, PAGE, between, page, read
from experiments.frontier.runs import RUNS, SEARCH_SEED, SEEDS, TRIALS, best
from experiments.programs import between_markers
from tests.docs.reader import REPOSITORY

FOLDER = REPOSITORY / "experiments" / "frontier"
runs, trials = read(FOLDER / RUNS), read(FOLDER / TRIALS)


def test_the_pages_are_what_the_program_writes():
    assert between(PAGE.read_text(), page(runs, trials)) == PAGE.read_text()


def test_pages_of_files_and_of_sources_are_what_their_programs_write():
    for program in (without_ranges, sources):
        written, rows = program.PAGE.read_text(), pd.read_csv(program.CSV, keep_default_na=False)
        assert between_markers(written, program.COMMAND, program.table(rows)) == written


def test_every_point_has_all_seeds_and_no_account_is_above_its_epsilon():
    for (data_set, *_), point in runs.groupby(["data_set", "mechanism", "trust", "epsilon"]):
        seeds = SEEDS if data_set == FIRST else SEEDS[:3]
        assert tuple(sorted(point["seed"])) == seeds
        assert (point["accounted"] <= point["epsilon"]).all()
    assert set(trials["seed"]) == {SEARCH_SEED}


def test_the_settings_that_were_run_are_those_that_the_search_chose():
    numbered = trials.assign(trust=[float(each) if each[0].isdigit() else each for each in trials["trust"]])
    for (data_set, mechanism, trust, epsilon), point in runs.groupby(["data_set", "mechanism", "trust", "epsilon"]):
        if mechanism == "default":
            continue  # searched nothing
        tried = numbered[(numbered["data_set"] == data_set) & (numbered["mechanism"] == mechanism)]
        at = float(trust) if trust[0].isdigit() else trust
        assert set(point["setting"]) == {best(tried, at, epsilon)}, (mechanism, trust, epsilon)
