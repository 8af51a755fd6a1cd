"""Write docs/keys.md, a table for each section of the files that users write, from the sections' docstrings.

python -m experiments.keys_page
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from h2fdp.config.check import annotation_of
from h2fdp.config.fields import Options, descriptions_of_keys
from h2fdp.config.named_options import Choices
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.methods import MethodSection, name_of
from h2fdp.network.schema import TopologyFile

Row = tuple[str, str, str]  # of a table: key, default, meaning
PAGE = Path(__file__).parent.parent / "docs" / "keys.md"
_HEAD = """\
# Every key

All keys of the [experiment file](experiment-file.md) and of the [topology file](topology-file.md), with their defaults;
these pages explain how they go together. `h2fdp schema` and `h2fdp schema topology` print the same as JSON Schema, for
editors. `python -m experiments.keys_page` writes this page from the docstrings of the sections.
"""


def page() -> str:
    """All of it."""
    parts = [_HEAD]
    for title, file in (("The experiment file", ExperimentFile), ("The topology file", TopologyFile)):
        parts.append(f"## {title}\n\n{_table(_rows(file))}")
        places: dict[str, list[tuple[str, list[Row]]]] = {}
        listed: set[type] = set()
        for name, section in _sections(file, "", {file}):
            places.setdefault(name.strip("`").partition(":")[0], []).append((name, _rows(section, listed)))
            listed.add(section)
        for place, choices in places.items():
            shared: dict[tuple[str, str], list[tuple[str, str]]] = {}  # a key that means the same in several choices
            for name, rows in choices:
                for key, default, text in rows:
                    shared.setdefault((key, text), []).append((name, default))
            tables: dict[str, list[Row]] = {}
            for (key, text), defaults in shared.items():
                names = [f"every `{place}`"] if len(defaults) == len(choices) > 1 else [name for name, _ in defaults]
                row = key, _one_of(defaults), text
                tables.setdefault(", ".join(dict.fromkeys(names)), []).append(row)
            parts += [f"### {title}\n\n{_table(rows)}" for title, rows in tables.items()]
    return "\n".join(parts)


def _sections(section: type[BaseModel], path: str, known: set[type]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections below one, by what they are called: `training`, or `model: mlp` for one of several choices."""
    for key, field in section.model_fields.items():
        place = f"{path}.{field.alias or key}" if path else (field.alias or key)
        for below in _models(annotation_of(field)):
            if below not in known:
                known.add(below)
                choice = f": {below.model_fields['name'].default}" if issubclass(below, Options) else ""
                yield f"`{place}{choice}`", below
                yield from _sections(below, place, known)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    named = next((each for each in get_args(annotation) if isinstance(each, Choices)), None)
    for part in get_args(annotation) if named is None else named.members():
        yield from _models(part)


def _keys(section: type[BaseModel]) -> list[str]:
    """All but the name of a choice, which is in the heading."""
    fields = section.model_fields
    return [key for key in fields if not (key == "name" and issubclass(section, Options))]


def _table(rows: Iterable[Row]) -> str:
    lines = [f"| `{key}` | {default} | {text} |" for key, default, text in rows]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *lines]) + "\n"


def _rows(section: type[BaseModel], listed: Container[type] = ()) -> list[Row]:
    """All keys but those of a section that is listed above, and that this one extends."""
    meant, rows = descriptions_of_keys(section), []
    above = {key for base in section.__mro__[1:] if base in listed for key in _keys(base)}
    for key in (key for key in _keys(section) if key not in above):
        field = section.model_fields[key]
        name = field.alias or key
        default = "required" if field.is_required() else _word(field.get_default(call_default_factory=True))
        rows.append((name, default, meant[name].replace("|", r"\|")))
    return rows


def _one_of(defaults: list[tuple[str, str]]) -> str:
    """The default of all choices, or that of each."""
    choices: dict[str, list[str]] = {}
    for name, default in defaults:
        choices.setdefault(default, []).append(name.strip("`").partition(": ")[2])
    if len(choices) == 1:
        return defaults[0][1]
    return "; ".join(f"{default} ({', '.join(names)})" for default, names in choices.items())


def _word(value: Any) -> str:
    """A default as a file would say it."""
    if isinstance(value, Options):
        return f"`{value.name}`"
    if isinstance(value, MethodSection):
        return f"`{name_of(value)}`"
    if isinstance(value, BaseModel):
        stated = value.model_dump(exclude_defaults=True)
        return f"`{_yaml(stated)}`" if stated else "see there"
    return "null" if value is None else f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False).removesuffix("\n...\n").strip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
