"""Epsilons by h2fdp and by the accountants of other libraries: DP-SGD runs, whole devices, random allocation.

    python -m experiments.accounts.libraries [--libraries SITE-PACKAGES]

Prints the tables of README.md: a star of one device, neighbours by add-remove, delta 1e-5; whole devices in secret
draws and in turns; random allocation. Opacus and dp-accounting are development dependencies. TensorFlow Privacy and JAX
Privacy, which account by dp-accounting, are looked for in the folder that is given, where `pip install --no-deps
tensorflow-privacy` and `pip install jax-privacy` have put them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from h2fdp import Experiment, Topology
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.run.forecast import planned_accounts
from h2fdp.run.preview import privacy_report

DELTA = 1e-5
RECORDS = 1000
LIBRARY = "tensorflow_privacy/privacy/analysis/compute_dp_sgd_privacy_lib.py"


class DpSgdRun(NamedTuple):
    """Noise multiplier z, batches drawn at a rate q of the records, and their number."""

    noise_multiplier: float
    sampling_rate: float
    steps: int
    delta: float = DELTA


RUNS = (
    DpSgdRun(1.1, 0.01, 2000),
    DpSgdRun(0.8, 0.02, 500),
    DpSgdRun(2.0, 0.1, 300),
    DpSgdRun(6.0, 0.5, 100),
    DpSgdRun(20.0, 1.0, 80),
)


class DeviceRun(NamedTuple):
    """Whole devices below trusted edge servers: drawn in secret with a probability, or in every b-th interval (turns).

    Attributes:
        several: releases of an interval.
    """

    rate: float
    noise_multiplier: float
    intervals: int
    several: int
    delta: float
    turns: int = 1

    @property
    def equivalent(self) -> DpSgdRun:
        """The Poisson-subsampled Gaussians that have the same account: all releases of an interval are one."""
        noise = self.noise_multiplier / math.sqrt(self.several)
        return DpSgdRun(noise, self.rate, self.intervals // self.turns, self.delta)


DEVICE_RUNS = (
    DeviceRun(0.5, 1.0, 1, 1, 1e-2),
    DeviceRun(0.1, 0.6, 10, 1, 1e-5),
    DeviceRun(0.01, 0.8, 200, 1, 1e-6),
    DeviceRun(0.3, 2.0, 30, 2, 1e-5),
    DeviceRun(0.05, 1.5, 60, 4, 1e-4),
    DeviceRun(0.9, 3.0, 20, 2, 1e-9),
    DeviceRun(0.001, 0.7, 1500, 1, 1e-12),
    DeviceRun(0.2, 4.0, 100, 5, 1e-8),
    DeviceRun(0.02, 5.0, 1000, 20, 1e-3),
    DeviceRun(0.7, 1.0, 3, 3, 1e-7),
    DeviceRun(1.0, 8.0, 40, 1, 1e-12),
    DeviceRun(1.0, 3.0, 40, 1, 1e-5, turns=5),
)


def of_devices(run: DeviceRun) -> float:
    """What the ledger of such an experiment adds up to for all observers but the edge servers, which are trusted."""
    edges = [{"name": name, "trusted": True, "devices": {"count": 2 * run.turns}} for name in "ab"]
    draw = {"participation": {"rate": run.rate, "secret": True}} if run.rate < 1 else {"device_turns": run.turns}
    experiment = Experiment(
        topology={"name": "devices", "edges": edges},
        data={"name": "digits", "partition": "iid"},
        model="softmax",
        method={"extends": "h2fdp", "privacy": {"name": "devices", "noise_multiplier": run.noise_multiplier}},
        calibration="paper",
        intervals=run.intervals,
        local_steps=run.several,
        aggregate_every=1,
        batch_size=8,
        clip_norm=0.5,
        delta=run.delta,
        **draw,
    )
    observers = privacy_report(experiment.prepare())["observers"]
    assert observers["edge"]["pld"] is None
    (found,) = {observers[each]["pld"] for each in ("peer", "cloud", "public")}
    return float(found)


def of_h2fdp(run: DpSgdRun, accountant: str = "pld") -> float:
    """What the ledger of such an experiment adds up to, by `pld` or `rdp`."""

    def records(device: str) -> tuple[Any, Any]:
        return np.zeros((RECORDS, 1), dtype=np.float32), np.arange(RECORDS) % 2

    experiment = Experiment(
        topology=Topology.regular(edges=1, devices=1),
        data=records,
        test_data=records("test"),
        model="softmax",
        training="paper",
        method={"topology": "star", "privacy": {"name": "dp-sgd", "noise_multiplier": run.noise_multiplier}},
        adjacency="add-remove",
        sampling_rate=run.sampling_rate,
        intervals=run.steps,
        local_steps=1,
        epsilon=20.0,  # more than any of these runs spends
        delta=DELTA,
    )
    (held,) = planned_accounts(experiment.prepare()).classes("cloud")
    return ACCOUNTANTS[accountant].epsilon(held.composition, DELTA)


def of_dp_accounting(run: DpSgdRun, accountant: str = "pld") -> float:
    """By Google's library."""
    import dp_accounting

    made: Any = dp_accounting.pld.PLDAccountant() if accountant == "pld" else dp_accounting.rdp.RdpAccountant()
    step = dp_accounting.PoissonSampledDpEvent(run.sampling_rate, dp_accounting.GaussianDpEvent(run.noise_multiplier))
    return float(made.compose(step, run.steps).get_epsilon(run.delta))


