"""The controller's first decision, without training, and a picture of it: `h2fdp plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.errors import UserError
from h2fdp.run.api import Experiment
from h2fdp.run.dry_run import planned_work
from h2fdp.run.interval_meter import range_of
from h2fdp.run.setup import RunSetup
from h2fdp.schedules import H2fdpController
from h2fdp.schedules.problem import ControlProblem, ObjectiveTerms
from h2fdp.schedules.registry import chosen
from h2fdp.schedules.solvers import solve
from h2fdp.schedules.turns_controller import TurnsController
from h2fdp.wording import facts_html, table_html, word

_MOST_LEVELS = 20  # rows of the map


@dataclass(frozen=True)
class ObjectiveMap:
    """Problem P's objective over tau and one participation level for all subnets (each at most all its devices).

    Attributes:
        tau: (T,) 1..tau_max.
        level: (L,) devices of each subnet.
        objective: (L, T).
    """

    tau: list[int]
    level: list[int]
    objective: list[list[float]]


@dataclass(frozen=True)
class FirstDecision:
    """What the controller decides for the first interval, and why.

    Algorithm 1 decides under mean costs, and everything that it takes to recompute it is here; the controller of
    budgets and targets decides under the channels of the first interval.

    Attributes:
        tau: interval length.
        participation: edge server -> devices that take part.
        objective: of problem P, the sum of `terms`.
        terms: energy, delay and gap, weighted by the alphas.
        runner_up: the best of any other tau, or the best plan of another number of intervals with what it would cost.
        constants: by their letters in the paper.
        edges: edge server -> trust, whether one noise covers its sum, devices, mean cost of a device's message, cost of
            its own message.
        map: the objective elsewhere.
        weighed: joules and seconds of the interval, and noise as a share of the way; None under Algorithm 1.
        multipliers: what a joule and a second weigh; None under Algorithm 1.
        power_dbm: the least, mean and most dBm of all devices under the channels of the first interval; None where
            each sends with its own power.
        stated: whether the experiment asks for this controller; where it does not, its own schedule decides in a run.
        network: what the whole run under this controller is expected to cost, see `PlannedWork.costs`.
    """

    tau: int
    participation: dict[str, int]
    objective: float
    terms: ObjectiveTerms
    runner_up: dict[str, float] | None
    constants: dict[str, float | None]
    edges: dict[str, dict[str, float | bool | str]]
    map: ObjectiveMap
    weighed: dict[str, float] | None = None
    multipliers: dict[str, float] | None = None
    power_dbm: dict[str, float] | None = None
    stated: bool = True
    network: dict[str, Any] | None = None

    def _repr_html_(self) -> str:
        """For notebooks: tau, who takes part, and what the objective is made of."""
        facts = {
            "tau": self.tau,
            "objective": f"{self.objective:.4g}: energy {self.terms.energy:.4g}, delay {self.terms.delay:.4g}, "
            f"privacy gap {self.terms.gap:.4g} (weighted)",
            "constants": ", ".join(
                f"{name} {word(value)}" for name, value in self.constants.items() if value is not None
            ),
        }
        rows = [{"edge server": name, "devices that take part": count} for name, count in self.participation.items()]
        return facts_html("the controller's first decision", facts, table_html("", rows, most=10))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan(
    path: str | Path | Experiment, settings: Sequence[str] = (), data_root: str | Path | None = None
) -> FirstDecision:
    """The first decision for an experiment file, with the controller on whether or not the file enables it.

    Args:
        path: or an `Experiment`, which enables it itself: `control={"enabled": True}`.
        settings: of a file, as `--set` takes them, `control.alpha1=2`.

    Raises:
        UserError: a wrong file; a method without noise, which leaves nothing to weigh.
    """
    if isinstance(path, Experiment):
        if settings:
            raise UserError("an Experiment has its settings; expected none, or a file", key="settings")
        if not path.config.control.enabled:
            raise UserError('expected control={"enabled": True}, found it disabled', "h2fdp.plan", "control")
        return _with_costs(path.prepare(data_root), stated=True)
    config = Experiment.from_file(path, settings).config
    schedule = config.method.schedule
    if not (chosen(schedule).controlled or chosen(schedule).as_stated):
        text = f"the controller takes the place of a fixed schedule; expected fixed or h2fdp, found {schedule.name}"
        raise UserError(text, str(path), "method.schedule")
    experiment = Experiment.from_file(path, [*settings, "control.enabled=true"])
    return _with_costs(experiment.prepare(data_root), stated=config.control.enabled or chosen(schedule).controlled)


def _with_costs(run: RunSetup, *, stated: bool) -> FirstDecision:
    return replace(first_decision(run), stated=stated, network=planned_work(run).costs())


def first_decision(run: RunSetup) -> FirstDecision:
    """See `plan`."""
    if not run.config.control.is_algorithm_1:
        return _planned_decision(run)
    section = run.config.control.model_copy(update={"channel": "expected"})
    schedule, costs = H2fdpController.of(replace(run.context, control=section)), run.costs.expected()
    problem = schedule.problem(0, costs)
    solutions = solve(problem, section.solver)
    best, other = solutions.best, solutions.runner_up
    names = [subnet.name for subnet in run.topology.subnets]
    trust = {subnet.name: subnet.trust for subnet in run.topology.subnets}
    return FirstDecision(
        tau=best.tau,
        participation=dict(zip(names, best.participation.tolist(), strict=True)),
        objective=best.objective,
        terms=best.terms,
        runner_up=None if other is None else {"tau": other.tau, "objective": other.objective},
        constants=schedule.constants(0, best.tau),
        edges={name: {"trust": trust[name], **facts} for name, facts in schedule.edges(costs).items()},
        map=_map(problem),
        power_dbm=_powers(run),
    )


def _planned_decision(run: RunSetup) -> FirstDecision:
    """That of a run that is planned as a whole: its map has the plans that were weighed, by their interval length."""
    schedule = run.schedule()
    assert isinstance(schedule, TurnsController), "budgets and targets have a controller of their own"
    weighed = {each.tau: schedule.told(each)["objective"] for each in sorted(schedule.weighed, key=lambda of: -of.tau)}
    lengths = sorted(weighed)
    objectives = ObjectiveMap(lengths, [int(run.context.sizes.max())], [[weighed[tau] for tau in lengths]])
    decision = schedule.decide(0, 0)
    why = decision.reasons
    assert why is not None, "a controller says why"
    names = [subnet.name for subnet in run.topology.subnets]
    return FirstDecision(
        tau=decision.local_steps,
        participation=dict(zip(names, decision.participation.tolist(), strict=True)),
        objective=why["objective"],
        terms=ObjectiveTerms(**why["terms"]),
        runner_up=why["runner_up"],
        constants=why["constants"],
        edges=_edges(run),
        map=objectives,
        weighed=why["weighed"],
        multipliers=why["multipliers"],
        power_dbm=_powers(run),
    )


def _powers(run: RunSetup) -> dict[str, float] | None:
    return range_of(run.costs.drawn(0).power_dbm) if run.costs.chooses_power else None


def _edges(run: RunSetup) -> dict[str, dict[str, float | bool | str]]:
    """Edge server -> what is known of it, and what a message of its devices costs on average in the first interval."""
    costs = run.costs.drawn(0)
    places = np.cumsum(run.context.sizes) - run.context.sizes
    joules, seconds = (np.add.reduceat(of, places) / run.context.sizes for of in (costs.joules, costs.seconds))
    return {
        subnet.name: {
            "trust": subnet.trust,
            "one_noise": bool(run.context.one_noise[row]),
            "devices": int(run.context.participation[row]),
            "device_joules": float(joules[row]),
            "device_seconds": float(seconds[row]),
        }
        for row, subnet in enumerate(run.topology.subnets)
    }


def _map(problem: ControlProblem) -> ObjectiveMap:
    lengths = list(range(1, problem.tau_max + 1))
    most = int(problem.limits.max())
    levels = sorted({int(level) for level in np.linspace(1, most, min(most, _MOST_LEVELS)).round()})
    rows = [[problem.terms(tau, np.minimum(level, problem.limits)).total for tau in lengths] for level in levels]
    return ObjectiveMap(lengths, levels, rows)


def draw(plan: FirstDecision, path: Path) -> None:
    """Draw the map of a plan's objective, the best level marked at each tau, and the chosen tau.

    Raises:
        UserError: the file cannot be written, or its ending names no picture format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    values = np.maximum(np.array(plan.map.objective), 1e-300)
    positions = np.arange(len(plan.map.level))
    mesh = axes.pcolormesh(
        plan.map.tau,
        positions,
        values,
        norm=LogNorm() if values.min() < values.max() else None,
        cmap="viridis",  # the best is the darkest, as in the terminal,
        shading="nearest",
    )
    axes.plot(plan.map.tau, values.argmin(axis=0), "o", color="white", markersize=3, label="best level for this tau")
    axes.axvline(plan.tau, color="tab:red", linewidth=1.5, label=f"chosen tau = {plan.tau}")
    shown = positions[:: max(1, len(positions) // 10)]
    axes.set_yticks(shown, [str(plan.map.level[position]) for position in shown])
    axes.set_xlabel("interval length tau (slots)")
    axes.set_ylabel("devices taking part in each subnet")
    axes.set_title("objective of problem P at mean costs")
    figure.legend(loc="outside lower center", fontsize=8, facecolor="0.75", labelcolor="black", ncols=2)
    figure.colorbar(mesh, label="objective, without a unit (lower is better)")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"no picture can be written: {error}", str(path)) from None
