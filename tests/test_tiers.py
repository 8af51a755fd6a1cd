"""A test that does what its marks do not say fails, whichever way it takes; these say nothing."""

import os
import subprocess
from multiprocessing import get_context
from operator import attrgetter
from types import SimpleNamespace

import pytest

from h2fdp.records.directory import RunDirectory
from tests import tiers

TRUE = "/bin/true"


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([TRUE]),
        lambda: os.system(TRUE),
        lambda: os.popen(TRUE),
        lambda: os.spawnv(os.P_WAIT, TRUE, [TRUE]),
        lambda: os.posix_spawn(TRUE, [TRUE], {}),
        lambda: get_context("spawn").Process(target=print).start(),
    ],
    ids=["subprocess", "system", "popen", "spawn", "posix_spawn", "multiprocessing"],
)
def test_a_process_needs_its_mark(start):
    with pytest.raises(pytest.fail.Exception, match="starts a process, but is not marked process"):
        start()


def test_a_run_needs_its_mark(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="makes a run, but is not marked run"):
        RunDirectory(tmp_path).write_summary({})


def test_a_long_computation_needs_its_mark(request, monkeypatch):
    step = tiers._not_for_long(request.node)
    next(step)
    with monkeypatch.context() as short:
        short.setattr(tiers, "LONGEST_S", -1.0)
        with pytest.raises(pytest.fail.Exception, match="s, but is not marked slow"):
            step.send(None)


nodeid = attrgetter("nodeid")
VALUES = [object() for _ in range(20)]


def case(file, **numbers):
    """Of a test in this file; its parameters have values of these numbers."""
    name = f"{file}::test[{'-'.join(f'{each}{number}' for each, number in numbers.items())}]"
    marks = [SimpleNamespace(args=(each, [])) for each in numbers]
    callspec = SimpleNamespace(params={name: VALUES[number] for name, number in numbers.items()})
    return SimpleNamespace(path=tiers.ROOT / file, nodeid=name, callspec=callspec, iter_markers=lambda name: marks)


def slow_are(monkeypatch, *functions):
    monkeypatch.setattr(tiers, "_stored", lambda: {"functions": dict.fromkeys(functions, 9.0)})
    monkeypatch.setattr(tiers, "_turns", dict)


def tried(cases, turn, monkeypatch):
    monkeypatch.setattr(tiers, "TURN", turn)
    levels = tiers._levels(cases)
    turning = tiers._turning(cases, levels)
    return [each for each in cases if tiers._is_tried(each, levels, turning)]


def test_the_thirds_of_the_random_cases_are_all_of_them_and_share_none(monkeypatch):
    file, numbered = next(iter(tiers.DRAWN.items()))
    cases = [case(file, **dict.fromkeys(numbered, number)) for number in range(20)]
    others = [case("tests/test_tiers.py", seed=number) for number in range(3)] + [case(file, method=1)]
    thirds = [tried([*cases, *others], turn, monkeypatch) for turn in "012"]
    assert all(each[-4:] == others for each in thirds)
    assert sorted(map(nodeid, (each for third in thirds for each in third[:-4]))) == sorted(map(nodeid, cases))
    assert [len(each) - 4 for each in thirds] == [7, 7, 6]
    assert tried(cases, "all", monkeypatch) == cases


@pytest.mark.parametrize("methods", [3, 4, 7])
def test_a_third_of_the_cases_of_a_slow_test_has_every_network_and_every_method(monkeypatch, methods):
    """Three turns have each case once; tests that are fast, or have no case for each turn, are tried as a whole."""
    cases = [case("tests/a.py", network=one, method=other) for one in range(3) for other in range(methods)]
    whole = [case("tests/b.py", number=one) for one in range(4)] + [case("tests/c.py", number=one) for one in range(2)]
    slow_are(monkeypatch, "tests/a.py::test", "tests/c.py::test")
    thirds = [tried([*cases, *whole], turn, monkeypatch) for turn in "012"]
    for third in thirds:
        assert third[-6:] == whole
        for parameter, many in (("network", 3), ("method", methods)):
            assert len({each.callspec.params[parameter] for each in third[:-6]}) == many
    assert sorted(map(nodeid, (each for third in thirds for each in third[:-6]))) == sorted(map(nodeid, cases))


