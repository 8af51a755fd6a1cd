"""Commands before a run: a folder to begin with, the choices that there are, the first decision of a controller."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
)
from h2fdp.errors import UserError, not_one_of

if TYPE_CHECKING:
    import pandas as pd

    from h2fdp.run.explain import FirstDecision

_NAMES = ("network.yaml", "experiment.yaml", "my_model.py", "test_experiment.py")
_TEMPLATES = Path(__file__).with_name("starter_files")  # texts, which no tool takes for the package's own code
_HYPOTHETICAL = (
    "hypothetical: control.enabled is false in this file, so a run keeps the file's own schedule (h2fdp run --dry-run "
    "shows its joules and seconds); this is what the controller would decide (--set control.enabled=true)"
)
_MOST_EDGES_SHOWN = 30


def init_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder, made if it is not there.")],
) -> None:
    """Write a network, an experiment, a model of your own and a test into a folder."""
    existing = [name for name in _NAMES if (directory / name).exists()]
    if existing:
        raise UserError(f"has {', '.join(existing)} already; nothing was written", str(directory))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _NAMES:
            (directory / name).write_bytes((_TEMPLATES / f"{name}.txt").read_bytes())
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(directory)) from None
    typer.echo(f"wrote {', '.join(_NAMES)}\n\nnext:")
    folder, file = shlex.quote(str(directory)), shlex.quote(str(directory / "experiment.yaml"))
    commands = {
        f"h2fdp topology show {shlex.quote(str(directory / 'network.yaml'))}": "the network",
        f"h2fdp data {file}": "who holds which labels",
        f"h2fdp privacy explain {file}": "who learns what, before a run",
        f"h2fdp run {file} --out {shlex.quote(f'runs/{directory.resolve().name}')}": "train",
        f"python -m unittest discover {folder}": "the test",
    }
    margin = max(map(len, commands)) + 2
    for command, purpose in commands.items():
        typer.echo(f"  {command.ljust(margin)}# {purpose}")


def plan_command(
    file: ExperimentPath,
    settings: Settings = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    choose: Annotated[
        str | None, typer.Option(metavar="trust", help="Instead: the cheapest trust for an accuracy.")
    ] = None,
    accuracy: Annotated[float | None, typer.Option(min=0, max=1, help="What the chosen trust has to reach.")] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Or the most that it may cost.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of the choice.", show_default="the file's")] = None,
    joules: Annotated[float | None, typer.Option(min=0, help="The most that its run may spend.")] = None,
) -> None:
    """Print the controller's first decision and the reasons for it, without training; or choose whom to trust."""
    from h2fdp.run.api import plan

    if any(each is not None for each in (choose, accuracy, price)):
        from h2fdp.cli.study import choose_command

        if choose != "trust" or (accuracy is None) == (price is None):
            raise UserError("expected --choose trust with --accuracy 0.85, or with --price 2", "--choose")
        choose_command(file, settings, data_root, as_json, accuracy, epsilon, joules, price)
        return
    if epsilon is not None or joules is not None:
        text = "bounds of a choice; expected --choose trust too, or --set control.joules=2"
        raise UserError(text, "--epsilon, --joules")
    planned = plan(file, settings or [], data_root)
    if as_json:
        print_json(planned.as_dict())
    else:
        _show(planned)


def _show(plan: FirstDecision) -> None:
    from h2fdp.reports.decisions import reason
    from h2fdp.reports.figures import number
    from h2fdp.run.preview import costs_in_words

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
    for text in (*(() if plan.stated else (_HYPOTHETICAL,)), *plan.chosen, ""):
        print_text(text)
    print_table(rows, title=f"first decision, at {'the costs of the first interval' if exact else 'mean costs'}")
    if len(plan.edges) > len(rows):
        typer.echo(f"and {len(plan.edges) - len(rows)} more edge servers (--json has them all)")
    row = {**plan.as_dict(), "devices": "turns" if exact else "random"}
    of = "of the run" if plan.stated else "under control"
    facts: dict[str, Any] = {
        "tau": plan.tau,
        "why": reason(row),
        **{f"{what} {of}": value for what, value in costs_in_words(plan.network).items()},
        "constants": ", ".join(f"{name} {number(each)}" for name, each in plan.constants.items() if each is not None),
    }
    print_facts(facts)


def methods_command(as_json: AsJson = False) -> None:
    """List the methods: a choice of objective, privacy, aggregation, server, schedule and topology each."""
    from h2fdp.methods import describe_methods

    rows = describe_methods()
    if as_json:
        print_json(rows)
        return
    axes = [name for name in rows[0] if name not in ("name", "description")]
    head = ", ".join(axes)  # in one column: six would not fit
    print_table([{"name": row["name"], head: _choices(row, axes), "description": row["description"]} for row in rows])


