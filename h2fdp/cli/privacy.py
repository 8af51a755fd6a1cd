"""`h2fdp privacy`: calibrate before a run, account for a run from its ledger, audit by experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from h2fdp.cli.terminal import (
    AsJson,
    DataRoot,
    ExperimentPath,
    Settings,
    print_facts,
    print_json,
    print_table,
    print_text,
    progress,
)
from h2fdp.errors import UserError, not_one_of

app = typer.Typer(help="Calibrate, account for and audit what each observer learns.", no_args_is_help=True)
_MOST_ROWS = 50  # of noises; a network with more edge servers than that has many alike
_SHOWN = ("observer", "rdp", "pld", "coarse", "claimed", "verdict", "device")  # what is accounted first


@app.command("calibrate")
def calibrate_command(
    file: ExperimentPath,
    settings: Settings = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print all noise levels and each observer's claimed and accounted epsilon, without training."""
    from h2fdp.run import Experiment
    from h2fdp.run.preview import privacy_report

    experiment = Experiment.from_file(file, settings or [])
    with experiment.mistakes_placed():
        report = privacy_report(experiment.prepare(data_root))
    if as_json:
        print_json(report)
        return
    print_accounts(report)
    print_noises(report["noises"], "noise of the first interval (standard deviations; largest and smallest)")


def print_accounts(report: dict[str, Any]) -> None:
    """The observers' numbers and verdicts of a `privacy_report`, and what belongs to them."""
    from h2fdp.privacy.own_targets import facts_of

    rows = [{"observer": observer, **numbers} for observer, numbers in report["observers"].items()]
    about = "" if report["adjacency"] == "null-record" else f" (neighbours: {report['adjacency']})"
    title = f"epsilon at delta {report['delta']:g}, the worst device of each observer{about}"
    claims = report["target"] is None  # under a target nothing is claimed
    print_table(rows, title=title, columns=[name for name in _SHOWN if claims or name != "claimed"])
    judged = "claimed" if claims else f"the target, {report['target']:g}"
    lines = [
        "rdp, pld: upper bounds from all releases (-: nothing is released); coarse: a simpler, larger one",
        f"met: rdp or pld is at most {judged}; open: neither is",
    ]
    lines += [f"{name}: {text}" for name, text in facts_of(report["targets"]).items()]
    if report["factor"] != 1.0:
        formula = any(each["claimed"] is not None for each in report["observers"].values())
        whose = "the paper's noise" if formula else "the first noise"
        lines.append(f"calibrated to the accounted epsilon: {whose} times {report['factor']:.4g}")
    if report["iterations"] is not None:
        lines.append(f"the run takes at most {report['iterations']} local steps of a device, which the target allows")
    for text in (*lines, *report["notes"]):
        print_text(text)
        typer.echo()


def print_noises(noises: list[dict[str, Any]], title: str) -> None:
    """A row for each edge server and kind of release; of a large network the first ones."""
    print_table(noises[:_MOST_ROWS], title=title)
    if len(noises) > _MOST_ROWS:
        print_text(f"{len(noises) - _MOST_ROWS:,} more rows: --json has all")


