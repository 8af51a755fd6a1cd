"""What a program computes, as one digest that sees neither comments, docstrings nor the names of files.

A program is its definitions: every statement at the top of a module that is not an import. Each is known by its syntax
tree and by what the names in it stand for, wherever that is defined and whatever way it was imported. So a function may
move to another file and a file may be renamed; but where two functions of one name change places the digest differs,
for then the names in their callers stand for something else.

The order of a module's statements counts once one of them does more than bind new names to expressions without calls.
The order in which modules are imported does not count.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_IMPORTS = (ast.Import, ast.ImportFrom)
_UNCOUNTED = frozenset({"ctx", "type_comment", "kind"})  # fields that say nothing, or what the rest of a tree says


def hash_of(texts: Iterable[str]) -> str:
    """A digest of texts, in which each keeps to itself: other texts of the same letters have another."""
    digest = blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}|".encode() + data)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Import:
    """What an import binds: a module, or a name of a module."""

    module: str
    name: str | None = None


@dataclass(frozen=True)
class _Statement:
    """One statement at the top of a module.

    Attributes:
        tree: its syntax tree as a text, without docstrings and imports.
        names: in it, with attributes as far as they are names too (`x`, `np.linalg.norm`).
        imports: what imports within it bind.
        binds: names of the module that it gives a value.
        decorators: names of what a function or class is handed to.
        acts: it may do more than bind new names.
    """

    module: str
    tree: str
    names: tuple[str, ...]
    imports: Mapping[str, list[_Import]]
    binds: frozenset[str]
    decorators: tuple[str, ...]
    defines: bool
    acts: bool


@dataclass
class _Module:
    statements: list[int] = field(default_factory=list)
    bindings: dict[str, list[int | _Import]] = field(default_factory=dict)
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
        self._statements: list[_Statement] = []
        for path, text in sources.items():
            self._read(path, text)
        self._uses = [self._uses_of(statement) for statement in self._statements]
        self._colours = self._refined()

    def digest(self) -> str:
        """Equal only if the same is defined."""
        return hash_of(sorted([*self._in_their_places(), *self._orders()]))

    def of(self, module: str, name: str) -> list[str]:
        """Digests of what a name of a module stands for, which change with anything that it uses."""
        targets = self._in_module(module, [name], set())
        return [self._colours[target] for target in targets if isinstance(target, int)]

    def _read(self, path: str, text: str | bytes) -> None:
        name = path.removesuffix(".__init__")
        module = self._modules[name]
        keeps_docs = "__doc__" in (text if isinstance(text, str) else text.decode("utf-8", "replace"))
        for node in ast.parse(text).body:
            reader = _Reader(name, name != path, keeps_docs)
            reader.read(node)
            if not isinstance(node, _DEFINITIONS):
                module.stars += [each.module for each in reader.imports.pop("*", ())]
                for bound, origins in reader.imports.items():
                    module.bindings.setdefault(bound, []).extend(origins)
            if reader.tree and not _is_for_types(node) and _binds(node) != {"__all__"}:
                for bound in _binds(node):
                    module.bindings.setdefault(bound, []).append(len(self._statements))
                module.statements.append(len(self._statements))
                self._statements.append(_statement(node, name, reader))

    def _uses_of(self, statement: _Statement) -> list[tuple[str, list[int | str]]]:
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

    def _registers(self, part: _Statement) -> bool:
        """Whether a function or class is handed to a function of this program, which may keep it."""
        return any(isinstance(target, int) for name in part.decorators for target in self._meanings(part, name))

    def _meanings(self, statement: _Statement, name: str) -> Iterator[int | str]:
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

    def _imported(self, origin: _Import, rest: list[str], seen: set[tuple[str, str]]) -> Iterator[int | str]:
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


@lru_cache(maxsize=1024)
def imported_modules(text: str | bytes, path: str) -> frozenset[str]:
    """Names that may be modules which a module imports, in functions too: of `from a import b` both `a` and `a.b`.

    Args:
        path: the module's name; a package's own module is called `package.__init__`.
    """
    found = set()
    module = path.removesuffix(".__init__")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, module, module != path)
            found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    return frozenset(found)


class _Reader:
    """Reads one statement: its tree as a text, the names in it, and what imports in it bind."""

    def __init__(self, module: str, is_package: bool, keeps_docs: bool) -> None:
        self.tree: list[str] = []
        self.names: dict[str, None] = {}
        self.imports: dict[str, list[_Import]] = {}
        self._module = module
        self._is_package = is_package
        self._keeps_docs = keeps_docs  # the module reads docstrings, so that they are values

    def read(self, node: ast.AST) -> None:
        if isinstance(node, _IMPORTS):
            self._import(node)
        elif isinstance(node, ast.Name):
            self.names.setdefault(node.id)
            self.tree += ["Name", node.id]
        elif isinstance(node, ast.Attribute) and (name := _dotted(node)):
            self.names.setdefault(name)
            self.tree += ["Attribute", name]
        elif not isinstance(node, ast.Pass) and (self._keeps_docs or not _is_comment(node)):
            if isinstance(node, ast.Global):
                self.names.update(dict.fromkeys(node.names))
            self.tree.append(type(node).__name__)
            for name in node._fields:
                if name not in _UNCOUNTED:
                    self._read_field(getattr(node, name, None))

    def _read_field(self, value: object) -> None:
        if isinstance(value, ast.AST):
            self.read(value)
        elif isinstance(value, list):
            self.tree.append("(")
            for each in value:
                self._read_field(each)
            self.tree.append(")")
        else:
            self.tree.append(repr(value))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                origin = _Import(_origin(node, self._module, self._is_package), alias.name)
            else:
                origin = _Import(alias.name if alias.asname else alias.name.partition(".")[0])
            self.imports.setdefault(alias.asname or origin.name or origin.module, []).append(origin)


def _statement(node: ast.stmt, module: str, reader: _Reader) -> _Statement:
    is_definition = isinstance(node, _DEFINITIONS)
    decorators = [_root(each) for each in node.decorator_list] if isinstance(node, _DEFINITIONS) else []
    return _Statement(
        module,
        "\n".join(reader.tree),
        tuple(reader.names),
        reader.imports if is_definition else {},
        frozenset(_binds(node)),
        tuple(decorators),
        is_definition,
        not is_definition and _acts(node),
    )


def _acts(node: ast.stmt) -> bool:
    """Whether a statement may do more than bind names: it is neither `a = ...` nor `a, b = ...`, or it calls."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    plain = targets and all(isinstance(each, ast.Name | ast.Tuple) for each in targets)
    return not plain or any(isinstance(each, ast.Call | ast.NamedExpr) or _stores_into(each) for each in ast.walk(node))


