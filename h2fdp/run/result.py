"""A run that was made, read from its directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import UserError
from h2fdp.models import CHOICES, build
from h2fdp.records import read_summary
from h2fdp.run.privacy import RunPrivacy

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """A finished (or stopped) run, read from its directory: `h2fdp.Run("runs/first")`.

    Raises:
        UserError: it is not a run directory.
    """

    directory: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", Path(self.directory))
        if not (self.directory / "config.yaml").is_file():
            raise UserError("not a run directory (expected config.yaml)", str(self.directory))

    @property
    def metrics(self) -> pd.DataFrame:
        """A row for each interval."""
        import pandas as pd

        return pd.read_parquet(self.directory / "metrics.parquet")

    @property
    def devices(self) -> pd.DataFrame:
        """A row for each device: final accuracy and loss."""
        import pandas as pd

        return pd.read_parquet(self.directory / "devices.parquet")

    @property
    def summary(self) -> dict[str, Any]:
        """How the run ended and what it ran with."""
        summary = read_summary(self.directory)
        if summary is None:
            raise UserError("not a run directory: there is no summary.json", str(self.directory))
        return summary

    @property
    def privacy(self) -> RunPrivacy:
        """What each observer holds, recomputed from the ledger: `run.privacy.epsilon(observer="cloud")`."""
        return RunPrivacy(self.directory)

    def report(
        self, out: str | Path | None = None, png: str | Path | None = None, *, with_private: bool = False
    ) -> Path:
        """Write a page about this run; see `h2fdp.report`. By default it is `report.html` in the run directory."""
        from h2fdp.reports import report

        return report(self.directory, out, png, with_private=with_private)

    def model(self) -> torch.nn.Module:
        """The trained model."""
        return load_model(self.directory)


def load_model(run: str | Path) -> torch.nn.Module:
    """The trained model of a run directory, for a model that the package knows by name.

    Raises:
        UserError: `run` is no run directory, or its model was a user's own class (load `model.pt` into that).
    """
    path = Path(run)
    if not (path / "model.pt").is_file() or not (path / "config.yaml").is_file():
        raise UserError("not a run directory with a model (expected model.pt and config.yaml)", str(path))
    values = yaml.safe_load((path / "config.yaml").read_text())
    state = torch.load(path / "model.pt", weights_only=True)
    if isinstance(values["model"], str):
        raise UserError(f"this run trained a model of your own ({values['model']}); load model.pt into it", str(path))
    summary = read_summary(path) or {}
    spec = CHOICES.read(values["model"], path)
    source, options = (spec.function, {}) if isinstance(spec, OwnPart) else (spec.name, spec.architecture)
    module: torch.nn.Module = build(source, tuple(summary["shape"]), summary["classes"], options, 0)
    module.load_state_dict(state)
    return module
