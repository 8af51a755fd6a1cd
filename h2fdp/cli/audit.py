"""`h2fdp privacy audit`: how much of the promised privacy can be seen to be missing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from h2fdp.cli.options import AsJson, DataRoot, ExperimentPath, Seed, Settings
from h2fdp.cli.progress import progress
from h2fdp.cli.tables import print_facts, print_json


def audit_command(
    file: ExperimentPath,
    observer: Annotated[str, typer.Option(help="Who spies: edge, peer, cloud or public.")],
    canaries: Annotated[int, typer.Option(help="How many canaries; each is in or out by a coin.")],
    kind: Annotated[str, typer.Option(help="dominating or dirac (a gradient of the clip norm).")] = "dominating",
    settings: Settings = None,
    seed: Seed = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Bound epsilon from below by one training run: what an observer can guess of canaries among the records."""
    from h2fdp.audit.run_audit import as_dict, audit
    from h2fdp.run import Experiment

    run = Experiment.from_file(file, settings or [], seed).prepare(data_root)
    with progress(run.config.training.intervals, quiet=as_json, verbose=False) as display:
        # audit() checks both names and says which there are
        found = as_dict(audit(run, observer, canaries, kind, on_interval=display.update))  # type: ignore[arg-type]
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    exceeded = found["epsilon_lower"] > min(found["rdp"], found["pld"])
    print_facts(
        {
            "observer": found["observer"],
            "canaries": f"{found['canaries']} ({found['kind']}) of {found['devices']} devices, at most "
            f"{found['per_batch']:.2g} a batch on average",
            "intervals": found["intervals"],
            "guesses right": f"{found['right']} of {found['guesses']}",
            "epsilon at least": f"{found['epsilon_lower']:.4g} (confidence {found['confidence']:.0%})",
            "attained": found["attained"],
            "accounted": f"{found['pld']:.4g} (pld), {found['rdp']:.4g} (rdp)",
            "delta": found["delta"],
            "verdict": "the account is refuted: more leaks than it says"
            if exceeded
            else "no more found than is accounted for",
        }
    )
