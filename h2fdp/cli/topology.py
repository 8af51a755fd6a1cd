"""`h2fdp topology new|check|show`: make, check and look at networks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2fdp.cli.tables import AsJson, print_facts, print_json
from h2fdp.wording import counted

if TYPE_CHECKING:
    from h2fdp.topology import Topology

app = typer.Typer(no_args_is_help=True, help="Make, check and look at networks.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="A topology: .yaml, .graphml or .json.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed for everything that the file leaves random.")]


@app.command("new")
def new_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="regular, deep, config1, config2, star or geometric.")],
    out: Annotated[Path, typer.Option(help="The file: .yaml, .graphml or .json.")],
    edges: Annotated[int | None, typer.Option(help="Edge servers.")] = None,
    devices: Annotated[int | None, typer.Option(help="Devices of each edge server.")] = None,
    tiers: Annotated[
        str | None,
        typer.Option(help="Children of the cloud, of each node below, ..., devices of each: 2,5,5 (deep)."),
    ] = None,
    trust: Annotated[float | None, typer.Option(help="Probability that an edge server is trusted.")] = None,
    side_m: Annotated[float | None, typer.Option(help="Side of the square, in metres (geometric).")] = None,
    secure_sum: Annotated[
        float | None, typer.Option(help="Probability that it is not trusted, but sees the sum of its devices only.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The network's name.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the distances and, with --state-trust, of the trust.")] = 1,
    state_trust: Annotated[
        bool,
        typer.Option(
            "--state-trust", help="Write the trust drawn for each edge server; otherwise each run draws its own."
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write a network made to order, distances drawn; trust is left to each run's seed unless --state-trust."""
    from h2fdp.errors import UserError
    from h2fdp.topology import write
    from h2fdp.topology.summary import trust_counts

    if out.exists() and not overwrite:
        raise UserError("the file exists already; --overwrite replaces it", str(out))
    numbers = None if tiers is None else _whole_numbers(tiers)
    given: dict[str, Any] = {"edges": edges, "devices": devices, "tiers": numbers, "trust": trust, "side_m": side_m}
    given |= {"secure_sum": secure_sum, "name": name}
    topology = _generate(kind, {key: value for key, value in given.items() if value is not None}, seed)
    # A star has one edge server, untrusted by definition: leaving it to a probability of 0 would say less.
    write(topology, out, state_trust=state_trust or kind == "star")
    servers = list(topology.servers())
    drawn = trust_counts(topology) if state_trust or kind == "star" else "trust drawn by each run"
    typer.echo(f"{out}: {counted(len(servers), 'edge server')} ({drawn}), {counted(topology.devices, 'device')}")


def _whole_numbers(text: str) -> list[int]:
    from h2fdp.errors import UserError

    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f'expected whole numbers, as 2,5,5, found "{text}"', "topology new", "--tiers") from None
    if len(numbers) < 2:
        expected = "a number for each tier of edge servers and one of devices, as 2,5,5"
        raise UserError(f"expected {expected}, found {text} alone", "topology new", "--tiers")
    return numbers


@app.command("check")
def check_command(file: File, seed: Seed = 1, as_json: AsJson = False) -> None:
    """Check a file and print a summary; every error is reported with its line."""
    from h2fdp.topology import read
    from h2fdp.topology.summary import summarise

    summary = summarise(read(file, seed))
    if as_json:
        print_json(summary)
        return
    probability = summary["trust_probability"]
    how = "as stated" if probability is None else f"seed {seed}, probability {probability:g} where none is stated"
    secure, odds = summary["secure_sum"], summary["secure_sum_probability"]
    drawn = f"; probability {odds:g} where none is stated" if odds else ""
    sums = {"secure sums": f"{secure:,} of {summary['edges']:,}{drawn}"} if secure or odds else {}
    size, distance = summary["subnet_size"], summary["distance_m"]
    spread = f"{size['lowest']}" if size["lowest"] == size["highest"] else f"{size['lowest']} to {size['highest']}"
    tiers = summary.get("tiers", [])
    all_trusted = sum(tier["trusted"] for tier in tiers)
    above = {
        f"tier {height}": f"{counted(tier['edges'], 'edge server')}, {tier['trusted']:,} trusted"
        + (f", {tier['secure_sum']:,} with secure sums" if tier["secure_sum"] else "")
        for height, tier in list(enumerate(tiers, start=1))[1:]
    }
    deep = {
        "edge servers": f"{sum(tier['edges'] for tier in tiers):,} in {len(tiers)} tiers, {all_trusted:,} trusted",
        **dict(reversed(above.items())),
        "tier 1": f"{counted(summary['edges'], 'edge server')} with the devices",
    }
    print_facts(
        {
            "topology": summary["name"],
            **(deep if tiers else {"edge servers": f"{summary['edges']:,}"}),
            "devices": f"{summary['devices']:,} ({spread} under each edge server)",
            "trusted": f"{summary['trusted']:,} of {summary['edges']:,}{' of tier 1' if tiers else ''} ({how})",
            **sums,
            "distances": f"{distance['lowest']:g} to {distance['highest']:g} m (median {distance['median']:.4g} m)",
        }
    )


@app.command("show")
def show_command(
    file: File,
    seed: Seed = 1,
    out: Annotated[Path | None, typer.Option(help="Draw a picture instead: .png, .svg or .pdf.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a network in the terminal, or into a picture."""
    from h2fdp.topology import draw, read
    from h2fdp.topology.summary import summarise, summarise_aggregator, summarise_subnet

    topology = read(file, seed)
    if out is not None:
        draw(topology, out)
        typer.echo(str(out))
    elif as_json:
        above = [summarise_aggregator(topology, aggregator) for aggregator in topology.aggregators]
        aggregators = {"aggregators": above} if above else {}
        subnets = [summarise_subnet(subnet) for subnet in topology.subnets]
        print_json(summarise(topology) | aggregators | {"subnets": subnets})
    else:
        _print_tree(topology)


def _generate(kind: str, arguments: dict[str, Any], seed: int) -> Topology:
    import inspect

    from h2fdp.errors import Problem, UserError
    from h2fdp.topology import GENERATORS

    if kind not in GENERATORS:
        raise UserError(f'expected one of {", ".join(GENERATORS)}, found "{kind}"', "topology new")
    takes = inspect.signature(GENERATORS[kind]).parameters
    unknown = [
        Problem(f"{kind} takes no such option", "topology new", f"--{key.replace('_', '-')}")
        for key in arguments
        if key not in takes
    ]
    if unknown:
        raise UserError(unknown)
    return GENERATORS[kind](**arguments, seed=seed)


def _print_tree(topology: Topology) -> None:
    from h2fdp.topology.summary import ASCII, SYMBOLS, headline, listing, trust_words

    plain = not (sys.stdout.encoding or "").lower().startswith("utf")

    def echo(text: str, colour: str | None = None) -> None:
        text = text.translate(ASCII).encode("ascii", "replace").decode() if plain else text
        typer.secho(text.rstrip(), fg=colour)

    colours = {"trusted": typer.colors.BLUE, "secure-sum": typer.colors.GREEN, "untrusted": typer.colors.YELLOW}
    echo(f"{topology.name}: {headline(topology)}")
    for line in listing(topology):
        echo(line.text, colours[line.trust] if line.trust else None)
    used = {"trusted", "untrusted", *(server.trust for server in topology.servers())}
    signs = [f"{sign} {trust}: {trust_words(topology)[trust]}" for trust, sign in SYMBOLS.items() if trust in used]
    echo(("   " if topology.depth == 1 and len(signs) == 2 else "\n").join(signs))
