"""Data sets that tests need and the repository does not hold: unpacked once, or the test is skipped with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from filelock import FileLock
from hypothesis import settings

from tests.tiers import MARKS, ROOT, TURN, Tiers

# Fixtures import what they patch: the process that hands tests out to workers reads this file too, and imports nothing.

# No deadlines: machines differ, and the first example pays for imports. CI tries the same examples each time, so that
# a change is judged by what it changes; elsewhere every run looks for new ones. A turn has examples of its own.
if TURN == "all":
    settings.register_profile("h2fdp", deadline=None, max_examples=30, derandomize="CI" in os.environ)
else:
    settings.register_profile("h2fdp", deadline=None, max_examples=10, database=None)
settings.load_profile("h2fdp")

# A thread for each worker: several of torch's on the cores that other tests use wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Ray has its workers wait for whoever else computes (niceness 15); here those are the other tests, on the same cores.
os.environ.setdefault("RAY_worker_niceness", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-seconds", action="store_true", help="write what each file took to tests/seconds.json")


def pytest_configure(config: pytest.Config) -> None:
    missing = [place for place in MARKS if not (ROOT / place).exists()]
    if missing:
        raise pytest.UsageError(f"tests/tiers.py marks what is not there: {', '.join(missing)}")
    config.pluginmanager.register(Tiers())  # not hooks of this file: they would not see the doctests of h2fdp


@pytest.fixture(scope="session", autouse=True)
def _noise_by_the_seed() -> Iterator[None]:
    """What tests see of noise stays the same: instead of a key of the operating system there is none but the seed.

    Whoever tests keys has others (`tests.noise_keys`); other processes have the operating system's.
    """
    from h2fdp.records import noise_key

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_key, "drawn", lambda: b"")
        yield


@pytest.fixture(scope="session", autouse=True)
def _noise_by_the_papers_formula() -> Iterator[None]:
    """A test that states no calibration has the paper's, which costs no account; other processes have the default.

    The default has a test of its own (`tests/experiment/test_default_calibration.py`).
    """
    from h2fdp.experiment import sections

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "default_calibration", lambda experiment: "paper")
        yield


@pytest.fixture(scope="session", autouse=True)
def _claims_are_judged_by_renyi_divergences() -> Iterator[None]:
    """What is said of a claim before a run is by `rdp` alone, which takes a hundredth of the time of `pld`.

    The numbers have a test of their own (`tests/run/test_claim_warning.py`).
    """
    from h2fdp.run import preview

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preview, "worst_epsilon", lambda *account: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """What tests write does not have to outlive the machine. A run of a second has thirty waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(os, "fdatasync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _trained_as_in_the_paper() -> Iterator[None]:
    """A test that states no training or model has the paper's, whose rhythm is what most are about, and softmax; other
    processes have the defaults.

    The defaults have tests of their own (`tests/run/test_recipe.py`), which ask for them by `extends: auto`.
    """
    from h2fdp.experiment import training_section
    from h2fdp.models import registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_section, "default_recipe", lambda: "paper")
        patch.setattr(registry, "default_model", lambda: registry.Softmax.model_validate({}))
        yield


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of sweeps and searches are forks of the test's, which has imported everything; a script's are not."""
    from h2fdp.sweeps import pool

    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    monkeypatch.setattr(pool, "_SPAWN", get_context("fork"))


@pytest.fixture
def users_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe and the model of users: both are chosen (the calibration stays that of the tests)."""
    from h2fdp.experiment import training_section
    from h2fdp.models import registry

    monkeypatch.setattr(training_section, "default_recipe", lambda: "auto")
    monkeypatch.setattr(registry, "default_model", lambda: registry.Auto.model_validate({}))


@pytest.fixture(scope="session", autouse=True)
def _every_run_is_intact() -> Iterator[None]:
    """`h2fdp.check` finds nothing wrong with a run that a test makes in this process, when the run ends.

    The first run of each function is checked, and each that goes on after it has ended before: a check takes a quarter
    of the time of a small run, and the others of a test are like these. By thirds of the functions, as random cases.
    """
    from h2fdp.integrity import ENDED, found_in
    from h2fdp.records.directory import RunDirectory, in_use

    write, tests, ended = RunDirectory.write_summary, set[str](), set[Path]()

    def write_and_check(directory: RunDirectory, values: dict[str, Any]) -> None:
        write(directory, values)
        if values.get("state") in ENDED and in_use(directory.path):  # else a test writes it, to spoil it
            test = os.environ["PYTEST_CURRENT_TEST"].partition("[")[0]
            another = TURN != "all" and crc32(test.encode()) % 3 != int(TURN)
            like_others = (another or test in tests) and directory.path not in ended
            tests.add(test)
            ended.add(directory.path)
            if like_others:
                return
            keyless = str(directory.noise_key)  # by the fixture above
            wrong = [str(each) for each in found_in(directory.path).problems if each.where != keyless]
            if wrong:
                pytest.fail(f"a check of this run finds: {'; '.join(wrong)}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "write_summary", write_and_check)
        yield


@pytest.fixture
def h2fdp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The command, in this process: seconds less for each call than one of its own; returns what that would."""
    from h2fdp.cli.main import main

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def called(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["h2fdp", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(arguments, ended.value.code, *capsys.readouterr())

    return called


PUBLISHED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with Fashion-MNIST and MNIST: H2FDP_DATA, or unpacked from ../shared/data (a second)."""
    return _root(tmp_path_factory, "fashion-mnist", "mnist")


@pytest.fixture(scope="session")
def cifar_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with CIFAR-10: H2FDP_DATA, or unpacked from ../shared/data (ten seconds)."""
    return _root(tmp_path_factory, "cifar10")


def _root(tmp_path_factory: pytest.TempPathFactory, *names: str) -> Path:
    if stated := os.environ.get("H2FDP_DATA"):
        return _with_files(Path(stated), names)
    unpack = PUBLISHED / "unpack.py"
    if not unpack.is_file():
        pytest.skip(f"needs {', '.join(names)}: set H2FDP_DATA, or have {unpack}")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # one for all workers
    root = shared / "data-sets"
    with FileLock(shared / "data-sets.lock"):  # files that are there already are left alone
        done = subprocess.run([sys.executable, str(unpack), str(root), *names], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{unpack} failed: {done.stderr.strip().splitlines()[-1]}")
    return root


def _with_files(root: Path, names: tuple[str, ...]) -> Path:
    folders = {"fashion-mnist": "FashionMNIST/raw", "mnist": "MNIST/raw", "cifar10": "cifar-10-batches-py"}
    lacking = [folders[name] for name in names if not (root / folders[name]).is_dir()]
    if lacking:
        pytest.skip(f"H2FDP_DATA={root} lacks {', '.join(lacking)}")
    return root
