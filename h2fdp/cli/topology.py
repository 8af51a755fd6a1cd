"""`h2fdp topology new|import|check|show`: make, check and look at networks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.terminal import AsJson, print_facts, print_json, print_text
from h2fdp.errors import UserError, not_one_of
from h2fdp.wording import counted

if TYPE_CHECKING:
    from h2fdp.network import Topology

app = typer.Typer(no_args_is_help=True, help="Make, check and look at networks.")

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A topology: .yaml, .graphml, .gml, .json; or an experiment.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed for everything that the file leaves random.")]


Trust = Annotated[
    str | None,
    typer.Option(help="Probability that an edge server is trusted, or trusted=0.3,secure-sum=0.2 of both levels."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]


@app.command("new")
def new_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="regular or deep.")],
    out: Annotated[Path, typer.Option(help="The YAML file.")],
    edges: Annotated[
        str | None, typer.Option(help="Edge servers; of several tiers, below each node of the tier above: 2,5 (deep).")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Devices of each edge server.")] = None,
    trust: Trust = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the distances.")] = 1,
    overwrite: Overwrite = False,
) -> None:
    """Write a network made to order, distances drawn; trust is left to each run's seed."""
    from h2fdp.network import GENERATORS, write

    _check_free(out, overwrite)
    given: dict[str, Any] = {} if trust is None else _levels(trust, "topology new")
    if kind not in GENERATORS:
        raise UserError(not_one_of(kind, list(GENERATORS)), "topology new")
    edges = edges if edges is not None else "2,5" if kind == "deep" else "10"
    tiers = [_number(int, "edges", word) for word in edges.split(",")]
    if len(tiers) > 1 and kind != "deep":
        raise UserError(f'expected one number but for deep, found "{edges}"', "topology new", "--edges")
    each = 5 if devices is None else devices
    given |= {"tiers": [*tiers, each]} if kind == "deep" else {"edges": tiers[0], "devices": each}
    topology = GENERATORS[kind](**given, seed=seed)
    write(topology, out, state_trust=False)
    servers = counted(len(list(topology.servers())), "edge server")
    typer.echo(f"{out}: {servers} (trust drawn by each run), {counted(topology.devices, 'device')}")


@app.command("import")
def import_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="A graph (.gml, .graphml, .json); or two CSV files, of edge servers and of users, with x and y "
            "(metres) or lat and lon.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The YAML file.")],
    cloud: Annotated[
        str | None,
        typer.Option(help="Of a graph without roles: the node where the cloud sits; by default that nearest to all."),
    ] = None,
    edges: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a graph without roles: a node that becomes an edge server directly below the cloud, given any "
            "number of times; by default all, and a tree keeps its tiers."
        ),
    ] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Of a graph: devices of each edge server (5).")] = None,
    rate_mbps: Annotated[
        float | None, typer.Option(min=1e-6, help="Of a graph: of links that state no rate (100).")
    ] = None,
    trust: Trust = None,
    seed: Seed = 1,
    overwrite: Overwrite = False,
) -> None:
    """Make a network of a graph, or of the places of edge servers and users."""
    from h2fdp.network import imported, write
    from h2fdp.network.summary import headline

    _check_free(out, overwrite)
    options = {"cloud": cloud, "edges": edges, "devices": devices, "rate_mbps": rate_mbps}
    levels = None if trust is None else {_KEYS[key]: share for key, share in _levels(trust, "topology import").items()}
    given = {key: value for key, value in options.items() if value}
    topology, note = imported(files, seed, levels, **given)
    stated, tiers = topology.trust_probability is None, f" in {topology.depth} tiers" if topology.depth > 1 else ""
    write(topology, out, state_trust=stated)
    servers = f"{counted(len(list(topology.servers())), 'edge server')}{tiers} (trust drawn by each run), "
    typer.echo(f"{out}: {headline(topology) if stated else servers + counted(topology.devices, 'device')}")
    for line in filter(None, note.split("\n")):
        print_text(line)


_KEYS = {"trust": "trusted", "secure_sum": "secure-sum"}


