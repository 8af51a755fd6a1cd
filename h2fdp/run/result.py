"""The files of a run, written at its start and its end, and read again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from h2fdp.arithmetic import run_arithmetic
from h2fdp.config.own_parts import OwnPart
from h2fdp.config.parsing import text_of
from h2fdp.costs.kinds import counted_in
from h2fdp.data.statistics import Standardizing
from h2fdp.data.targets import Target
from h2fdp.errors import UserError, no_directory
from h2fdp.experiment.training_section import END_COLUMNS
from h2fdp.methods import name_of
from h2fdp.models.construct import ParameterLayout, build, source_of
from h2fdp.models.registry import CHOICES, ModelSection
from h2fdp.network.files import yaml_text
from h2fdp.network.summary import summarise
from h2fdp.records import noise_key
from h2fdp.records.atomic import replacing, write_text
from h2fdp.records.directory import (
    SCHEMA_VERSION,
    SUMMARY,
    RunDirectory,
    read_summary,
    scored,
    versions,
    worst_epsilons,
)
from h2fdp.records.json_lines import check_lines, write_sums
from h2fdp.records.log import about
from h2fdp.records.tables import MetricsRows, accountant_of_metrics, device_schema, read_table, write_columns
from h2fdp.run.encoders import features_of
from h2fdp.run.live_accounts import notes
from h2fdp.run.model_scores import ModelScores, computing, device_scores
from h2fdp.run.prelude import apart_after
from h2fdp.run.privacy import RunPrivacy
from h2fdp.run.recorders import RunState, signal_step
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import chosen_backend
from h2fdp.wording import curve_svg, facts_html, judged_by, short_score, word

if TYPE_CHECKING:
    import pandas as pd

# States of runs that have nothing left to do.
FINISHED = ("done", "budget spent", *(f"{measure} reached" for measure in END_COLUMNS))
_log = logging.getLogger(__name__)


class WithInputs(nn.Module):
    """Inputs to scores: changed as in the run, then what the trained model makes of them.

    Args:
        change: (n, *shape) -> what the model was trained on, alike for each record.
        model: maps these to scores.
    """

    def __init__(self, change: Callable[[NDArray[np.float32]], NDArray[np.float32]], model: nn.Module) -> None:
        super().__init__()
        self.change, self.model = change, model

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, *shape) -> (n, classes), where the inputs are; no gradient reaches them."""
        numbers = inputs.detach() if isinstance(self.change, Standardizing) else inputs.detach().float()
        changed = torch.from_numpy(self.change(numbers.cpu().numpy()))
        scores: Tensor = self.model(changed.to(inputs.device))
        return scores


class InUnits(nn.Module):
    """A model's scores (n, 1) as real values in the units of the data."""

    def __init__(self, model: nn.Module, shift: float, scale: float) -> None:
        super().__init__()
        self.model, self.shift, self.scale = model, shift, scale

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, *shape) -> (n, 1)."""
        values: Tensor = self.model(inputs) * self.scale + self.shift
        return values


def whole(model: nn.Module, summary: dict[str, Any], spec: ModelSection) -> nn.Module:
    """The trained model of a run, of inputs as they were before the run changed them; images from 0 to 1. Real values
    are in their units."""
    shape, target = tuple(summary["shape"]), summary.get("target") or {}
    if target.get("task") == "regression":
        model = InUnits(model, target["shift"], target["scale"])
    if stated := summary.get("standardized_by"):
        model = WithInputs(Standardizing.read(stated, shape), model)
    if summary.get("image_shape"):
        features = features_of(spec, tuple(summary["image_shape"]))
        assert features is not None, "records are images where the model has features of them"
        return WithInputs(features, model)
    return model


@dataclass(frozen=True, repr=False)
class Run:
    """A finished (or stopped) run, read from its directory: `h2fdp.Run("runs/first")`.

    Raises:
        UserError: it is not a run directory.
    """

    directory: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", Path(self.directory))
        if not (self.directory / "config.yaml").is_file():
            raise no_directory("not a run directory (expected config.yaml)", self.directory)

    @property
    def metrics(self) -> pd.DataFrame:
        """A row for each interval; `metrics.attrs["accountant"]` says by which the columns `epsilon_<observer>` are."""
        return _frame(self.directory / "metrics.parquet")

    @property
    def devices(self) -> pd.DataFrame:
        """A row for each device: final accuracy and loss."""
        return _frame(self.directory / "devices.parquet")

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of `summary.json`: how the run ended and what it ran with."""
        summary = read_summary(self.directory)
        if summary is None:
            raise UserError("not a run directory: there is no summary.json", str(self.directory))
        return summary

    @property
    def privacy(self) -> RunPrivacy:
        """The accounts of each observer, recomputed from the ledger: `run.privacy.epsilon(observer="cloud")`."""
        return RunPrivacy(self.directory)

    def report(self, out: str | Path | None = None, *, with_private: bool = False) -> Path:
        """Write a page about this run; see `h2fdp.report`. By default it is `report.html` in the run directory."""
        from h2fdp.reports import report

        return report(self.directory, out, with_private=with_private)

    @property
    def model(self) -> torch.nn.Module:
        """The trained model."""
        return load_model(self.directory)

    def __repr__(self) -> str:
        summary = read_summary(self.directory) or {}
        reached = f", {score} after {summary.get('intervals')} intervals" if (score := short_score(summary)) else ""
        return f"Run({str(self.directory)!r}: {summary.get('state', 'no summary')}{reached})"

    def _repr_html_(self) -> str:
        """The view in notebooks: its end, its scores and costs, its accuracy over intervals."""
        summary = read_summary(self.directory) or {}
        reached = (judged_by(summary).column, "loss", "energy_j", "clock_s", "wall_s")
        keys = ("state", "method", "data", "intervals", *reached)
        facts = {key.replace("_j", ", J").replace("_s", ", s"): summary.get(key) for key in keys}
        if epsilons := [f"{name} {word(each)}" for name, each in worst_epsilons(summary).items() if each is not None]:
            facts["epsilon (pld)"] = ", ".join(epsilons)
        path = self.directory / "metrics.parquet"
        accuracies = self.metrics["accuracy"].dropna().tolist() if path.is_file() else []
        return facts_html(f"run {self.directory}", facts, curve_svg(accuracies, "test accuracy over intervals"))


