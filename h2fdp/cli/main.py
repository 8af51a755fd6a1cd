"""The command `h2fdp`: its subcommands and its error handling."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from h2fdp import __version__
from h2fdp.cli import prepare, privacy, run, runs, study, sweep, topology
from h2fdp.cli.terminal import print_problem
from h2fdp.errors import UserError, check_addresses

MISTAKE, INTERRUPTED = 2, 130


class Command(TyperCommand):
    """A command that Ctrl-C ends in a line; what runs for long takes signals itself, and says how to go on.

    Its usage names its arguments alike in all versions of Typer: FILE, [DIR], RUN...
    """

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        check_addresses()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr, flush=True)
            if any(each.name == "compiling" for each in threading.enumerate()):
                os._exit(INTERRUPTED)  # Python would wait for the kernels, which the next run compiles as well
            raise typer.Exit(INTERRUPTED) from None

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        pieces = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "").replace("......", "...") for piece in pieces]


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(prepare.init_command)
app.command("run")(run.run_command)
app.command("sweep")(sweep.sweep_command)
app.command("study")(study.study_command)
app.command("tune")(sweep.tune_command)
app.command("resume")(run.resume_command)
app.command("explain", hidden=True)(privacy.explain_command)  # where the group is not looked for
app.command("plan")(prepare.plan_command)
app.command("runs")(runs.runs_command)
app.command("report")(runs.report_command)
app.command("table")(runs.table_command)
app.command("plot")(runs.plot_command)
app.add_typer(topology.app, name="topology")
app.add_typer(privacy.app, name="privacy")
app.command("methods")(prepare.methods_command)
app.command("models")(prepare.models_command)
app.command("data")(prepare.data_command)
app.command("schema")(prepare.schema_command)
for group in (app, topology.app, privacy.app):
    for command in group.registered_commands:
        command.cls = Command


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"h2fdp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Simulate hierarchical federated learning with differential privacy."""


def main(app: typer.Typer = app) -> None:
    """Run a command line; a user's mistakes are reported in short lines, our own bugs keep their traceback."""
    try:
        app()
    except UserError as error:
        print_problem(_printable(error.report), *(each.where for each in error.problems))
        sys.exit(MISTAKE)
    except BrokenPipeError:  # the reader of a pipe went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _printable(text: str) -> str:
    """Text of a user's file must not steer the terminal: escape sequences are spelled out."""
    return "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text)