def _check_free(out: Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise UserError("the file exists already; --overwrite replaces it", str(out))


def _levels(text: str, command: str) -> dict[str, float]:
    """`0.3`, or `trusted=0.3,secure-sum=0.2`, as arguments of generators."""
    if "=" not in text:
        return {"trust": _number(float, "trust", text, command)}
    found = dict(part.partition("=")[::2] for part in text.split(","))
    if unknown := found.keys() - set(_KEYS.values()):
        raise UserError(not_one_of(min(unknown), list(_KEYS.values())), command, "--trust")
    keys = {level: key for key, level in _KEYS.items()}
    return {"trust": 0.0} | {keys[level]: _number(float, "trust", share, command) for level, share in found.items()}


def _number(kind: Any, option: str, text: str, command: str = "topology new") -> Any:
    try:
        found = kind(text)
        if kind is float and not 0 <= found <= 1:
            raise ValueError
        return found
    except ValueError:
        words = "whole numbers, as 2,5" if kind is int else "a number from 0 to 1"
        raise UserError(f'expected {words}, found "{text}"', command, f"--{option}") from None


@app.command("check")
def check_command(file: File, seed: Seed = 1, as_json: AsJson = False) -> None:
    """Check a file and print a summary; every error is reported with its line."""
    from h2fdp.network.summary import summarise, words_of_parts

    summary = summarise(network := _network(file, seed))
    if as_json:
        print_json(summary)
        return
    probability = summary["trust_probability"]
    how = "as stated" if probability is None else f"seed {seed}, probability {probability:g} where none is stated"
    secure, odds = summary["secure_sum"], summary["secure_sum_probability"]
    drawn = f"; probability {odds:g} where none is stated" if odds else ""
    sums = {"secure sums": f"{secure:,} of {summary['edges']:,}{drawn}"} if secure or odds else {}
    sums |= {"relays": f"{summary['relay']:,} of {summary['edges']:,}"} if summary["relay"] else {}
    size, distance = summary["subnet_size"], summary["distance_m"]
    spread = f"{size['lowest']}" if size["lowest"] == size["highest"] else f"{size['lowest']} to {size['highest']}"
    tiers = summary.get("tiers", [])
    servers, of_tier = f"{summary['edges']:,}", ""
    if tiers:
        every, trusted = (sum(tier[key] for tier in tiers) for key in ("edges", "trusted"))
        servers, of_tier = f"{every:,} in {len(tiers)} tiers, {trusted:,} trusted", " of tier 1"
    print_facts(
        {
            "topology": summary["name"],
            "edge servers": servers,
            "devices": f"{summary['devices']:,} ({spread} under each edge server)",
            "trusted": f"{summary['trusted']:,} of {summary['edges']:,}{of_tier} ({how})",
            **sums,
            "distances": f"{distance['lowest']:g} to {distance['highest']:g} m (median {distance['median']:.4g} m)",
            **{key: words for key, words in words_of_parts(network).items() if words},
        }
    )


@app.command("show")
def show_command(
    file: File,
    seed: Seed = 1,
    out: Annotated[Path | None, typer.Option(help="Draw a picture instead: .png, .svg or .pdf.")] = None,
) -> None:
    """Draw a network in the terminal, or into a picture."""
    from h2fdp.network import draw

    topology = _network(file, seed)
    if out is not None:
        draw(topology, out)
        typer.echo(str(out))
    else:
        _print_tree(topology)


def _network(file: Path, seed: int) -> Topology:
    """The network of a topology file, or of an experiment file."""
    from h2fdp.experiment.file import experiment_from, named_document
    from h2fdp.network import read

    if file.suffix in (".yaml", ".yml") and file.is_file():
        document = named_document(file)
        if isinstance(document.root.content, dict) and "topology" in document.root.content:
            return experiment_from(document, seed=seed)[1]
    return read(file, seed)


def _print_tree(topology: Topology) -> None:
    from h2fdp.network.summary import ASCII, SYMBOLS, headline, listing, trust_words

    plain = not (sys.stdout.encoding or "").lower().startswith("utf")

    def echo(text: str, colour: str | None = None) -> None:
        text = text.translate(ASCII).encode("ascii", "replace").decode() if plain else text
        typer.secho(text.rstrip(), fg=colour)

    colours = {"trusted": typer.colors.BLUE, "secure-sum": typer.colors.GREEN, "untrusted": typer.colors.YELLOW}
    colours["relay"] = typer.colors.MAGENTA
    echo(f"{topology.name}: {headline(topology)}")
    for line in listing(topology):
        echo(line.text, colours[line.trust] if line.trust else None)
    used = {"trusted", "untrusted", *(server.trust for server in topology.servers())}
    signs = [f"{sign} {trust}: {trust_words(topology)[trust]}" for trust, sign in SYMBOLS.items() if trust in used]
    echo(("   " if topology.depth == 1 and len(signs) == 2 else "\n").join(signs))