@app.command("explain")
def explain_command(
    file: ExperimentPath,
    settings: Settings = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Say in a few lines who learns what, by which bound and noise, and which other setting would buy most."""
    from h2fdp.run.api import Experiment, explain

    explained = explain(Experiment.from_file(file, settings or []), data_root=data_root).facts
    if as_json:
        print_json(explained)
    else:
        typer.echo("\n".join(explained["lines"]))


@app.command("account")
def account_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, or ledgers (privacy.jsonl): all together.")
    ],
    delta: Annotated[float | None, typer.Option(help="delta.", show_default="the run's")] = None,
    accountant: Annotated[list[str] | None, typer.Option(help="rdp, pld or classic-rdp; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every observer's epsilon from the ledger of a run, or of several runs on the same records together."""
    from h2fdp.privacy.accounting import ACCOUNTANTS
    from h2fdp.run.privacy import RunPrivacy, SeveralRuns

    wanted = accountant or ["rdp", "pld"]
    if unknown := [name for name in wanted if name not in ACCOUNTANTS]:
        raise UserError(not_one_of(unknown[0], list(ACCOUNTANTS)), "--accountant")
    account = RunPrivacy(runs[0], delta) if len(runs) == 1 else SeveralRuns(runs, delta)
    accounts = account.statement(wanted)
    if as_json:
        print_json(accounts)
        return
    rows = [{"observer": observer, **numbers} for observer, numbers in accounts["worst"].items()]
    if not rows:
        ledgers = "ledger is" if len(runs) == 1 else "ledgers are"
        typer.echo(f"the {ledgers} empty: nothing was released under a guarantee")
        return
    whole = account.runs[0] if isinstance(account, SeveralRuns) else account
    unit = " (about whole devices)" if whole.protects_devices else ""
    print_table(
        rows, title=f"accounted epsilon at delta {accounts['delta']:g}, the worst device of each observer{unit}"
    )
    for note in (*accounts["notes"], *(f"warning: {each}" for each in accounts.get("warnings", ()))):
        print_text(note)


@app.command("card")
def card_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a ledger (privacy.jsonl).")],
    delta: Annotated[float | None, typer.Option(help="delta.", show_default="the run's")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what no attack of each observer exceeds: mu, true-positive rates, reconstruction, and what that assumes."""
    from h2fdp.privacy.own_targets import facts_of
    from h2fdp.privacy.statement import CARD
    from h2fdp.run.privacy import RunPrivacy

    card = RunPrivacy(run, delta).card()
    if as_json:
        print_json(card)
        return
    if not card["observers"]:
        typer.echo("the ledger is empty: nothing was released under a guarantee")
        return
    rows = [{"observer": who} | {CARD[name]: of[name] for name in CARD} for who, of in card["observers"].items()]
    print_table(rows, title=f"what no attack exceeds, about the worst {card['protected']} of each observer")
    by = f"{card['delta']:g}, by {card['accountant']}"
    facts = {"protected": card["protected"], "neighbours": card["neighbours"], "delta": by, **card["assumed"]}
    print_facts(facts | facts_of(card["targets"]))
    for note in card["notes"]:
        print_text(note)


@app.command("audit")
def audit_command(
    file: ExperimentPath,
    observer: Annotated[str, typer.Option(help="The observer: edge, peer, cloud or public.")],
    canaries: Annotated[int, typer.Option(help="Number of canaries; a fair coin includes each or not.")],
    settings: Settings = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Measure a lower bound on epsilon: train once and guess from an observer's view which canaries were included."""
    from h2fdp.audit.run_audit import as_dict, audit
    from h2fdp.privacy import OBSERVERS
    from h2fdp.run import Experiment

    if observer not in OBSERVERS:
        raise UserError(not_one_of(observer, OBSERVERS), "--observer")
    run = Experiment.from_file(file, settings or []).prepare(data_root)
    with progress(run.config.training.intervals, quiet=as_json, verbose=False) as show:
        result = as_dict(audit(run, observer, canaries, on_interval=show))
    if as_json:
        print_json(result)
    else:
        _show_audit(result)


def _show_audit(result: dict[str, Any]) -> None:
    account = min(result["rdp"], result["pld"])
    verdict = "consistent with the account: no larger loss was found"
    if max(result["epsilon_lower"], result["epsilon_independent"]) > account:
        verdict = "the account is refuted: more leaks than it allows"
    print_facts(
        {
            "observer": result["observer"],
            "canaries": f"{result['canaries']} ({result['kind']}) of {result['devices']} devices",
            "intervals": result["intervals"],
            "guesses right": f"{result['right']} of {result['guesses']}; {result['all_right']} of all",
            "epsilon at least": f"{result['epsilon_lower']:.4g}; {result['epsilon_independent']:.4g} if the noise on "
            f"different canaries is independent (confidence {result['confidence']:.0%} each)",
            "accounted": f"{result['pld']:.4g} (pld), {result['rdp']:.4g} (rdp)",
            "delta": result["delta"],
            "verdict": verdict,
        }
    )
