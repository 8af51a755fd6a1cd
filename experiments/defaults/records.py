"""Seven files as users have them, and what their owners might state about them; written to a folder.

    python -m experiments.defaults.records FOLDER         # writes them all

Columns and targets are drawn here; breast cancer, wine and digits come with scikit-learn; texts are the first
paragraphs of docstrings of installed packages, which are to be told apart.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification, make_friedman1

ROWS = 12_000


@dataclass(frozen=True)
class UserFile:
    """A file, and what is said about it.

    Attributes:
        name: of the file, or of a folder of images.
        make: writes it to a path.
        data: the shortest section, besides the path.
        stated: keys that need knowledge of the records from elsewhere: ranges, categories.
        edges, devices: edge servers, and devices under each.
        text: it has a column of texts.
    """

    name: str
    make: Callable[[Path], None]
    data: dict[str, Any]
    stated: dict[str, Any] = field(default_factory=dict)
    edges: int = 4
    devices: int = 5
    text: bool = False

    def at(self, folder: Path) -> Path:
        """Its path in a folder, where it is written if it is not there yet."""
        if not (path := folder / self.name).exists():
            self.make(path)
        return path.absolute()

    @property
    def measure(self) -> str:
        """What its runs are judged by."""
        return "r2" if self.data.get("task") == "regression" else "accuracy"


def _names(count: int) -> list[str]:
    return [f"c{number}" for number in range(count)]


def _classified() -> tuple[np.ndarray, np.ndarray]:
    """25 columns and five classes, of which logistic regression tells 86 % right."""
    return make_classification(
        ROWS, 25, n_informative=10, n_redundant=5, n_classes=5, n_clusters_per_class=1, class_sep=1.3, random_state=25
    )  # fmt: skip


def _unit(path: Path) -> None:
    x, y = _classified()
    x = (x - x.min(0)) / (x.max(0) - x.min(0))
    pd.DataFrame(x.round(5), columns=_names(25)).assign(outcome=y).to_csv(path, index=False)


# Columns 0 to 21 are numbers, of these 20 is log-normal and 21 whole numbers; 22 and 23 are words; 24 stays as it is.
_SCALES, _OFFSETS = 10.0 ** np.linspace(-4, 5, 20), np.resize([0.0, 3.0, -10.0, 100.0], 20)
_SITES, _STAGES = ["north", "east", "south", "west", "centre"], ["none", "mild", "severe"]


def _wild(path: Path) -> None:
    x, y = _classified()
    rng = np.random.default_rng(26)
    x = x / x.std(0)
    frame = pd.DataFrame((x[:, :20] + _OFFSETS) * _SCALES, columns=_names(20))
    frame["dose"], frame["visits"] = np.exp(1.5 * x[:, 20]), np.clip(np.round(20 + 6 * x[:, 21]), 0, None).astype(int)
    frame["site"] = np.array(_SITES)[np.digitize(x[:, 22], [-1.0, -0.3, 0.3, 1.0])]
    frame["stage"] = np.array(_STAGES)[np.digitize(x[:, 23], [-0.5, 0.5])]
    frame["c24"] = x[:, 24]
    for name in ("c3", "c11", "dose", "c24"):
        frame.loc[rng.random(ROWS) < 0.1, name] = np.nan
    frame.assign(outcome=y).to_csv(path, index=False)


_ENDS = {
    name: [float(scale * (offset - 4)), float(scale * (offset + 4)), float(scale * offset)]
    for name, scale, offset in zip(_names(20), _SCALES, _OFFSETS, strict=True)
}
_WILD = {
    "ranges": {**_ENDS, "dose": [0, 30, 1], "visits": [0, 45], "c24": [-4, 4, 0]},
    "categories": {"site": _SITES, "stage": _STAGES},
}


def _prices(path: Path) -> None:
    """Ten columns, of which five explain a price; the best linear model has an R2 of 0.72."""
    x, y = make_friedman1(ROWS, 10, noise=1.0, random_state=27)
    x = (x + np.resize([0.0, 2.0], 10)) * 10.0 ** np.resize([0.0, 3.0, -2.0], 10)
    pd.DataFrame(x, columns=_names(10)).assign(price=(120_000 + 25_000 * y).round(-2)).to_csv(path, index=False)


_PRICES = {
    f"c{number}": [shift * scale, (shift + 1) * scale]
    for number, (shift, scale) in enumerate(
        [(0.0, 1.0), (2.0, 1e3), (0.0, 1e-2), (2.0, 1.0), (0.0, 1e3), (2.0, 1e-2)] * 2
    )
    if number < 10
}

PACKAGES = ("numpy", "pandas", "scipy", "sklearn", "torch")


def paragraphs(package: str) -> list[str]:
    """First paragraphs of the docstrings of functions and classes, each once, of modules at most two deep."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is installed"
    assert spec.origin is not None, f"{package} has files"
    found: dict[str, None] = {}
    root = Path(spec.origin).parent
    for path in sorted([*root.glob("*.py"), *root.glob("*/*.py")]):
        if path.parent.name == "tests":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
                words = " ".join(text.split("\n\n")[0].split())
                if 20 <= len(words) <= 400:
                    found[words] = None
    return list(found)