def _frame(path: Path) -> pd.DataFrame:
    table = read_table(path)
    frame: pd.DataFrame = table.to_pandas()
    if accountant := accountant_of_metrics(table):
        frame.attrs["accountant"] = accountant
    return frame


def load_model(run: str | Path) -> torch.nn.Module:
    """The trained model of a run directory, for a model that the package knows by name.

    Of `public-features` it maps images, (n, channels, height, width) from 0 to 1, to scores; of standardised inputs it
    takes these as they were given.

    Raises:
        UserError: `run` is no run directory, its model was a user's own class (load `model.pt` into that), or the file
            is damaged.
    """
    path = Path(run)
    if not (path / "model.pt").is_file() or not (path / "config.yaml").is_file():
        raise no_directory("not a run directory with a model (expected model.pt and config.yaml)", path)
    check_lines(path / "config.yaml")
    values = yaml.safe_load((path / "config.yaml").read_text())
    summary = read_summary(path) or {}
    state = _state_of(path / "model.pt", summary.get("model_sha256"))
    if isinstance(values["model"], str):
        raise UserError(f"this run trained a model of your own ({values['model']}); load model.pt into it", str(path))
    spec = CHOICES.read(values["model"], path)
    shape, outputs = tuple(summary["shape"]), Target(**summary.get("target", {})).outputs(summary["classes"])
    options = {} if isinstance(spec, OwnPart) else spec.architecture
    source = source_of(spec, shape, outputs)
    module: torch.nn.Module = build(source, shape, outputs, options, 0, summary.get("whole_inputs", False))
    module.load_state_dict(state)
    return whole(module, summary, spec)


def _state_of(file: Path, stated: str | None) -> dict[str, torch.Tensor]:
    """A model's state dict, read without running code of the file's; `stated` is its SHA-256, if there is one."""
    content = file.read_bytes()
    if stated not in (None, sha256(content).hexdigest()):
        raise UserError("damaged: it does not match its SHA-256 in summary.json", str(file))
    try:
        state: dict[str, torch.Tensor] = torch.load(BytesIO(content), weights_only=True)
    except Exception as error:  # torch, zipfile and pickle have many
        raise UserError(f"damaged: {type(error).__name__} when it is read as a model", str(file)) from None
    return state


