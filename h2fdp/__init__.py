"""h2fdp: hierarchical federated learning with differential privacy, accounted for each observer."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from h2fdp.errors import check_addresses

if TYPE_CHECKING:
    from h2fdp.integrity import check as check
    from h2fdp.network import Topology as Topology
    from h2fdp.reports import report as report
    from h2fdp.run import Experiment as Experiment
    from h2fdp.run import Run as Run
    from h2fdp.run import load_model as load_model
    from h2fdp.run.api import explain as explain
    from h2fdp.run.api import plan as plan
    from h2fdp.run.api import resume as resume
    from h2fdp.sweeps import Sweep as Sweep
    from h2fdp.sweeps import sweep as sweep
    from h2fdp.sweeps.one_curve import Studied as Studied
    from h2fdp.sweeps.one_curve import study as study
    from h2fdp.tuning import Tuned as Tuned
    from h2fdp.tuning import tune as tune

# MKL, which multiplies torch's matrices, reads this at its first product. Without it a product's last bits depend, on
# processors without AVX-512, on how many devices share a stack: equal seeds would not give equal bits on every host.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__version__ = "0.1.0"

# torch takes two seconds to import: names are looked up when they are used, so that `h2fdp --help` answers at once.
_HOMES = {
    "Experiment": "h2fdp.run",
    "Run": "h2fdp.run",
    "load_model": "h2fdp.run",
    "check": "h2fdp.integrity",
    "explain": "h2fdp.run.api",
    "plan": "h2fdp.run.api",
    "report": "h2fdp.reports",
    "resume": "h2fdp.run.api",
    "Sweep": "h2fdp.sweeps",
    "Studied": "h2fdp.sweeps.one_curve",
    "study": "h2fdp.sweeps.one_curve",
    "sweep": "h2fdp.sweeps",
    "Topology": "h2fdp.network",
    "Tuned": "h2fdp.tuning",
    "tune": "h2fdp.tuning",
    "UserError": "h2fdp.errors",
}
__all__ = [*_HOMES, "__version__"]
# Packages that scripts use as h2fdp.network.read(...), without an import of their own.
_PACKAGES = ("algorithms", "errors", "network", "privacy", "run", "schedules")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        check_addresses()
        return getattr(import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return import_module(f"h2fdp.{name}")
    raise AttributeError(f"module 'h2fdp' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
