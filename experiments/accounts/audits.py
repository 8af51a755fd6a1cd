"""Audits of each bound with the noise off, at a quarter, and right: the table in experiments/accounts/README.md.

    python -m experiments.accounts.audits

500 devices with four digits each, two to a canary, calibrated by `pld` to an epsilon of 1 for the edge server, which is
the observer. Ten runs or so a minute on one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from h2fdp import Experiment, Topology
from h2fdp.audit.run_audit import Audit, audit

PAGE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- audits begin: python -m experiments.accounts.audits -->", "<!-- audits end -->"
DEVICES, RECORDS, CANARIES = 500, 4, 1000
NOISES = {"off": 1e-6, "a quarter": 0.25, "right": 1.0}
BY_RECORD = {"clip_scope": "record"}
BOUNDS: dict[str, dict[str, Any]] = {
    "`record`, one step": BY_RECORD,
    "`draws`, three steps": {"method": {"input_bound": 8}, "clip_norm": None, "local_steps": 3, "aggregate_every": 3},
    "noise inside, three steps": {"method": {"noise": "steps"}, "local_steps": 3, "aggregate_every": 3, **BY_RECORD},
    "`record`, secure sums of five": {"secure_sum": 1.0, **BY_RECORD},
}


def audited(noise: float, method: dict[str, Any] | None = None, secure_sum: float = 0.0, **settings: Any) -> Audit:
    """One run with so much of the noise that it ought to have."""
    images, labels = load_digits(return_X_y=True)
    inputs = (images / 16).astype(np.float32)

    def records(device: str) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.random.default_rng(list(device.encode())).choice(len(inputs), RECORDS, replace=False)
        return inputs[chosen], labels[chosen]

    training = {"intervals": 4, "local_steps": 1, "aggregate_every": 1, "sampling_rate": 0.5, "step_size": 1.0}
    privacy = {"epsilon": 1.0, "accountant": "pld", "calibration": "accounted", "sensitivity": "tight"}
    network = Topology.regular(edges=DEVICES // 5, devices=5, trust=0.0, secure_sum=secure_sum)
    placed = {"extends": "h2fdp", "privacy": {"name": "hierarchical", **(method or {})}}
    run = Experiment(
        network, records, test_data=(inputs[:20], labels[:20]), method=placed, noise_key="seed",
        model="softmax", training="paper",
        target_observers=["edge"], **training | privacy | settings,
    ).prepare()  # fmt: skip
    return audit(run, "edge", CANARIES, noise_scale=noise)


def table() -> Iterator[str]:
    """A row for each bound."""
    yield "| bound | accounted | " + " | ".join(f"audited, noise {each}" for each in NOISES) + " |"
    yield "|---" * (2 + len(NOISES)) + "|"
    for name, settings in BOUNDS.items():
        found = [audited(noise, **settings) for noise in NOISES.values()]
        accounted = found[0].accounted("pld")
        verdicts = [
            f"{each.epsilon_lower:.2f} ({each.right} of {each.guesses}): "
            + ("refuted" if each.epsilon_lower > accounted else "kept")
            for each in found
        ]
        yield f"| {name} | {accounted:.3f} | " + " | ".join(verdicts) + " |"
        print(name, *verdicts, sep="\n  ", flush=True)


def main() -> None:
    """Run them all and write the table."""
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + "\n".join(table()) + "\n" + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
