"""What is optional can be deleted: its files, its rows in registries and its tests go, and the other tests pass.

    python -m benchmarks.deletable                  # each capability of the list, one after another
    python -m benchmarks.deletable moon laplace     # these
    python -m benchmarks.deletable --together       # all in one copy: as strict, since none imports another
    python -m benchmarks.deletable --pytest='-n 3'  # with options or files for pytest

The checkout is copied with its uncommitted changes, and the quick tests run in the copy (`make quick`), after
`docs/keys.md` was written anew. The list only grows. A capability whose rows, files or tests are not as stated, or that
another module of the package imports, fails `tests/benchmarks/test_deletable.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK = "not run and not ray and not process and not slow"
OF_ALL = (  # tests that speak of the whole package and this list
    "tests/benchmarks/test_deletable.py",
    "tests/test_architecture.py::test_the_house_does_not_grow",
    "tests/test_architecture.py::test_the_text_of_each_planted_fault_stands_once",
)
NO_TESTS = 5  # pytest's exit code where none was selected


@dataclass(frozen=True)
class Capability:
    """What is deleted together.

    Attributes:
        files: modules, as paths below `h2fdp/`.
        rows: (path below `h2fdp/`, text that stands there once) of each line or word that registers it.
        tests: files, or single tests of files that test other things too, as pytest names them.
    """

    files: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    tests: tuple[str, ...] = ()


def method(name: str, *tests: str) -> Capability:
    """A file of `algorithms/`, which its package imports."""
    return Capability((f"algorithms/{name}.py",), (("algorithms/__init__.py", f"    {name},  # noqa: F401\n"),), tests)


CAPABILITIES = {
    "buffers": Capability(
        ("schedules/buffered.py", "schedules/event_queue.py", "algorithms/fedat.py"),  # FedAT does not wait, either
        (
            ("schedules/__init__.py", "from h2fdp.schedules import buffered  # noqa: F401 - registers itself\n"),
            ("algorithms/__init__.py", "    fedat,  # noqa: F401\n"),
        ),
        (
            "tests/schedules/test_event_queue.py",
            "tests/costs/test_links.py",
            "tests/protocol/test_buffered_rounds.py",
            "tests/protocol/test_fedat.py",
            "tests/cli/test_mistakes.py::test_a_wrong_value_gets_one_line_and_exit_code_2",
            "tests/cli/test_mistakes.py::test_plan_names_the_line_of_a_schedule_that_it_does_not_plan",
            "tests/protocol/test_liars.py::test_what_liars_do_not_go_with_is_refused",
            "tests/privacy/mechanisms/test_compression.py::test_devices_with_clocks_of_their_own_keep_no_sums",
            "tests/docs/test_links.py::test_every_link_of_a_page_leads_somewhere",  # docs/extending.md names the file
            "tests/experiment/test_method_names.py::test_buffers_are_part_of_a_name_and_other_parameters_are_not",
            "tests/experiment/test_method_names.py::test_settings_reach_into_an_axis_that_a_word_stands_for",
            "tests/experiment/test_method_names.py::test_a_schedule_without_buffers_says_so",
            "tests/experiment/test_relays.py::test_what_needs_subnets_is_refused",
        ),
    ),
    "compression": Capability(
        ("privacy/mechanisms/compression.py",),
        (
            (
                "privacy/__init__.py",
                "from h2fdp.privacy.mechanisms import compression  # noqa: F401 - registers itself\n",
            ),
        ),
        (
            "tests/privacy/mechanisms/test_compression.py",
            "tests/run/test_compressed_runs.py",
        ),
    ),
    "correlated noise": Capability(
        ("privacy/correlated.py",),
        (("privacy/__init__.py", "from h2fdp.privacy import correlated  # noqa: F401 - registers itself\n"),),
        (
            "tests/privacy/test_correlated.py",
            "tests/privacy/test_summed_streams.py",
            "tests/run/test_correlated_runs.py",
        ),
    ),
    "fedat": method("fedat", "tests/protocol/test_fedat.py"),
    "laplace": Capability(
        ("privacy/laplace.py",),
        (("privacy/__init__.py", "from h2fdp.privacy.laplace import Laplace as Laplace\n"),),
        ("tests/privacy/test_laplace.py",),
    ),
    "liars": Capability(
        ("network/adversaries.py", "run/false_records.py"),
        (
            ("network/__init__.py", "from h2fdp.network.adversaries import Adversaries as Adversaries\n"),
            ("run/__init__.py", "from h2fdp.run import false_records  # noqa: F401 - registers itself\n"),
        ),
        (
            "tests/network/test_adversaries.py",
            "tests/protocol/test_liars.py",
            "tests/run/test_lying_runs.py",
        ),
    ),
    "mobility": Capability(
        ("network/mobility.py",),
        (("network/__init__.py", "from h2fdp.network import mobility  # noqa: F401 - registers itself\n"),),
        (
            "tests/network/test_mobility.py",
            "tests/network/walks.py",
            "tests/protocol/test_visits.py",
            "tests/run/test_moving_runs.py",
            "tests/experiments/test_waypoint.py",
            "tests/costs/test_links.py::test_a_handover_goes_over_a_plain_wire",
            "tests/experiment/test_relays.py::test_what_needs_subnets_is_refused",
            "tests/network/test_imports.py::test_how_devices_move_is_part_of_a_summary",
            "tests/protocol/test_liars.py::test_liars_stay_where_they_are",
        ),
    ),
    "moon": method("moon", "tests/run/test_moon.py"),
    "one-shot": method("one_shot", "tests/run/test_one_shot.py", "tests/training/test_class_sums.py"),
    "own models": method("own_models", "tests/run/test_own_models.py"),
    "pfedme": method("pfedme", "tests/experiment/test_rules.py::test_personal_models_have_no_guarantee"),
    "robust rules": Capability(
        ("algorithms/robust.py", "algorithms/by_link.py"),
        tuple(("algorithms/__init__.py", f"    {name},  # noqa: F401\n") for name in ("robust", "by_link")),
        (
            "tests/protocol/test_robust_rules.py",
            "tests/reproduction/test_questions.py::test_every_point_has_five_seeds_and_every_account_is_by_pld[liars]",
        ),
    ),
    "scaffold": method(
        "scaffold",
        *(
            f"tests/experiment/test_rules.py::test_memory_that_outlives_a_release_has_no_guarantee[{placement}-scaffold]"
            for placement in ("hierarchical", "local")
        ),
    ),
    "subnet models": method("subnet_models", "tests/run/test_subnet_models.py"),
}


def copied(folder: Path) -> None:
    """The checkout as it is, without what git ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def delete(capability: Capability, root: Path) -> None:
    """Delete its modules, rows and test files from a copy."""
    for path, text in capability.rows:
        file = root / "h2fdp" / path
        file.write_text(file.read_text(encoding="utf-8").replace(text, "", 1), encoding="utf-8")
    for path in (*(f"h2fdp/{each}" for each in capability.files), *capability.tests):
        if "::" not in path:
            (root / path).unlink()