def test_parameters_that_have_their_values_together_count_once(monkeypatch):
    slow_are(monkeypatch, "tests/a.py::test")
    for names in ("a, b, c", ("a", "b", "c")):
        cases = [case("tests/a.py", a=one, b=one // 2, c=one) for one in range(6)]
        for each in cases:
            each.iter_markers = lambda name, names=names: [SimpleNamespace(args=(names, []))]
        assert [len(tried(cases, turn, monkeypatch)) for turn in "012"] == [2, 2, 2]


@pytest.mark.parametrize("file", [each for each in tiers.DRAWN if (tiers.ROOT / each).exists()])
def test_what_numbers_random_cases_is_a_parameter_there(file):
    text = (tiers.ROOT / file).read_text()
    for name in tiers.DRAWN[file]:
        fixture = "params=" in text and f"def {name}(request)" in text
        assert fixture or f'parametrize("{name}", ' in text, name


def test_files_that_take_long_begin_first_and_new_ones_before_all():
    took = tiers._stored()["files"]
    longest, shortest = max(took, key=took.get), min(took, key=took.get)
    files = ["tests/new.py", longest, shortest]
    began = sorted(map(case, reversed(files)), key=tiers._how_soon)
    assert [each.path for each in began] == [tiers.ROOT / file for file in files]


HERE, OTHER = "tests/test_tiers.py", "tests/test_streams.py"


def test_seconds_replace_those_of_the_same_files_and_forget_files_that_are_gone(monkeypatch):
    monkeypatch.setattr(tiers, "TURN", "all")
    before = {"files": {"tests/gone.py": 9.0, HERE: 3.0, OTHER: 2.0}, "functions": {f"{HERE}::a": 3.0}}
    before["tests"] = {f"{HERE}::a[1]": 3.0, f"{OTHER}::a": 2.0}
    assert tiers.merged(before, {f"{HERE}::b": 0.7, f"{HERE}::c[1]": 0.4, f"{HERE}::c[2]": 0.4}) == {
        "files": {OTHER: 2.0, HERE: 1.5},
        "functions": {f"{HERE}::c": 0.8},
        "tests": {f"{OTHER}::a": 2.0, f"{HERE}::b": 0.7},
    }


def test_a_turn_keeps_the_seconds_of_what_had_another_turn(monkeypatch):
    monkeypatch.setattr(tiers, "TURN", "1")
    known = "test_a_process_needs_its_mark", "test_a_run_needs_its_mark"
    cases, other = (f"{HERE}::{name}" for name in known)
    before = {"files": {HERE: 3.0}, "functions": {cases: 5.0, f"{HERE}::gone": 2.0}}
    before["tests"] = {f"{cases}[1]": 3.0, f"{cases}[2]": 2.0, other: 4.0, f"{HERE}::gone[1]": 2.0}
    after = tiers.merged(before, {f"{cases}[2]": 0.6, f"{HERE}::b": 0.2})
    assert after["functions"] == {cases: 5.0}
    assert after["tests"] == {f"{cases}[1]": 3.0, f"{cases}[2]": 0.6, other: 4.0}


def test_what_takes_long_has_a_turn_but_for_the_guards_of_planted_faults(monkeypatch):
    turns = tiers._turns()
    took = tiers._stored()["tests"] | tiers._stored()["files"]
    sums = [sum(took[each] for each in turns if turns[each] == turn) for turn in range(3)]
    assert max(sums) < 1.05 * min(sums)
    assert not any(each.startswith(tuple(tiers.GUARDS)) for each in turns)
    assert set(tiers.TOGETHER) <= set(turns)
    longest = max((each for each in turns if "::" in each), key=took.get)
    alone = SimpleNamespace(path=tiers.ROOT / longest.partition("::")[0], nodeid=longest)
    other = SimpleNamespace(path=tiers.ROOT / HERE, nodeid=f"{HERE}::test")
    thirds = [tried([alone, other], turn, monkeypatch) for turn in "012"]
    assert sorted(map(len, thirds)) == [1, 1, 2]
