"""The statements of a module as a digest reads them: their syntax trees, the names in them, what their imports bind."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_IMPORTS = (ast.Import, ast.ImportFrom)
_UNCOUNTED = frozenset({"ctx", "type_comment", "kind"})  # fields that say nothing, or what the rest of a tree says


@dataclass(frozen=True)
class Import:
    """What an import binds: a module, or a name of a module."""

    module: str
    name: str | None = None


@dataclass(frozen=True)
class Statement:
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
    imports: Mapping[str, list[Import]]
    binds: frozenset[str]
    decorators: tuple[str, ...]
    defines: bool
    acts: bool


def statements_of(path: str, text: str | bytes) -> Iterator[tuple[Statement | None, Mapping[str, list[Import]]]]:
    """What stands at the top of a module, in order: each statement that computes something, and what imports bind.

    The names that an import binds are those of the module; imports within a function or class are in its `Statement`.

    Args:
        path: the module's name; a package's own module is called `package.__init__`.
    """
    name = path.removesuffix(".__init__")
    keeps_docs = "__doc__" in (text if isinstance(text, str) else text.decode("utf-8", "replace"))
    for node in ast.parse(text).body:
        reader = _Reader(name, name != path, keeps_docs)
        reader.read(node)
        computes = reader.tree and not _is_for_types(node) and _binds(node) != {"__all__"}
        statement = _statement(node, name, reader) if computes else None
        yield statement, {} if isinstance(node, _DEFINITIONS) else reader.imports


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
        self.imports: dict[str, list[Import]] = {}
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
                origin = Import(_origin(node, self._module, self._is_package), alias.name)
            else:
                origin = Import(alias.name if alias.asname else alias.name.partition(".")[0])
            self.imports.setdefault(alias.asname or origin.name or origin.module, []).append(origin)


def _statement(node: ast.stmt, module: str, reader: _Reader) -> Statement:
    is_definition = isinstance(node, _DEFINITIONS)
    decorators = [_root(each) for each in node.decorator_list] if isinstance(node, _DEFINITIONS) else []
    return Statement(
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
