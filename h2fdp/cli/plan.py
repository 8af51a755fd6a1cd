"""`h2fdp plan`: the controller's first decision, with its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from h2fdp.cli.tables import (
    AsJson,
    DataRoot,
    ExperimentPath,
    Settings,
    print_facts,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from h2fdp.run.preview import FirstDecision

_HYPOTHETICAL = (
    "hypothetical: control.enabled is false in this file, so a run keeps the file's own schedule; this is what the "
    "controller would decide (a run follows it with --set control.enabled=true)"
)
_MOST_EDGES_SHOWN = 30


def plan_command(
    file: ExperimentPath,
    settings: Settings = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print the controller's first decision and the reasons for it, without training."""
    from h2fdp.run.preview import plan

    found = plan(file, settings or [], data_root)
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found)


def _show(plan: FirstDecision) -> None:
    rows = [
        {
            "edge server": name,
            "trust": facts["trust"],
            "devices": facts["devices"],
            "take part": plan.participation[name],
            "J/message": facts["device_joules"],
            "s/message": facts["device_seconds"],
        }
        for name, facts in list(plan.edges.items())[:_MOST_EDGES_SHOWN]
    ]
    exact = plan.weighed is not None
    if not plan.stated:
        print_text(_HYPOTHETICAL)
        typer.echo()
    print_table(rows, title=f"first decision, at {'the costs of the first interval' if exact else 'mean costs'}")
    if len(plan.edges) > len(rows):
        typer.echo(f"and {len(plan.edges) - len(rows)} more edge servers (--json has them all)")
    facts: dict[str, Any] = {
        "tau": plan.tau,
        **(_whole_run(plan) if exact else _interval(plan)),
        **_powers(plan),
        **_costs(plan),
        "constants": ", ".join(f"{name} {_word(value)}" for name, value in plan.constants.items() if value is not None),
    }
    print_facts(facts)


def _interval(plan: FirstDecision) -> dict[str, str]:
    """What was minimised for the first interval, and the best of the other lengths."""
    terms, other = plan.terms, plan.runner_up
    return {
        "objective": f"{plan.objective:.6g} = energy {terms.energy:.4g} + delay {terms.delay:.4g} "
        f"+ privacy gap {terms.gap:.4g} (each weighed; without a unit)",
        "runner-up": "-" if other is None else f"tau {other['tau']}, objective {other['objective']:.6g}",
    }


def _whole_run(plan: FirstDecision) -> dict[str, str]:
    """What was weighed of a run that is planned as a whole, and the best plan of another number of intervals."""
    terms, other = plan.terms, plan.runner_up
    weights = ", ".join(f"a {unit} weighs {value:.4g}" for unit, value in (plan.multipliers or {}).items())
    runner_up = "no other plan fits"
    if other is not None:
        cost = f"{other['joules']:.4g} J, {other['seconds']:.4g} s, noise {other['noise']:.4g}"
        runner_up = f"{other['intervals']} intervals of {other['tau']} steps: {cost}"
    return {
        "expected cost": f"{terms.energy + terms.delay:.4g} = energy {terms.energy:.4g} + delay {terms.delay:.4g}; "
        f"{weights}",
        "expected noise": f"{terms.gap:.4g} of the way that the model goes",
        "runner-up": runner_up,
    }


def _powers(plan: FirstDecision) -> dict[str, str]:
    """With what power devices send, where they choose it."""
    if (of := plan.power_dbm) is None:
        return {}
    text = f"{of['least']:.1f} to {of['most']:.1f} dBm, {of['mean']:.1f} in the mean"
    return {"power": f"{text} (all devices, channels of the first interval)"}


def _costs(plan: FirstDecision) -> dict[str, str]:
    """What the whole run would cost under the controller."""
    from h2fdp.run.preview import costs_in_words

    return {"whole run": ", ".join(f"{what} {value}" for what, value in costs_in_words(plan.network).items())}


def _word(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