def of_opacus(run: DpSgdRun, accountant: str = "prv") -> float:
    """Opacus by its `prv` (with an error of at most 0.2 %, which is part of it), or its `rdp`."""
    from opacus.accountants import RDPAccountant

    if accountant == "prv":
        return bounds_of_opacus(run)[1]
    made: Any = RDPAccountant()
    made.history = [(run.noise_multiplier, run.sampling_rate, run.steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(made.get_epsilon(run.delta))


def bounds_of_opacus(run: DpSgdRun) -> tuple[float, float]:
    """Between which its `prv` says that epsilon lies, 0.2 % on either side of its estimate."""
    from opacus.accountants import PRVAccountant

    made: Any = PRVAccountant()
    made.history = [(run.noise_multiplier, run.sampling_rate, run.steps)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = 2e-3 * made.get_epsilon(run.delta)
        law = made._get_dprv(eps_error=error, delta_error=run.delta / 1000)
        low, _, high = law.compute_epsilon(run.delta, run.delta / 1000, error)
    return float(low), float(high)


def of_tensorflow_privacy(run: DpSgdRun) -> float:
    """Its statement about one example without micro-batches, by PLD; read from its file, which needs no TensorFlow."""
    path = next(Path(each) / LIBRARY for each in sys.path if (Path(each) / LIBRARY).is_file())
    specification = importlib.util.spec_from_file_location("compute_dp_sgd_privacy_lib", path)
    assert specification is not None
    assert specification.loader is not None
    library = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(library)
    by_pld = library.AccountantType.PLD
    epochs = run.steps * run.sampling_rate
    return float(
        library._compute_dp_sgd_example_privacy(epochs, run.noise_multiplier, DELTA, False, run.sampling_rate, by_pld)
    )


def of_jax_privacy(run: DpSgdRun) -> float:
    """Its accountant of DP-SGD training, by PLD."""
    accounting = importlib.import_module("jax_privacy.accounting")
    accountant = accounting.DpsgdTrainingAccountant(dp_accountant_config=accounting.PldAccountantConfig())
    batch = round(run.sampling_rate * RECORDS)
    setting = accounting.DpParams(
        noise_multipliers=run.noise_multiplier, num_samples=RECORDS, delta=run.delta, batch_size=batch
    )
    return float(accountant.compute_epsilon(run.steps, setting))


def allocated_by_jax_privacy(batches: int, noise: float, epsilon: float) -> tuple[float, float]:
    """Random allocation, one epoch of so many batches: delta at this epsilon by draws of its balls-in-bins loss, in the
    direction in which it is larger, and the half of its 95 % interval."""
    sampling = importlib.import_module("jax_privacy.batch_selection")
    draws = importlib.import_module("jax_privacy.experimental.monte_carlo.sample_generation")
    epoch, found = sampling.BallsInBinsSampling(cycle_length=batches, iterations=batches), []
    for there in (True, False):
        losses, _ = draws.get_privacy_loss_sample(epoch, noise, np.ones(1), 1, there, num_samples=DRAWS)
        parts = -np.expm1(np.minimum(epsilon - losses, 0.0))
        found.append((float(parts.mean()), float(1.96 * parts.std() / math.sqrt(DRAWS))))
    return max(found)


DRAWS = 20_000
ALLOCATED = ((10, 1.0), (38, 0.8), (100, 0.6), (300, 1.0))  # batches, noise multiplier
DELTA_OF_DRAWS = 1e-2  # which so many draws can tell

COLUMNS: dict[str, Callable[[DpSgdRun], float]] = {
    "h2fdp `pld`": of_h2fdp,
    "dp-accounting PLD": of_dp_accounting,
    "Opacus PRV": of_opacus,
    "TensorFlow Privacy PLD": of_tensorflow_privacy,
    "JAX Privacy PLD": of_jax_privacy,
    "h2fdp `rdp`": lambda run: of_h2fdp(run, "rdp"),
    "dp-accounting RDP": lambda run: of_dp_accounting(run, "rdp"),
    "Opacus RDP": lambda run: of_opacus(run, "rdp"),
}


def value(column: Callable[[Any], float], run: DpSgdRun | DeviceRun) -> float:
    """The epsilon, or nan where the library is not there."""
    try:
        return column(run)
    except (ImportError, StopIteration):
        return math.nan


DEVICE_COLUMNS: dict[str, Callable[[DeviceRun], float]] = {
    "h2fdp `pld`": of_devices,
    "dp-accounting PLD": lambda run: of_dp_accounting(run.equivalent),
    "JAX Privacy PLD": lambda run: of_jax_privacy(run.equivalent),
    "Opacus PRV, lower": lambda run: bounds_of_opacus(run.equivalent)[0],
    "upper": lambda run: bounds_of_opacus(run.equivalent)[1],
    "Opacus RDP": lambda run: of_opacus(run.equivalent, "rdp"),
}


def rows(
    runs: Iterable[DpSgdRun | DeviceRun], head: str, columns: Mapping[str, Callable[[Any], float]]
) -> Iterator[str]:
    """A table: the settings of each run, then its epsilons."""
    yield f"| {head} | " + " | ".join(columns) + " |"
    yield "|" + "---|" * (head.count("|") + 1 + len(columns))
    for run in runs:
        found = [value(column, run) for column in columns.values()]
        shown = ["-" if math.isnan(each) else f"{each:.4f}" for each in found]
        yield "| " + " | ".join(f"{each:g}" for each in run[: head.count("|") + 1]) + " | " + " | ".join(shown) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", help="a folder with further libraries")
    if folder := parser.parse_args().libraries:
        sys.path.append(folder)
    for row in rows(RUNS, "z | q | steps", COLUMNS):
        print(row, flush=True)
    for row in rows(DEVICE_RUNS, "q | z | intervals | releases in each | delta | turns", DEVICE_COLUMNS):
        print(row, flush=True)
    print("| batches | z | h2fdp `pld` | delta at it, JAX Privacy's draws |\n|---|---|---|---|")
    for batches, noise in ALLOCATED:
        release = ReleaseType(noise, 1, 1 / batches, "allocated")
        epsilon = ACCOUNTANTS["pld"].epsilon({release: 1}, DELTA_OF_DRAWS)
        try:
            delta, half = allocated_by_jax_privacy(batches, noise, epsilon)
        except ImportError:
            delta, half = math.nan, math.nan
        print(f"| {batches} | {noise:g} | {epsilon:.4f} | {delta:.5f} ± {half:.5f} |", flush=True)


if __name__ == "__main__":
    main()
