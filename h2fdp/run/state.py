"""What a run has recorded so far, and when it is written: to checkpoints, and to the files that it leaves behind.

The state outlives the loop, so that a failure loses nothing.
"""

from __future__ import annotations

import io
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from h2fdp.config.parsing import text_of
from h2fdp.methods import name_of
from h2fdp.models import ParameterLayout
from h2fdp.privacy import Observer
from h2fdp.protocol import Cloud, IntervalPlan
from h2fdp.records import SCHEMA_VERSION, Mark, MetricsRows, RunDirectory, about, device_schema, versions, write_columns
from h2fdp.records.atomic import replacing, write_text
from h2fdp.records.checkpoint import save_checkpoint
from h2fdp.records.json_lines import write_sums
from h2fdp.records.summary import LAST
from h2fdp.run import noise_key
from h2fdp.run.live_accounts import LiveAccounts
from h2fdp.run.model_scores import ModelScores, device_scores
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.run.recorders import CostMeter, Journal, MetricsTable, NoiseRange, Recorder, Row, reached
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import RuntimeSection, chosen_backend
from h2fdp.runtime.local_hosts import run_arithmetic
from h2fdp.topology.summary import summarise
from h2fdp.topology.yaml_text import yaml_text


@dataclass
class RunState:
    """A run so far.

    Attributes:
        accounts: the privacy accounts.
        noise: the noises that were used.
        costs: energy, delay, simulated time.
        table: of metrics, a row for each interval that is done.
        nodes: what nodes had learned when the run was left, by their names; empty at the start.
        ledger: the ledger's rows of the intervals that are done; None where the whole file counts.
        decisions: likewise the controller's decisions; None where there are none.
        attempt: see `Streams`.
        fresh: the intervals, from 1, at which a run continued with fresh draws.
        wall_s: seconds that earlier parts of the run took.
        cloud: None until the hosts are up.
        journal: which writes the ledger; None until then, too.
        spent_by: the observer whose budget ended the run.
        called_off: by an exception of whoever watches the run.
    """

    accounts: LiveAccounts
    noise: NoiseRange
    costs: CostMeter
    table: MetricsTable
    nodes: dict[str, Any] = field(default_factory=dict)
    ledger: Mark | None = None
    decisions: Mark | None = None
    attempt: str = ""
    fresh: list[int] = field(default_factory=list)
    wall_s: float = 0.0
    cloud: Cloud | None = None
    journal: Journal | None = None
    spent_by: Observer | None = None
    called_off: bool = False

    @classmethod
    def begun(cls, setup: RunSetup) -> RunState:
        """Nothing is done yet.

        Raises:
            UserError: a privacy budget that the first interval would exceed.
        """
        return cls(
            accounts=LiveAccounts(setup),
            noise=NoiseRange(setup),
            costs=CostMeter(setup),
            table=MetricsTable(setup),
        )

    @classmethod
    def restored(cls, setup: RunSetup, values: Mapping[str, Any], directory: RunDirectory) -> RunState:
        """As it was when `values` were stored; the accounts come from the ledger itself."""
        state = cls.begun(setup)
        for name, recorder in state._recorders.items():
            recorder.load(values[name])
        state.nodes = dict(values["nodes"])
        state.ledger = Mark(**values["ledger"])
        state.decisions = Mark(**values["decisions"])
        state.attempt, state.fresh, state.wall_s = values["attempt"], values["fresh"], values["wall_s"]
        state.accounts.enter(releases_of_ledger(directory.ledger, setup.sizes, end=state.ledger.bytes))
        return state

    @property
    def _recorders(self) -> dict[str, Recorder]:
        """Those whose state goes into checkpoints, by their keys there."""
        return {"watch": self.accounts, "noise": self.noise, "costs": self.costs, "rows": self.table}

    @property
    def rows(self) -> MetricsRows:
        """The rows of the metrics so far."""
        return self.table.rows

    def values(self, journal: Journal) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors, nodes' state by their names."""
        assert self.cloud is not None, "a run is stored between two intervals"
        return {
            "intervals": len(self.rows),
            "nodes": {"cloud": self.cloud.state()},
            "attempt": self.attempt,
            "fresh": self.fresh,
            "wall_s": self.wall_s,
            **journal.state(),
            **{name: recorder.state() for name, recorder in self._recorders.items()},
        }

    def enter_rest(self, setup: RunSetup, directory: RunDirectory) -> None:
        """Enter what the ledger holds beyond the intervals that are done. They were lost, yet their releases were made:
        a run that stops before it has repeated them states these too."""
        if self.journal is not None:
            begin = self.journal.ledger.mark().bytes
        elif self.ledger is not None:
            begin = self.ledger.bytes
        else:
            return  # nothing was released, or all of it is entered already
        self.accounts.enter_lost(releases_of_ledger(directory.ledger, setup.sizes, begin))

    def start(self, cloud: Cloud) -> Cloud:
        """The cloud as it was when the run was left."""
        if "cloud" in self.nodes:
            cloud.load(self.nodes["cloud"])
        self.nodes = {}
        self.cloud = cloud
        return cloud


