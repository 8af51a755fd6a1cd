"""The epsilon of one DP-SGD run by h2fdp, and by the accountants of other libraries.

    python -m experiments.accounts.libraries [--libraries SITE-PACKAGES]

Prints the table of README.md: a star of one device, neighbours by add-remove, delta 1e-5. Opacus and dp-accounting are
development dependencies. TensorFlow Privacy and JAX Privacy, which account by dp-accounting, are looked for in the
folder that is given, where `pip install --no-deps tensorflow-privacy` and `pip install jax-privacy` have put them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from h2fdp import Experiment, Topology
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.run.forecast import planned_accounts

DELTA = 1e-5
RECORDS = 1000
LIBRARY = "tensorflow_privacy/privacy/analysis/compute_dp_sgd_privacy_lib.py"


class DpSgdRun(NamedTuple):
    """Noise multiplier z, batches drawn at a rate q of the records, and their number."""

    noise_multiplier: float
    sampling_rate: float
    steps: int


RUNS = (
    DpSgdRun(1.1, 0.01, 2000),
    DpSgdRun(0.8, 0.02, 500),
    DpSgdRun(2.0, 0.1, 300),
    DpSgdRun(6.0, 0.5, 100),
    DpSgdRun(20.0, 1.0, 80),
)


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
    return float(made.compose(step, run.steps).get_epsilon(DELTA))


def of_opacus(run: DpSgdRun, accountant: str = "prv") -> float:
    """Opacus by its `prv` (with an error of at most 0.2 %, which is part of it), or its `rdp`."""
    from opacus.accountants import PRVAccountant, RDPAccountant

    made: Any = PRVAccountant() if accountant == "prv" else RDPAccountant()
    made.history = [(run.noise_multiplier, run.sampling_rate, run.steps)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if accountant == "rdp":
            return float(made.get_epsilon(DELTA))
        return float(made.get_epsilon(DELTA, eps_error=2e-3 * made.get_epsilon(DELTA)))


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
        noise_multipliers=run.noise_multiplier, num_samples=RECORDS, delta=DELTA, batch_size=batch
    )
    return float(accountant.compute_epsilon(run.steps, setting))


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


def value(column: Callable[[DpSgdRun], float], run: DpSgdRun) -> float:
    """The epsilon, or nan where the library is not there."""
    try:
        return column(run)
    except (ImportError, StopIteration):
        return math.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", help="a folder with further libraries")
    if folder := parser.parse_args().libraries:
        sys.path.append(folder)
    print("| z | q | steps | " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * (3 + len(COLUMNS)))
    for run in RUNS:
        found = [value(column, run) for column in COLUMNS.values()]
        told = ["-" if math.isnan(each) else f"{each:.4f}" for each in found]
        print(f"| {run.noise_multiplier:g} | {run.sampling_rate:g} | {run.steps} | " + " | ".join(told) + " |")


if __name__ == "__main__":
    main()
