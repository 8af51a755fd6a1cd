"""What a program computes, as one digest that sees neither comments, docstrings nor the names of files.

A program is its definitions: every statement at the top of a module that is not an import. Each is known by its syntax
tree and by what the names in it stand for, wherever that is defined and whatever way it was imported. So a function may
move to another file and a file may be renamed; but where two functions of one name change places the digest differs,
for then the names in their callers stand for something else.

The order of a module's statements counts once one of them does more than bind new names to expressions without calls.
The order in which modules are imported does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from h2fdp.digests.statements import Import, Statement, statements_of


def hash_of(texts: Iterable[str]) -> str:
    """A digest of texts, in which each keeps to itself: other texts of the same letters have another."""
    digest = blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}|".encode() + data)
    return digest.hexdigest()


@dataclass
class _Module:
    statements: list[int] = field(default_factory=list)
    bindings: dict[str, list[int | Import]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules that it imports everything from


class Program:
    """The definitions of some modules, and what each name in them stands for.

    Args:
        sources: name of a module -> its text; a package's own module is called `package.__init__`.

    >>> two_files = {"a": "def f(x):\\n    '''Twice x.'''\\n    return 2 * x", "b": "from a import f\\ny = f(1)"}
    >>> Program(two_files).digest() == Program({"c": "def f(x): return 2 * x  # twice x\\ny = f(1)"}).digest()
    True
    >>> Program(two_files).digest() == Program({"c": "def f(x): return 3 * x\\ny = f(1)"}).digest()
    False
    """

    def __init__(self, sources: Mapping[str, str | bytes]) -> None:
        self._modules = {path.removesuffix(".__init__"): _Module() for path in sources}
        self._packages = {name[:end] for name in self._modules for end, letter in enumerate(name) if letter == "."}
        self._statements: list[Statement] = []
        for path, text in sources.items():
            self._read(path, text)
        self._uses = [self._uses_of(statement) for statement in self._statements]
        self._colours = self._refined()

    def digest(self) -> str:
        """Equal only if the same is defined."""
        return hash_of(sorted([*self._in_their_places(), *self._orders()]))

    def by_module(self) -> dict[str, str]:
        """Module -> a digest of what it defines by itself, whatever the names in it stand for."""
        return {
            name: hash_of(sorted(self._statements[number].tree for number in module.statements))[:8]
            for name, module in self._modules.items()
        }

    def of(self, module: str, name: str) -> list[str]:
        """Digests of what a name of a module stands for, which change with anything that it uses."""
        targets = self._in_module(module, [name], set())
        return [self._colours[target] for target in targets if isinstance(target, int)]

    def _read(self, path: str, text: str | bytes) -> None:
        module = self._modules[path.removesuffix(".__init__")]
        for statement, imports in statements_of(path, text):
            for bound, origins in imports.items():
                if bound == "*":
                    module.stars += [each.module for each in origins]
                else:
                    module.bindings.setdefault(bound, []).extend(origins)
            if statement is not None:
                for bound in statement.binds:
                    module.bindings.setdefault(bound, []).append(len(self._statements))
                module.statements.append(len(self._statements))
                self._statements.append(statement)

    def _uses_of(self, statement: Statement) -> list[tuple[str, list[int | str]]]:
        """Names in a statement -> what they stand for: statements, or what other programs define."""
        meanings = [(name, list(self._meanings(statement, name))) for name in statement.names]
        return [(name, targets) for name, targets in meanings if targets]

    def _refined(self) -> list[str]:
        """Of each statement a digest of it and of what its names stand for.

        Colour refinement: statements keep one colour while they read alike and their names stand for statements of one
        colour each. Once no more colours appear, those of one colour compute the same.
        """
        colours = [hash_of([each.tree]) for each in self._statements]
        count = 0
        while len(set(colours)) > count:
            count = len(set(colours))
            colours = [
                hash_of([colour, *(text for name, targets in uses for text in (name, *_worded(targets, colours)))])
                for colour, uses in zip(colours, self._uses, strict=True)
            ]
        return colours

    def _in_their_places(self) -> Iterator[str]:
        """Of each statement its colour and those of what uses it: one table is not two that begin alike."""
        users: list[list[str]] = [[] for _ in self._statements]
        for colour, uses in zip(self._colours, self._uses, strict=True):
            for name, targets in uses:
                for target in targets:
                    if isinstance(target, int):
                        users[target].append(hash_of([colour, name]))
        return (hash_of([colour, *sorted(by)]) for colour, by in zip(self._colours, users, strict=True))

    def _orders(self) -> Iterator[str]:
        """Of each module in which it may matter, the order of its statements."""
        for module in self._modules.values():
            parts = [(number, self._statements[number]) for number in module.statements]
            bound = Counter(name for _, part in parts for name in part.binds)
            again = {name for name, times in bound.items() if times > 1}
            acting = {number for number, part in parts if part.acts or part.binds & again or self._registers(part)}
            in_order = [number for number, part in parts if number in acting or not part.defines]
            if acting and len(in_order) > 1:
                yield hash_of(["in this order", *(self._colours[number] for number in in_order)])

    def _registers(self, part: Statement) -> bool:
        """Whether a function or class is handed to a function of this program, which may keep it."""
        return any(isinstance(target, int) for name in part.decorators for target in self._meanings(part, name))

    def _meanings(self, statement: Statement, name: str) -> Iterator[int | str]:
        first, *rest = name.split(".")
        for origin in statement.imports.get(first, ()):
            yield from self._imported(origin, rest, set())
        yield from self._bound(statement.module, first, rest, set())

    def _bound(self, name: str, first: str, rest: list[str], seen: set[tuple[str, str]]) -> Iterator[int | str]:
        """What `first` stands for in a module, or for a module there the `rest` of a path in that one."""
        if (name, first) in seen:
            return
        seen.add((name, first))
        module = self._modules[name]
        for binding in module.bindings.get(first, ()):
            if isinstance(binding, int):
                yield binding
            else:
                yield from self._imported(binding, rest, seen)
        if first not in module.bindings:
            for star in module.stars:
                yield from (self._bound(star, first, rest, seen) if star in self._modules else [f"{star}.*"])

    def _imported(self, origin: Import, rest: list[str], seen: set[tuple[str, str]]) -> Iterator[int | str]:
        if origin.module in self._modules or origin.module in self._packages:
            yield from self._in_module(origin.module, rest if origin.name is None else [origin.name, *rest], seen)
        else:
            yield origin.module if origin.name is None else f"{origin.module}:{origin.name}"

    def _in_module(self, name: str, path: list[str], seen: set[tuple[str, str]]) -> Iterator[int | str]:
        """What a path of names means in a module: what it binds, a module below it; all of it where there is none."""
        module = self._modules.get(name, _Module())
        below = f"{name}.{path[0]}" if path else ""
        if not path:
            yield from module.statements
        elif path[0] in module.bindings or (module.stars and below not in self._modules):
            yield from self._bound(name, path[0], path[1:], seen)
        elif below in self._modules or below in self._packages:
            yield from self._in_module(below, path[1:], seen)
        else:  # as a function `__getattr__` gives it
            yield f"given {path[0]}"
            yield from (each for each in module.bindings.get("__getattr__", ()) if isinstance(each, int))


def _worded(targets: Iterable[int | str], colours: list[str]) -> Iterator[str]:
    for target in targets:
        yield f"own {colours[target]}" if isinstance(target, int) else f"of others {target}"
