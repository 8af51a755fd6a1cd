"""Faults that tests must find: each is planted alone in a copy of the checkout, and the tests that guard it must fail.

    python -m benchmarks.planted_faults                # each fault, against the tests that it names
    python -m benchmarks.planted_faults "noise 2/3"    # these
    python -m benchmarks.planted_faults --turn=1       # against the third of their cases of a turn (`make test TURN=1`)
    python -m benchmarks.planted_faults --quick        # against all quick tests instead (`make quick`)
    python -m benchmarks.planted_faults --all          # against all tests

A fault that no test finds ends in exit code 1, as does one whose text is no longer where it is planted. The named tests
pass without a fault, or the program says so first. A suite that is made faster is shown to be as strict by it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.deletable import QUICK, copied

FAILED = 1  # pytest's exit code where a test failed


@dataclass(frozen=True)
class Fault:
    """One line of the package that is wrong.

    Attributes:
        file: below `h2fdp/`.
        right, wrong: the text, which stands there once, and what is put in its place.
        tests: files that find it.
    """

    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


_LEVELS = "levels = torch.from_numpy(noise_stds.astype(np.float32))[:, None]"
_MEASURED = ("tests/protocol/test_measured_noise.py",)
_SECRET = ("tests/run/test_secret_draws.py",)
FAULTS = {
    "noise 2/3": Fault("privacy/vectors.py", _LEVELS, f"{_LEVELS} * (2 / 3)", _MEASURED),
    "noise 3/2": Fault("privacy/vectors.py", _LEVELS, f"{_LEVELS} * 1.5", _MEASURED),
    "one stream in all slots": Fault(
        "privacy/vectors.py",
        "return streams.key(node, purpose, interval, slot)",
        "return streams.key(node, purpose, interval)",
        _MEASURED,
    ),
    "one stream in all intervals": Fault(
        "streams.py", 'f"{self.seed}|{interval}|{slot}|', 'f"{self.seed}|0|{slot}|', ("tests/test_streams.py",)
    ),
    "one central noise in all intervals": Fault(
        "protocol/cloud.py",
        '"noise-central", plan.interval, plan.last_slot',
        '"noise-central"',
        ("tests/run/test_placements_as_wired.py",),
    ),
    "sensitivity without its factor 2": Fault(
        "privacy/gradient_bounds.py",
        "return 2.0 * step_size * steps * clip_norm * weight",
        "return step_size * steps * clip_norm * weight",
        ("tests/privacy/test_gradient_bounds.py",),
    ),
    "half of a record's own gradient": Fault(
        "privacy/gradient_bounds.py",
        "np.minimum(1.0, 0.5 / batches)",
        "np.minimum(1.0, 0.25 / batches)",
        ("tests/privacy/test_gradient_bounds.py",),
    ),
    "gradients clipped to twice the norm": Fault(
        "training/clipping.py",
        "bound / norms.clamp(min=bound)",
        "2 * bound / norms.clamp(min=2 * bound)",
        ("tests/training/test_clipping.py",),
    ),
    "updates clipped at twice the norm": Fault(
        "privacy/vectors.py",
        "limit = bound * (1 + tolerance)",
        "limit = 2 * bound * (1 + tolerance)",
        ("tests/privacy/test_whole_updates.py",),
    ),
    "a record that is replaced moves sums once": Fault(
        "privacy/releases.py",
        'release.bound == "batch" and certain) else 2.0',
        'release.bound == "batch" and certain) else 1.0',
        ("tests/run/test_adjacency.py", "tests/privacy/test_releases.py"),
    ),
    "a draw in one step of many": Fault(
        "privacy/accounting/mixtures.py",
        "never = (1 - release.sampling_rate) ** release.steps",
        "never = 1 - release.sampling_rate",
        ("tests/privacy/accounting/test_mixtures.py",),
    ),
    "no ledger row of peers": Fault(
        "privacy/releases.py",
        "seen = list(views(uploads, sensitivities, above, levels, peers))",
        "seen = list(views(uploads, sensitivities, above, levels, False))",
        ("tests/privacy/test_releases.py", "tests/protocol/test_any_tree.py"),
    ),
    "no ledger row of the last step": Fault(
        "privacy/releases.py",
        "range(1, int(uploads.steps.max(initial=0)) + 1)",
        "range(1, int(uploads.steps.max(initial=0)))",
        ("tests/protocol/test_noise_of_placements.py", "tests/run/test_epochs_in_accounts.py"),
    ),
    "lost releases are not counted": Fault(
        "run/live_accounts.py", "self.accounts.add(lost)", "lost.clear", ("tests/run/test_resume.py",)
    ),
    "a peer does not know its own noise": Fault(
        "privacy/views.py",
        "_noise_of_others(uploads.parts, 1 + place.tolerance.colluding)",
        "_noise_of_others(uploads.parts, place.tolerance.colluding)",
        ("tests/privacy/test_releases.py", "tests/protocol/test_any_tree.py"),
    ),
    "noise above by share, not its square": Fault(
        "privacy/views.py",
        "variances = [share**2 * vector.variance",
        "variances = [share * vector.variance",
        ("tests/protocol/test_any_tree.py",),
    ),
    "weights by size are equal": Fault(
        "protocol/subnet_facts.py",
        'whole = float(counts.sum()) if weighting == "by-size" else',
        'whole = float(counts.sum()) if weighting == "size" else',
        ("tests/protocol/test_weights_and_noise.py", "tests/protocol/test_protocol_by_hand.py"),
    ),
    "a device is held to the larger of two epsilons": Fault(
        "privacy/own_targets.py",
        "np.minimum(stated, epsilon)",
        "np.maximum(stated, epsilon)",
        ("tests/protocol/test_own_epsilons.py",),
    ),
    "devices that ask for more add no more noise": Fault(
        "protocol/subnet_facts.py",
        "return reach if self.eases is None else reach / self.eases[rows]",
        "return reach",
        ("tests/run/test_own_epsilons.py",),
    ),
    "shares of absent devices are lost": Fault(
        "protocol/messages.py",
        "return np.asarray(kept / np.where(total > 0, total, 1.0))",
        "return np.asarray(kept)",
        ("tests/protocol/test_faults_by_hand.py",),
    ),
    "stale uploads weigh more": Fault(
        "schedules/buffered.py",
        "weights=(1.0 + each.staleness) ** -power",
        "weights=(1.0 + each.staleness) ** power",
        ("tests/protocol/test_buffered_rounds.py", "tests/run/test_buffered_runs.py"),
    ),
    "a budget is exceeded by 5 %": Fault(
        "privacy/budget_filter.py",
        "self.spent(accounts, each) > budget)",
        "self.spent(accounts, each) > 1.05 * budget)",
        ("tests/privacy/test_budget_filter.py",),
    ),
    "a reserve is counted as a whole": Fault(
        "privacy/budget_filter.py",
        "if (rising < 0).any():",
        "if (rising[-1:] < 0).any():",
        ("tests/privacy/test_budget_filter.py",),
    ),
    "rounding moves sums by one cell": Fault(
        "privacy/modular_sums.py",
        "return self.spacing * math.sqrt(self.dimension)",
        "return self.spacing",
        ("tests/privacy/test_modular_sums.py",),
    ),
    "a damaged checkpoint is read": Fault(
        "records/checkpoint.py",
        "if sha256(rest).hexdigest().encode() != digest or version == head:",
        "if version == head:",
        ("tests/records/test_checkpoint.py",),
    ),
    "devices draw by the seed": Fault(
        "privacy/mechanisms/secret_draws.py",
        'generator_of(streams.key(edge, "secret participation", interval), skipped)',
        'generator_of(streams.public.key(edge, "secret participation", interval), skipped)',
        _SECRET,
    ),
    "sums are divided by who came": Fault(
        "privacy/mechanisms/secret_draws.py",
        "(at.steps > 0) / self.rate)",
        "(at.steps > 0) / max((at.steps > 0).mean(), 1e-9))",
        _SECRET,
    ),
    "an interval is as many draws as releases": Fault(
        "privacy/mechanisms/secret_draws.py",
        "squares[part] += (row.sensitivity / row.noise_std) ** 2",
        "squares[part] = (row.sensitivity / row.noise_std) ** 2",
        _SECRET,
    ),
    "an edge server's messages are free": Fault(
        "costs/interval_cost.py",
        "local_wired = link_joules * sent_before[active.subnets]",
        "local_wired = 0 * link_joules * sent_before[active.subnets]",
        ("tests/costs",),
    ),
}


def found(fault: Fault | None, words: Sequence[str], turn: str = "all") -> str | None:
    """The first test that fails where the fault is planted; None where all pass.

    Args:
        fault: None for the checkout as it is.
        words: of pytest: options, files.
        turn: which third of the cases is tried (`tests/tiers.py`): 0, 1, 2 or all.

    Raises:
        AssertionError: the text of the fault does not stand once where it is planted, or pytest could not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        copied(root := Path(folder))
        if fault is not None:
            file = root / "h2fdp" / fault.file
            text = file.read_text(encoding="utf-8")
            assert text.count(fault.right) == 1, f"{fault.file} has {text.count(fault.right)} of {fault.right!r}"
            file.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
        there = {**os.environ, "PYTHONPATH": str(root), "H2FDP_TURN": turn}  # before what the interpreter has installed
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--hypothesis-seed={turn}"]
        command += ["-x", "--tb=line", "-rfE", *words]
        done = subprocess.run(command, cwd=root, env=there, capture_output=True, text=True)
    assert done.returncode in (0, FAILED), done.stdout + done.stderr
    if done.returncode == 0:
        return None
    summary = done.stdout.rpartition("short test summary info")[2]  # a log has lines that begin with ERROR, too
    lines = [line for line in summary.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].split(" - ")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; none: each")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="run all quick tests")
    which.add_argument("--all", action="store_true", help="run all tests")
    parser.add_argument("--turn", default="all", choices=("0", "1", "2", "all"), help="which third of the cases")
    parser.add_argument("--pytest", default="", help="options for pytest, as one text such as '-n 3'")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in FAULTS]:
        parser.error(f"expected names of {', '.join(FAULTS)}; found {unknown[0]}")
    options, names = given.pytest.split(), given.names or list(FAULTS)

    def words(tests: Sequence[str]) -> list[str]:
        chosen = [] if given.all else ["-m", QUICK] if given.quick else list(tests)
        return [*options, *chosen]

    guards = sorted({test for name in names for test in FAULTS[name].tests})
    if broken := found(None, words(guards), given.turn):
        sys.exit(f"without a fault {broken} fails already")
    missed = 0
    for name in names:
        began = time.monotonic()
        test = found(FAULTS[name], words(FAULTS[name].tests), given.turn)
        missed += test is None
        print(f"{name}: {test or 'NO TEST FINDS IT'} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(names) - missed} of {len(names)} faults are found")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
