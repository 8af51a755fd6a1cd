"""What a run leaves behind beside its metrics: inputs, results, summary."""

from __future__ import annotations

import io
import math
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from h2fdp.config.parsing import text_of
from h2fdp.methods import name_of
from h2fdp.models import ParameterLayout
from h2fdp.records import DEVICE_SCHEMA, SCHEMA_VERSION, MetricsRows, RunDirectory, versions, write_columns
from h2fdp.records.atomic import replacing, write_text
from h2fdp.records.json_lines import write_sums
from h2fdp.records.summary import LAST
from h2fdp.run import noise_key, steps
from h2fdp.run.model_scores import ModelScores, device_scores
from h2fdp.run.setup import RunSetup
from h2fdp.run.state import RunState
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.local_hosts import run_arithmetic
from h2fdp.topology.summary import summarise
from h2fdp.topology.yaml_text import yaml_text

FINISHED = ("done", "budget spent", "accuracy reached")  # states of runs that have nothing left to do


def write_inputs(setup: RunSetup, directory: RunDirectory) -> None:
    """Everything needed to run it again, and the key of its noise, which is kept until the run is complete."""
    if setup.has_noise_key:
        noise_key.store(directory, setup.noise_key)
    values = setup.config.model_dump(mode="json", exclude={"tune"})
    values |= {"topology": directory.topology.name, "sweep": {}}
    values |= setup.own.names
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
    steps.reached("results", len(state.rows))
    with run_arithmetic():
        write_columns(directory.devices, device_scores(setup, returned), DEVICE_SCHEMA)
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
        # Whoever knows all records but one could find that one by a digest of them all.
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
