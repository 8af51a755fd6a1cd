"""Labels of records: a class, a real value, several labels, or a class at each position of a sequence.

The task decides the shape of labels and of a model's scores, which losses fit, and what is measured. Real values are
predicted on a public scale, on which they lie about between -1 and 1: loss, clip norm and noise do not depend on units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from h2fdp.config.fields import Expect
from h2fdp.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Task = Annotated[
    Literal["classification", "regression", "multilabel", "tokens"],
    Expect("classification, regression, multilabel or tokens"),
]
PADDING = -100  # in place of the label of a position that is no record's own, as in torch's losses
MOST_CLASSES = 65_536  # a label beyond this is a mistake (an identifier, a pixel count), not a class
REAL = "labels are numbers of classes; for real values state data.task: regression"
_SEVERAL = "; state data.task: multilabel for labels of 0 or 1 each, or tokens for a class at each position"
# Measures on test records other than the loss; a run is judged by the first one.
MEASURED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "classification": ("accuracy",),
        "regression": ("rmse", "r2"),
        "multilabel": ("accuracy",),
        "tokens": ("perplexity", "accuracy"),
    }
)


@dataclass(frozen=True)
class Target:
    """The kind of a data set's labels y, and how a model's scores answer them.

    Attributes:
        task: `classification`: y of shape (n,), scores (n, classes); `regression`: y (n,), scores (n, 1); `multilabel`:
            y (n, labels) of 0 and 1, scores alike; `tokens`: y (n, positions), scores (n, positions, classes).
        width: labels of a record, or positions; null where a record has one label.
        shift, scale: of real values: a model predicts (y - shift) / scale. They are public.
        bound: devices' real values are cut to -bound .. bound on that scale; infinite before there is a scale.
        column: of real values without a public range.

    >>> Target("regression", None, 250.0, 250.0).seen(np.array([0.0, 250.0, 700.0]))
    array([-1.,  0.,  1.], dtype=float32)
    """

    task: Task = "classification"
    width: int | None = None
    shift: float = 0.0
    scale: float = 1.0
    bound: float = 1.0
    column: str = ""

    @classmethod
    def of(cls, task: Task | None, labels: NDArray[Any], bounds: Sequence[float] | None, where: str) -> Target:
        """The target of checked labels.

        Args:
            bounds: the lowest and the highest real value, public.
            where: the name of their column, under which bounds are stated.

        Raises:
            UserError: bounds that are none.
        """
        if labels.ndim == 2:
            return cls("multilabel" if task == "multilabel" else "tokens", labels.shape[1])
        if task != "regression":
            return cls()
        if bounds is None:
            return cls("regression", bound=math.inf, column=where)
        if not (len(bounds) == 2 and bounds[0] < bounds[1]):
            raise cls("regression", column=where).without_range(f"; found {list(bounds)}")
        low, high = map(float, bounds)
        return cls("regression", None, (low + high) / 2, (high - low) / 2)

    @property
    def open(self) -> bool:
        """Whether these are real values that have no scale yet."""
        return math.isinf(self.bound)

    def scaled(self, shift: float, scale: float, bound: float) -> Target:
        """Real values on this scale."""
        return Target(self.task, self.width, shift, scale if scale > 0 else 1.0, bound)

    def without_range(self, found: str = "") -> UserError:
        """The error that real values have no public range, with the key to state."""
        text = "real values need a public range, to which devices' are cut; expected its lowest and highest value"
        return UserError(f"{text}, as ranges: {{{self.column}: [0, 500]}}{found}", key=f"data.ranges.{self.column}")

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the measures, see `MEASURED`."""
        return MEASURED[self.task]

    @property
    def numbers(self) -> int:
        """The number of `points` of a record."""
        return {"regression": 3, "tokens": 2}.get(self.task, 1)

    @property
    def of_devices(self) -> str:
        """The measure on the records of single devices."""
        return "rmse" if self.task == "regression" else "accuracy"

    def outputs(self, classes: int) -> tuple[int, ...]:
        """The shape of a record's scores."""
        return (classes,) if self.task != "tokens" or self.width is None else (self.width, classes)

    def seen(self, labels: NDArray[Any], cut: bool = True) -> NDArray[Any]:
        """Labels as losses take them: real values on the scale of the model, float32; others as they are."""
        if self.task != "regression":
            return labels
        values = (labels.astype(np.float64) - self.shift) / self.scale
        return (np.clip(values, -self.bound, self.bound) if cut else values).astype(np.float32)

    def examples(self, classes: int) -> Tensor:
        """Labels of two made-up records: of the lowest and of the highest value."""
        import torch  # a file is checked without it

        if self.task == "regression":
            return torch.tensor([-1.0, 1.0])
        labels = torch.tensor([0, 1 if self.task == "multilabel" else classes - 1])
        return labels if self.width is None else labels[:, None].expand(2, self.width).clone()

    def points(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Numbers (n,) of each record, of whose means `measures` makes measures.

        Args:
            scores: (n, *outputs).
            labels: as `seen`, uncut.
        """
        if self.task == "regression":
            values = labels.double()
            return (scores[:, 0].double() - values).square(), values, values.square()
        if self.task == "multilabel":
            return (((scores > 0) == labels.bool()).double().mean(dim=1),)
        if self.task == "tokens":
            own, places = labels >= 0, labels.clamp(min=0)
            count = own.sum(dim=1)
            right = (scores.argmax(dim=-1) == labels).sum(dim=1) / count
            losses = scores.logsumexp(dim=-1) - scores.gather(-1, places[..., None])[..., 0]
            return (losses.double() * own).sum(dim=1) / count, right
        return (scores.argmax(dim=1) == labels,)

    def measures(self, means: Sequence[Any] | NDArray[Any]) -> dict[str, Any]:
        """Measures by means of `points`, of all records or of each device's: floats, or arrays of one shape.

        >>> Target("regression", None, 0.0, 10.0).measures([0.04, 0.5, 0.45])
        {'rmse': 2.0, 'r2': 0.8}
        """
        first, *others = map(np.asarray, means)
        found: dict[str, Any] = {}
        if self.task == "regression":
            mean, square = others
            found["rmse"] = self.scale * np.sqrt(first)
            with np.errstate(divide="ignore", invalid="ignore"):
                r2 = 1 - first / (square - mean**2)
            if np.isfinite(r2).all():  # equal values have no spread to explain
                found["r2"] = r2
        elif self.task == "tokens":
            with np.errstate(over="ignore"):
                found |= {"perplexity": np.exp(first), "accuracy": others[0]}
        else:
            found["accuracy"] = first
        return {name: float(each) if each.ndim == 0 else each for name, each in found.items()}


CLASS = Target()  # one class for each record


def problem_of(labels: NDArray[Any], records: int, task: Task | None) -> str:
    """A sentence on what is wrong with labels, of so many records; empty where nothing is.

    Args:
        task: null: rows of whole numbers beyond 1 are sequences, anything else is classes.
    """
    kind = labels.dtype.kind
    rows = task in ("multilabel", "tokens") or (
        task is None and labels.ndim == 2 and labels.size > 0 and kind in "ui" and labels.max() > 1
    )
    if labels.ndim != 1 + rows or len(labels) != records or 0 in labels.shape[1:]:
        hint = _SEVERAL if labels.ndim == 2 and labels.shape[1] > 1 and not rows else ""
        what = "a row of labels" if rows else "one label"
        return f"expected {what} for each of the {records} inputs, found labels of shape {labels.shape}{hint}"
    if kind not in "buif" or (kind not in "ui" and task not in ("regression", "multilabel")):
        return f"labels must be {'' if task == 'regression' else 'whole '}numbers, found type {labels.dtype}" + (
            f"; {REAL}" if kind == "f" and not rows else ""
        )
    if task == "regression":
        return "" if np.isfinite(labels).all() else "labels must be finite, found NaN or infinite ones"
    if task == "multilabel":
        return "" if np.isin(labels, (0, 1)).all() else "several labels must be 0 or 1 each, found others"
    if rows and not (labels >= 0).any(axis=1).all():
        return "a sequence has no label of at least 0; expected one or more"
    if labels.min(initial=0) < 0 and not (rows and np.isin(labels[labels < 0], (-1, PADDING)).all()):
        padding = f", or -1 or {PADDING} where a position is not the record's own" if rows else ""
        return f"labels must be at least 0{padding}, found {labels.min()}"
    if labels.max(initial=0) >= MOST_CLASSES:
        return f"labels must be below {MOST_CLASSES}, found {labels.max()}; {REAL}"
    return ""