def failures(capabilities: Iterable[Capability], options: Sequence[str]) -> list[str]:
    """Tests that fail where these are deleted, a line for each.

    Args:
        options: of pytest.
    """
    with tempfile.TemporaryDirectory() as folder:
        copied(root := Path(folder))
        single = [f"--deselect={each}" for each in OF_ALL]
        for capability in capabilities:
            delete(capability, root)
            single += [f"--deselect={each}" for each in capability.tests if "::" in each]

        def module(*words: str) -> subprocess.CompletedProcess[str]:
            there = {**os.environ, "PYTHONPATH": str(root)}  # before what the interpreter has installed
            return subprocess.run([sys.executable, "-m", *words], cwd=root, env=there, capture_output=True, text=True)

        if (page := module("experiments.keys_page")).returncode:
            return page.stderr.strip().splitlines()[-1:]
        done = module(
            "pytest",
            "-m",
            QUICK,
            "-p",
            "no:cacheprovider",
            "--tb=line",
            "-rfE",
            "--continue-on-collection-errors",
            *single,
            *options,
        )
    if done.returncode in (0, NO_TESTS):
        return []
    lines = done.stdout.splitlines()
    return [line for line in lines if line.startswith(("FAILED ", "ERROR "))] or [*lines[-10:], done.stderr]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CAPABILITIES)}; none: each")
    parser.add_argument("--together", action="store_true", help="delete all in one copy")
    parser.add_argument("--pytest", default="", help="options or files for pytest, as one text such as '-n 3'")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in CAPABILITIES]:
        parser.error(f"expected names of {', '.join(CAPABILITIES)}; found {unknown[0]}")
    names: list[str] = given.names or list(CAPABILITIES)
    groups = [names] if given.together else [[name] for name in names]
    wrong = False
    for group in groups:
        began = time.monotonic()
        failed = failures((CAPABILITIES[name] for name in group), given.pytest.split())
        wrong |= bool(failed)
        result = f"{len(failed)} tests fail" if failed else "passes"
        print("\n  ".join([f"without {', '.join(group)}: {result} ({time.monotonic() - began:.0f} s)", *failed]))
    sys.exit(wrong)


if __name__ == "__main__":
    main()