def _stores_into(node: ast.AST) -> bool:
    """Whether it is `a[...] = ` or `a.b = `, which changes a value that is there."""
    return isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load)


def _binds(node: ast.AST) -> set[str]:
    """Names of the module that a statement gives a value, or takes it from."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, _OWN_SCOPE):
        return set()
    return {name for child in ast.iter_child_nodes(node) for name in _binds(child)}


def _is_for_types(node: ast.stmt) -> bool:
    """Whether a statement is `if TYPE_CHECKING:` and imports."""
    if not isinstance(node, ast.If) or node.orelse or not all(isinstance(each, _IMPORTS) for each in node.body):
        return False
    return _root(node.test).endswith("TYPE_CHECKING")


def _is_comment(node: ast.AST) -> bool:
    """Whether a statement is a value and nothing else: a docstring, or three dots."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _root(node: ast.expr) -> str:
    """The dotted name that an expression is, or calls; nothing where it is another."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.id if isinstance(node, ast.Name) else _dotted(node) if isinstance(node, ast.Attribute) else ""


def _dotted(node: ast.Attribute) -> str:
    """`a.b.c`; nothing where it begins with more than a name."""
    parts, inner = [node.attr], node.value
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    return ".".join([inner.id, *reversed(parts)]) if isinstance(inner, ast.Name) else ""


def _origin(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module of `from module import`; dots count from the module that it stands in."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    above = parts[: len(parts) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])


def _worded(targets: Iterable[int | str], colours: list[str]) -> Iterator[str]:
    for target in targets:
        yield f"own {colours[target]}" if isinstance(target, int) else f"of others {target}"