def write_inputs(setup: RunSetup, directory: RunDirectory) -> None:
    """Write everything needed to run it again, and the key of its noise, which is kept until the run is complete."""
    values = setup.config.model_dump(mode="json", exclude={"tune"})
    values |= {"topology": directory.topology.name, "sweep": {}}
    values["runtime"] |= {"backend": chosen_backend(setup.config.runtime), "engine": setup.blueprint.engine}
    if setup.has_noise_key:
        noise_key.store(directory, setup.noise_key)
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
    buffer = BytesIO()  # into a file, `torch.save` hides a full disk behind an error of its own
    torch.save(module.state_dict(), buffer)
    with replacing(directory.model) as file:
        file.write(buffer.getbuffer())
    results: dict[str, Any] = {"model_sha256": sha256(buffer.getbuffer()).hexdigest()}
    signal_step("results", len(state.rows))
    with run_arithmetic():
        devices = device_scores(setup, returned, state.metrics.device_energy_j)
        schema = device_schema(computing(setup.topology), setup.data.target.of_devices)
        write_columns(directory.devices, devices, schema)
        if torch.equal(returned, state.cloud.model):
            return results
        scores = ModelScores(setup).scores_of(returned)
    return results | {key: scores[key] for key in (*setup.data.target.measured, "loss") if key in scores}


def summary_of(setup: RunSetup, state: RunState, end: str, wall_s: float, lost_hosts: int = 0) -> dict[str, Any]:
    """`summary.json`; `end` is how the run ended, or that it is running."""
    rows, since, noises, said = state.rows, not_finite_from(state.rows), state.metrics.noises, notes(setup)
    standardizing, target = apart_after(setup, state.averages)
    losses, measured = rows.column("loss"), setup.data.target.measured
    columns = setup.data.columns if standardizing is None else None
    scores = scored({name: [row.get(name) for row in rows] for name in measured})
    return {
        "schema_version": SCHEMA_VERSION,
        "name": setup.config.name,
        "state": end,
        "method": name_of(setup.config.method),
        "seed": setup.config.seed,
        "backend": chosen_backend(setup.config.runtime),
        "engine": setup.blueprint.engine,
        "intervals": len(rows),
        **scores,
        "loss": losses[-1] if losses else None,
        "not_finite_from": since,
        **{each.column: rows[-1][each.column] if rows else 0.0 for each in counted_in(setup.topology)},
        "leaking": setup.leaks,
        "accountant": None if setup.noise is None else setup.accountant,
        "adaptive": setup.adapts,
        "tested_on_devices": setup.data.test_owners is not None,
        "devices": setup.drawn.devices,
        "smallest_device": int(setup.data.sizes.min()),
        "edges": setup.shown.edges,
        "trusted_edges": sum(subnet.trusted for subnet in setup.shown.subnets),
        "secure_sum_edges": sum(subnet.trust == "secure-sum" for subnet in setup.shown.subnets),
        "relay_edges": sum(subnet.trust == "relay" for subnet in setup.shown.subnets),
        "upper_tiers": summarise(setup.shown).get("tiers", [])[1:],
        "parameters": setup.initial.numel(),
        "data": setup.data.name,
        "public_records": 0 if setup.data.public is None else len(setup.data.public),
        "model_from": setup.warm_start,
        "shape": list(setup.data.shape),
        "whole_inputs": setup.data.whole,
        "image_shape": None if setup.image_shape is None else list(setup.image_shape),
        "encoder": getattr(setup.features, "declared", None),
        "prelude": [{"statistic": each.statistic.name, "share": each.statistic.share} for each in setup.prelude],
        "standardized_by": None if standardizing is None else standardizing.written(),
        "columns_without_ranges": list(columns.unbounded) if columns else [],
        "classes": setup.data.classes,
        "target": asdict(target) | ({"bound": None} if target.open else {}),
        # An adversary who knows all records but one could find that one by a digest of them all.
        "data_fingerprint": setup.data.fingerprint() if setup.noise is None else None,
        "noise_key": None if setup.noise is None else setup.config.privacy.noise_key,
        "noise_key_id": noise_key.id_of(setup.noise_key) if setup.has_noise_key else None,
        "notes": list(said),
        "noise_std": noises,
        "privacy": state.accounts.summary() if end != "running" else None,
        "budget_spent_by": state.spent_by,
        "fresh_from": state.fresh,
        "lost_hosts": lost_hosts,
        "wall_s": wall_s,
        "versions": versions(),
    }


def not_finite_from(rows: MetricsRows) -> int | None:
    """The first of the last intervals whose test loss is no finite number; None where the last one's is."""
    first: int | None = None
    for row in rows:
        if "loss" in row:
            first = None if math.isfinite(row["loss"]) else first or row["interval"]
    return first


def is_finished(path: Path) -> bool:
    """Whether a run is complete; one with a damaged summary counts as incomplete."""
    try:
        return (read_summary(path) or {}).get("state") in FINISHED
    except UserError as error:
        _log.warning("damaged", extra=about(file=SUMMARY, note=f"{error}; it is ignored"))
        return False