_SECONDS = 60.0  # from one checkpoint to the next at most: what a lost run repeats


class HostsDiffer(Exception):
    """Intervals cannot be repeated on these hosts: they would not come out the same."""


class Checkpoints(Recorder):
    """Writes checkpoints every `checkpoint_every` intervals or 60 seconds, whichever comes first.

    Args:
        digest: of the environment (`run_digest`); a run that continues in an equal one repeats bits, in others it draws
            afresh.
        journal: whose marks go into a checkpoint.
        hosts_alike: whether the run's hosts compute as this machine does. Where they do not, nobody knows who computes
            what after a resume, so no later environment counts as equal.
        seconds: a clock.

    Raises:
        HostsDiffer: the run is to repeat intervals with the same draws, and its hosts differ.
    """

    def __init__(
        self,
        directory: RunDirectory,
        section: RuntimeSection,
        digest: dict[str, str],
        state: RunState,
        journal: Journal,
        *,
        hosts_alike: bool = True,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._section = section
        self._digest = digest if hosts_alike else digest | {"hardware": secrets.token_hex(16)}
        self._state = state
        self._journal = journal
        self._seconds = seconds
        self._last = self._started = seconds()
        self._saved: int | None = None
        if not hosts_alike and state.ledger is not None:
            raise HostsDiffer

    def begin(self) -> None:
        """Before the first interval of a run, or of its continuation with fresh draws: what it draws from here on is
        on disk before it is used, and nothing can continue from what was before."""
        self._write(alone=True)

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """See `Recorder`; writes a checkpoint if one is due."""
        late = self._seconds() - self._last >= _SECONDS
        if late or len(self._state.rows) % self._section.checkpoint_every == 0:
            self.save()

    def save(self) -> None:
        """Write one now, unless it is there."""
        if self._saved != len(self._state.rows):
            self._write(alone=False)

    def _write(self, *, alone: bool) -> None:
        now, done = self._seconds(), len(self._state.rows)
        values = self._state.values(self._journal) | {"digest": self._digest}
        values["wall_s"] += now - self._started
        self._state.rows.write(self._directory.metrics)
        reached("checkpoint", done)
        path = save_checkpoint(self._directory.checkpoints, done, values, alone=alone)
        self._last, self._saved = now, done
        _log.info("checkpoint", extra=about(interval=done, file=path.name, bytes=path.stat().st_size))


def write_inputs(setup: RunSetup, directory: RunDirectory) -> None:
    """Everything needed to run it again, and the key of its noise, which is kept until the run is complete."""
    if setup.has_noise_key:
        noise_key.store(directory, setup.noise_key)
    values = setup.config.model_dump(mode="json", exclude={"tune"})
    values |= {"topology": directory.topology.name, "sweep": {}}
    values["runtime"] |= {"backend": chosen_backend(setup.config.runtime), "engine": setup.blueprint.engine}
    write_text(directory.topology, yaml_text(setup.drawn))
    write_sums(directory.topology)
    write_text(directory.config, text_of(values))  # last, so that where it is the run can be resumed
    write_sums(directory.config)


def write_results(setup: RunSetup, directory: RunDirectory, state: RunState) -> dict[str, Any]:
    """Write metrics, model and devices' scores.

    Returns:
        for the summary: a digest of the model's file, and the model's scores where it is not the last interval's.
    """
    state.rows.write(directory.metrics)
    if state.cloud is None:
        return {}
    module = setup.blueprint.module()
    returned = state.cloud.returned
    ParameterLayout(module).load(module, returned)
    buffer = io.BytesIO()  # into a file, `torch.save` hides a full disk behind an error of its own
    torch.save(module.state_dict(), buffer)
    with replacing(directory.model) as file:
        file.write(buffer.getbuffer())
    found: dict[str, Any] = {"model_sha256": sha256(buffer.getbuffer()).hexdigest()}
    reached("results", len(state.rows))
    with run_arithmetic():
        write_columns(directory.devices, device_scores(setup, returned), device_schema(setup.topology.compute.columns))
        if torch.equal(returned, state.cloud.model):
            return found
        scores = ModelScores(setup).scores_of(returned)
    return found | {key: scores[key] for key in ("accuracy", "loss")}


def summary_of(setup: RunSetup, state: RunState, end: str, wall_s: float) -> dict[str, Any]:
    """`summary.json`; `end` is how the run ended, or that it is running."""
    rows = state.rows
    scored, losses = rows.column("accuracy"), rows.column("loss")
    recent = [rows[place] for place in range(max(0, len(rows) - LAST), len(rows))]
    last = [row["accuracy"] for row in recent if "accuracy" in row]
    return {
        "schema_version": SCHEMA_VERSION,
        "name": setup.config.name,
        "state": end,
        "method": name_of(setup.config.method),
        "seed": setup.config.seed,
        "backend": chosen_backend(setup.config.runtime),
        "engine": setup.blueprint.engine,
        "intervals": len(rows),
        "accuracy": scored[-1] if scored else None,
        "best_accuracy": max(scored, default=None),
        f"accuracy_mean_last_{LAST}": float(np.mean(last)) if last else None,
        "loss": losses[-1] if losses else None,
        "not_finite_from": not_finite_from(rows),
        **{key: rows[-1][key] if rows else 0.0 for key in ("energy_j", "delay_s", "clock_s")},
        "leaking": setup.leaks,
        "accountant": None if setup.noise is None else setup.accountant,
        "adaptive": setup.adapts,
        "tested_on_devices": setup.data.test_owners is not None,
        "devices": setup.topology.devices,
        "edges": setup.topology.edges,
        "trusted_edges": sum(subnet.trusted for subnet in setup.topology.subnets),
        "secure_sum_edges": sum(subnet.trust == "secure-sum" for subnet in setup.topology.subnets),
        "upper_tiers": summarise(setup.topology).get("tiers", [])[1:],
        "parameters": setup.initial.numel(),
        "data": setup.data.name,
        "public_records": 0 if setup.data.public is None else len(setup.data.public),
        "model_from": setup.warm_start,
        "shape": list(setup.data.shape),
        "image_shape": None if setup.image_shape is None else list(setup.image_shape),
        "standardized_by": None if setup.standardizing is None else setup.standardizing.written(),
        "classes": setup.data.classes,
        # An adversary who knows all records but one could find that one by a digest of them all.
        "data_fingerprint": setup.data.fingerprint() if setup.noise is None else None,
        "noise_key": None if setup.noise is None else setup.config.privacy.noise_key,
        "noise_key_id": noise_key.id_of(setup.noise_key) if setup.has_noise_key else None,
        "noise_std": state.noise.summary(),
        "privacy": state.accounts.summary() if end != "running" else None,
        "budget_spent_by": state.spent_by,
        "fresh_from": state.fresh,
        "wall_s": wall_s,
        "versions": versions(),
    }


def not_finite_from(rows: MetricsRows) -> int | None:
    """The first of the last intervals whose test loss is no finite number; None where the last one's is."""
    found: int | None = None
    for row in rows:
        if "loss" in row:
            found = None if math.isfinite(row["loss"]) else found or row["interval"]
    return found


FINISHED = ("done", "budget spent", "accuracy reached")  # states of runs that have nothing left to do
_log = logging.getLogger(__name__)