def _choices(row: dict[str, str], axes: list[str]) -> str:
    """One for each axis: `average, upcycled` is one."""
    return ", ".join(row[axis].replace(", ", " ") for axis in axes)


def models_command(as_json: AsJson = False) -> None:
    """List the models."""
    from h2fdp.models.registry import describe

    rows = describe()
    print_json(rows) if as_json else print_table(rows)


_MOST_ROWS = 40
_WIDEST = 40  # columns of labels; more are drawn together
_TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
_SHADES = "·░▒▓█"


def data_command(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="An experiment (YAML), or a table.")] = None,
    settings: Settings = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets; show who holds which labels in an experiment; print the `data:` section of a table (CSV)."""
    if file is not None and file.suffix.lower() in _TABLES:
        from h2fdp.config import check, empty_document
        from h2fdp.data.tables import Table, section_of
        from h2fdp.experiment.file import apply_settings, parse_setting

        document = empty_document(str(file), Path.cwd(), {"data": {"name": "table", "path": str(file)}})
        apply_settings(document, list(map(parse_setting, settings or ())))
        section = section_of(file, check(Table, document.part("data")))
        print_json({"section": section}) if as_json else typer.echo(section)
        return
    if file is None:
        from h2fdp.data.federate import describe

        print_json(describe()) if as_json else print_table(describe())
        return
    from h2fdp.run import Experiment

    counts = Experiment.from_file(file, settings or []).holdings(data_root)
    if as_json:
        owners = counts.attrs["owners"]
        pairs = zip(counts.index, counts.to_numpy().tolist(), strict=True)
        rows = [{"device": str(name), "records": row} for name, row in pairs]
        print_json([row | ({"owner": owners[at]} if owners else {}) for at, row in enumerate(rows)])
        return
    _show_holdings(counts)


def _show_holdings(counted: pd.DataFrame) -> None:
    """Devices with their labels by shades: the darker, the more of the device's records; a point for none."""
    from h2fdp.data.federated import dealt

    counts, owners, sizes = counted.to_numpy(), counted.attrs["owners"], counted.attrs["records"]
    kinds = (counts > 0).sum(axis=1)
    fewest, most = int(kinds.min()), int(kinds.max())
    kind = str(most) if fewest == most else f"{fewest} to {most}"
    named = [f"{number} {name}" for number, name in enumerate(counted.columns) if str(number) != str(name)]
    print_facts(
        {
            "records": f"{sum(sizes):,} on {len(counted):,} devices, {min(sizes):,} to {max(sizes):,} each",
            **({"labels": f"{counts.shape[1]}; a device holds {kind} of them"} if counts.shape[1] > 1 else {}),
            **({"classes": textwrap.shorten(", ".join(named), 300, placeholder=" ...")} if named else {}),
            "test records": "are not counted here",
            **(
                {"owners": said.removeprefix("owners of records ")}
                if (said := dealt(owners, list(counted.index)))
                else {}
            ),
        }
    )
    labels = min(counts.shape[1], _WIDEST)
    head = "".join(str(label % 10) for label in range(labels))
    room = max(12, 56 - labels - max(len(str(name)) for name in counted.index[:_MOST_ROWS]))  # in 80 columns
    rows = [
        {
            "device": str(name),
            "records": sizes[at],
            **({} if labels == 1 else {"labels": int(kinds[at]), head: _shaded(row[:labels], row.max())}),
            **({"owner": textwrap.shorten(owners[at], room, placeholder=" ...")} if owners else {}),
        }
        for at, (name, row) in enumerate(list(zip(counted.index, counts, strict=True))[:_MOST_ROWS])
    ]
    print_table(rows)
    if len(counted) > _MOST_ROWS or labels < counts.shape[1]:
        typer.echo("... (--json has all devices and labels)")


def _shaded(counts: Iterable[int], most: int) -> str:
    """Counts as shades, up to the darkest for the most."""
    return "".join(_SHADES[4 * count // (most + 1) + 1 if count else 0] for count in counts)


def schema_command(
    of: Annotated[str, typer.Argument(metavar="experiment|topology", help="Of which file.")] = "experiment",
) -> None:
    """Print the JSON Schema of a file, for editors."""
    if of == "experiment":
        from h2fdp.experiment.sections import ExperimentFile

        print_json(ExperimentFile.model_json_schema())
    elif of == "topology":
        from h2fdp.network.schema import TopologyFile

        print_json(TopologyFile.model_json_schema())
    else:
        raise UserError(not_one_of(of, ["experiment", "topology"]), "schema")