def _docstrings(path: Path) -> None:
    """1,200 of each package, to be told apart."""
    rng = np.random.default_rng(28)
    rows = []
    for package in PACKAGES:
        texts = paragraphs(package)
        rows += [(texts[each], package) for each in rng.permutation(len(texts))[:1_200]]
    frame = pd.DataFrame(rows, columns=["summary", "package"])
    frame.iloc[rng.permutation(len(frame))].to_csv(path, index=False)


def _column(name: str) -> str:
    return name.replace(" ", "_").replace("/", "_")


def _library(load: Callable[..., Any]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        frame = load(as_frame=True).frame
        frame = frame.iloc[np.random.default_rng(29).permutation(len(frame))]
        frame.rename(columns=_column).to_csv(path, index=False)

    return write


def _ranges(load: Callable[..., Any]) -> dict[str, list[float]]:
    """Ends of each column, rounded outwards to two digits: more than a user may know of private records."""
    data = load(as_frame=True).data.rename(columns=_column)
    ranges = {}
    for name in data:
        low, high = float(data[name].min()), float(data[name].max())
        unit = 10.0 ** (np.floor(np.log10(high)) - 1)
        ranges[name] = [round(float(np.floor(low / unit) * unit), 9), round(float(np.ceil(high / unit) * unit), 9)]
    return ranges


def _photographs(path: Path) -> None:
    """Digits of 8x8 as PNGs in a folder for each class."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        below = path / str(label)
        below.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255 / 16).round().astype(np.uint8)).save(below / f"{number}.png")


def _table(label: str, **keys: Any) -> dict[str, Any]:
    return {"name": "table", "label": label, **keys}


FILES: dict[str, UserFile] = {
    "columns from 0 to 1": UserFile(
        "unit.csv", _unit, _table("outcome", classes=5), {"ranges": {name: [0, 1] for name in _names(25)}}
    ),
    "wild scales": UserFile("wild.csv", _wild, _table("outcome", classes=5), _WILD),
    "prices": UserFile(
        "prices.csv", _prices, _table("price", task="regression"), {"ranges": _PRICES | {"price": [0, 900_000]}}
    ),
    "docstrings": UserFile(
        "docstrings.csv", _docstrings, _table("package", classes=list(PACKAGES), text=["summary"]), text=True
    ),
    "breast cancer": UserFile(
        "cancer.csv", _library(load_breast_cancer), _table("target", classes=2),
        {"ranges": _ranges(load_breast_cancer)}, 2, 2,
    ),
    "wine": UserFile(
        "wine.csv", _library(load_wine), _table("target", classes=3), {"ranges": _ranges(load_wine)}, 2, 2
    ),
    "digits": UserFile("digits", _photographs, {"name": "images", "partition": "iid"}, {}, 2, 4),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in FILES.items():
        print(f"{name}: {each.at(folder)}")


if __name__ == "__main__":
    main()
