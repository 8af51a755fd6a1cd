"""The map of a study: its curve with the band and the runs, accuracy by trust and epsilon with joules as contours."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from h2fdp.records.atomic import output_file, write_text
from h2fdp.reports.figures import CURVES
from h2fdp.reports.pictures import PLOT_SUFFIXES, STYLE
from h2fdp.wording import SCORES, facts_html, table_html

_MOST_MAPS = 3


def write_map(study: Mapping[str, Any], path: Path) -> Path:
    """Write the picture of a study, see `Studied.as_dict`, as PDF, PNG or SVG."""
    with output_file(path, "--out", PLOT_SUFFIXES), style.context(STYLE):
        _drawn(study).savefig(path)
    return path


def write_page(study: Mapping[str, Any], path: Path) -> Path:
    """Write a self-contained page: the picture and the table of all networks."""
    with style.context(STYLE):
        held = BytesIO()
        _drawn(study).savefig(held, format="png", dpi=160)
    picture = b64encode(held.getvalue()).decode()
    how = f"{len(study['runs'])} runs make the curve of {len(study['networks'])} networks"
    how = f"all networks were run: {study['depends']}" if study["depends"] else how
    best = {
        "best": ", ".join(f"{key} {each}" for key, each in (study["best"] or {}).items() if key in ("trust", "epsilon"))
    }
    body = [
        facts_html(f"Study: {study['name']}", {"how": how, "judged by": study["score"], **best}),
        f'<img alt="the curve and the map" style="max-width:100%" src="data:image/png;base64,{picture}">',
        table_html("networks", study["networks"], most=10_000),
    ]
    title = escape(f"Study: {study['name']}")
    head = (
        '<meta charset="utf-8"><style>body{font-family:sans-serif;margin:2em}td,th{padding:.1em .7em;text-align:right}'
    )
    write_text(path, f"<!doctype html><title>{title}</title>{head}</style>{''.join(body)}\n")
    return path


def _drawn(study: Mapping[str, Any]) -> Figure:
    networks, score = study["networks"], SCORES[study["score"]]
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for each in networks:
        groups.setdefault((each["edges"], each["devices"]), []).append(each)
    maps = [(size, rows) for size, rows in groups.items() if _is_map(rows)][:_MOST_MAPS]
    picture = Figure(figsize=(3.3 * (1 + len(maps)), 2.7), layout="constrained")
    first, *rest = np.atleast_1d(picture.subplots(1, 1 + len(maps))).tolist()
    ordered = sorted(networks, key=lambda each: each["noise"])
    noise, factor = [each["noise"] for each in ordered], score.factor
    columns = {
        key: factor * np.array([each[key] for each in ordered], float) for key in ("score", "low", "high", "measured")
    }
    first.plot(noise, columns["score"], color=CURVES[0], label="curve")
    first.fill_between(noise, columns["low"], columns["high"], color=CURVES[0], alpha=0.2, linewidth=0)
    first.plot(
        [each["noise"] for each in study["runs"]],
        [factor * each["score"] for each in study["runs"]],
        ".",
        color=CURVES[0],
        label="runs of the curve",
    )
    if np.isfinite(columns["measured"]).any():
        first.plot(noise, columns["measured"], "x", color=CURVES[1], label="networks that were run")
    first.set_xscale("log")
    ticks = [tick for power in range(-9, 10) for tick in (10.0**power, 3 * 10.0**power)]
    first.set_xticks(
        within := [each for each in ticks if noise[0] <= each <= noise[-1]], [f"{each:g}" for each in within]
    )
    first.minorticks_off()
    first.set_xlabel("noise in the last model, x")
    first.set_ylabel(score.title)
    first.legend()
    values = [factor * _value(each) for each in networks]
    for axes, ((edges, devices), rows) in zip(rest, maps, strict=True):
        trust, epsilon = (sorted({each[key] for each in rows}) for key in ("trust", "epsilon"))
        at = {(each["epsilon"], each["trust"]): each for each in rows}
        grid = np.array([[factor * _value(at[e, t]) for t in trust] for e in epsilon])
        joules = np.array([[at[e, t]["joules"] for t in trust] for e in epsilon])
        shades = axes.contourf(trust, epsilon, grid, 12, vmin=min(values), vmax=max(values), cmap="viridis")
        lines = axes.contour(trust, epsilon, joules, 4, colors="white", linewidths=0.8) if np.ptp(joules) > 0 else None
        if lines is not None:
            axes.clabel(lines, fmt="%.3g J", fontsize=6)
        axes.set_yscale("log")
        axes.set_yticks(epsilon, [f"{each:g}" for each in epsilon], minor=False)
        axes.minorticks_off()
        axes.set_xlabel("share of trusted edge servers")
        axes.set_ylabel("epsilon")
        axes.set_title(f"{edges} edge servers, {devices} devices", fontsize=8)
        picture.colorbar(shades, ax=axes, label=score.title)
    return picture


def _is_map(rows: list[Mapping[str, Any]]) -> bool:
    """Whether trust and epsilon both vary."""
    return all(len({each.get(key) for each in rows}) > 1 for key in ("trust", "epsilon"))


def _value(network: Mapping[str, Any]) -> float:
    """The score as read, or else as measured."""
    return float(network["score"] if network["score"] == network["score"] else network["measured"])
