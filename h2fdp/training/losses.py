"""Losses of a record's scores, by name: what devices minimise the mean of, and what is reported as `loss`.

`RecordLoss` is the loss under a model given as one vector, with what an objective adds by comparing models.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from h2fdp.config.fields import Expect, Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_answers import FAILURES, Checked, Origin, Words
from h2fdp.config.own_parts import OwnKind, OwnPart
from h2fdp.data.statistics import OfRecords, Statistic
from h2fdp.data.targets import CLASS, PADDING, Target, Task
from h2fdp.models.construct import ParameterLayout
from h2fdp.models.finetuning import Factor
from h2fdp.training.local_steps import FeatureComparison, LocalObjective

# Of torch's attention and recurrent layers: what it computes slowly it computes rightly, and a user cannot help it.
warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented the batching rule")


class Loss(ABC):
    """A loss of each record by itself; a subclass says `each`, and may write out what follows from it."""

    @abstractmethod
    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses of scores (n, *outputs) and labels (n, ...), see `Target`; differentiable in the scores."""

    def mean(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The mean of `each`."""
        return self.each(scores, labels).mean()

    def evaluated(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) the same as `each`, where no gradient is asked for."""
        return self.each(scores, labels)

    def score_gradient(self, scores: Tensor, labels: Tensor, shares: Tensor | None = None) -> Tensor:
        """(n, W, *outputs) gradient of each record's loss in its scores, times its share.

        Args:
            scores: (n, W, *outputs), of W records of each of n devices.
            labels: (n, W, ...).
            shares: (n, W).
        """
        leaf = scores.detach().flatten(0, 1).requires_grad_()
        with torch.enable_grad():
            losses = self.each(leaf, labels.flatten(0, 1))
            (gradient,) = torch.autograd.grad(losses.sum() if shares is None else losses @ shares.flatten(), leaf)
        return gradient.view(scores.shape)


class OwnScore(Loss):
    """Minus the score of a record's label, whose gradient is that of the score, whatever the model.

    >>> OwnScore().each(torch.tensor([[1.0, 3.0]]), torch.tensor([1]))
    tensor([-3.])
    """

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses."""
        return -scores.gather(1, labels[:, None])[:, 0]


class NamedLoss(Loss, Options):
    """A loss that a file names, with its options.

    Attributes:
        tasks: what it is a loss of.
    """

    tasks: ClassVar[frozenset[Task]]


LOSSES: Choices[NamedLoss] = Choices(OwnKind("a loss"))


class ClassLoss(NamedLoss):
    """A loss of a class; of a sequence of classes the mean over the positions that are a record's own."""

    tasks: ClassVar[frozenset[Task]] = frozenset({"classification", "tokens"})

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses of scores (n, classes) or (n, positions, classes)."""
        if labels.dim() == 1:
            return self.of_classes(scores, labels)
        own = labels != PADDING
        losses = self.of_classes(scores.flatten(0, 1), labels.clamp(min=0).flatten()).view(labels.shape)
        return (losses * own).sum(dim=1) / own.sum(dim=1)

    @abstractmethod
    def of_classes(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses of scores (n, classes) and labels (n,)."""


@LOSSES.register
class CrossEntropy(ClassLoss):
    """- log softmax(scores)[label].

    >>> CrossEntropy().each(torch.zeros(1, 4), torch.tensor([2]))
    tensor([1.3863])
    """

    name: Literal["cross-entropy"] = "cross-entropy"

    def of_classes(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses."""
        return functional.cross_entropy(scores, labels, reduction="none")

    def mean(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Torch's own mean."""
        return functional.cross_entropy(scores, labels) if labels.dim() == 1 else super().mean(scores, labels)

    def evaluated(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss by its definition: torch's own took four times as long on ten classes."""
        if labels.dim() > 1:
            return self.each(scores, labels)
        return torch.logsumexp(scores, dim=1) - scores.gather(1, labels[:, None])[:, 0]

    def score_gradient(self, scores: Tensor, labels: Tensor, shares: Tensor | None = None) -> Tensor:
        """softmax(scores) - one-hot(label), times the share; of positions by their number, too."""
        if labels.dim() > 2:
            own = (labels != PADDING).to(scores.dtype)
            weights = own / own.sum(dim=-1, keepdim=True)
            weights = weights if shares is None else weights * shares[..., None]
            found = self.score_gradient(scores.flatten(1, 2), labels.clamp(min=0).flatten(1), weights.flatten(1))
            return found.reshape(scores.shape)
        delta = torch.softmax(scores.transpose(1, 2), dim=1)
        columns = labels[:, None, :]
        if shares is None:
            return delta.scatter_(1, columns, -1.0, reduce="add").transpose(1, 2)
        each = shares[:, None, :]
        return delta.mul_(each).scatter_add_(1, columns, each.neg()).transpose(1, 2)


CROSS_ENTROPY = CrossEntropy()


@LOSSES.register
class LabelSmoothing(ClassLoss):
    """Cross-entropy against smoothed labels, (1 - s) one-hot(label) + s / classes (Szegedy et al. 2016).

    Attributes:
        smoothing: share of a label's weight that is spread over all classes.
    """

    name: Literal["label-smoothing"] = "label-smoothing"
    smoothing: Annotated[float, Field(ge=0, lt=1), Expect("a number of at least 0 and below 1")] = 0.1

    def of_classes(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses."""
        return functional.cross_entropy(scores, labels, reduction="none", label_smoothing=self.smoothing)


@LOSSES.register
class Hinge(ClassLoss):
    """The multiclass hinge loss, max(0, 1 + largest other score - the label's score) (Crammer and Singer 2001)."""

    name: Literal["hinge"] = "hinge"

    def of_classes(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses."""
        own = labels[:, None] == torch.arange(scores.shape[-1], device=scores.device)
        others = scores.masked_fill(own, -torch.inf).amax(dim=-1)
        return (1.0 + others - (scores * own).sum(dim=-1)).clamp(min=0.0)


@LOSSES.register
class Squared(NamedLoss):
    """(score - y)^2, of real values on the public scale of the data.

    >>> Squared().each(torch.tensor([[0.5]]), torch.tensor([-1.0]))
    tensor([2.2500])
    """

    name: Literal["squared"] = "squared"
    tasks: ClassVar[frozenset[Task]] = frozenset({"regression"})

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses of scores (n, 1)."""
        return (scores[:, 0] - labels).square()

    def score_gradient(self, scores: Tensor, labels: Tensor, shares: Tensor | None = None) -> Tensor:
        """2 (score - y), times the share."""
        delta = 2 * (scores[..., 0] - labels)
        return (delta if shares is None else delta * shares)[..., None]


@LOSSES.register
class SigmoidCrossEntropy(NamedLoss):
    """The mean over a record's labels of the cross-entropy of each by itself, at the probability sigmoid(score).

    >>> SigmoidCrossEntropy().each(torch.zeros(1, 3), torch.tensor([[0, 1, 1]]))
    tensor([0.6931])
    """

    name: Literal["sigmoid-cross-entropy"] = "sigmoid-cross-entropy"
    tasks: ClassVar[frozenset[Task]] = frozenset({"multilabel"})

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses of scores (n, labels)."""
        wanted = labels.to(scores.dtype)
        return functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none").mean(dim=-1)

    def score_gradient(self, scores: Tensor, labels: Tensor, shares: Tensor | None = None) -> Tensor:
        """(sigmoid(score) - label) / labels, times the share."""
        # By tanh, as torch computes the last few numbers of a tensor's sigmoid in another way than the rest.
        delta = (torch.tanh(scores / 2).add_(1).div_(2) - labels) / labels.shape[-1]
        return delta if shares is None else delta * shares[..., None]


@dataclass(frozen=True)
class OwnLoss(Loss):
    """A user's function from scores (1, *outputs) and labels (1, ...) to losses (1,), see `Target`.

    It never sees two records, so that no record's gradient depends on another one, whatever it does with its batch.

    Attributes:
        looped: whether records are handed over in a loop of Python, since `torch.func` cannot hand over many at once.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    origin: Origin
    looped: bool = False

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) losses.

        Raises:
            UserError: the user's code fails, or gives no loss.
        """
        if self.looped:
            return torch.cat([self._of_one(*own) for own in zip(scores[:, None], labels[:, None], strict=True)])
        losses: Tensor = vmap(self._of_one)(scores[:, None], labels[:, None])
        return losses[:, 0]

    def _of_one(self, scores: Tensor, labels: Tensor) -> Tensor:
        loss: object = self.origin.call("", self.function, scores, labels)
        if not isinstance(loss, Tensor) or loss.shape != labels.shape[:1] or not loss.is_floating_point():
            raise self.origin.wrong("", "losses of shape (1,)", loss)
        if torch.finfo(loss.dtype).bits < 32:
            raise self.origin.wrong("", "losses of shape (1,) in at least 32 bits", loss)
        return loss.to(scores.dtype)


# Of tasks for which cross-entropy is none.
DEFAULTS: Mapping[Task, NamedLoss] = MappingProxyType({"regression": Squared(), "multilabel": SigmoidCrossEntropy()})
LossSection = Annotated[NamedLoss | OwnPart, LOSSES]


def loss_of(section: NamedLoss | OwnPart, classes: int, target: Target = CLASS) -> Loss:
    """The loss that a section describes.

    Raises:
        UserError: a user's own function does not give one number for a record, or mixes records.
    """
    if isinstance(section, NamedLoss):
        return section
    origin, outputs = section.origin, target.outputs(classes)
    scores = torch.linspace(-1.0, 1.0, 2 * math.prod(outputs), dtype=torch.float32).view(2, *outputs).requires_grad_()
    labels = target.examples(classes)
    looped = OwnLoss(section.function, origin, looped=True)
    losses = looped.each(scores, labels)
    if not losses.requires_grad:
        words = Words("losses without a gradient: constant, or detached from the scores")
        raise origin.wrong("", "losses that can be differentiated in the scores", words)
    try:
        (gradients,) = torch.autograd.grad(losses.sum(), scores)
    except FAILURES as error:
        raise origin.failed("", error, "cannot be differentiated") from error
    if not bool(losses.isfinite().all() and gradients.isfinite().all()):
        raise origin.wrong("", "losses and gradients of finite numbers", Words("infinite ones or NaN"))
    if not looped.each(scores, labels).equal(losses):  # what it remembers could be other records
        raise origin.wrong("", "the same losses at each call", Words("other ones"))
    if _mixes(looped, scores, labels, losses):
        raise origin.problem("a record's loss depends on the other records; a loss is given one record at a time")
    return replace(looped, looped=not _taken_at_once(looped, scores.detach(), labels, gradients))


def _mixes(loss: OwnLoss, scores: Tensor, labels: Tensor, alone: Tensor) -> bool:
    """Whether a user's function that takes several records gives them other losses than one by one.

    No gradient could show it. It is refused since a run would train another loss than its user wrote.
    """
    try:
        together: object = loss.function(scores, labels)
    except FAILURES:
        return False
    if not isinstance(together, Tensor) or together.shape != alone.shape:
        return False
    return not torch.allclose(together.to(alone.dtype), alone, rtol=1e-4, atol=1e-6)


def _taken_at_once(loss: OwnLoss, scores: Tensor, labels: Tensor, gradients: Tensor) -> bool:
    """Whether `torch.func` finds the gradients of records by a user's function that a loop finds."""
    at_once = replace(loss, looped=False)
    try:
        together: Tensor = vmap(grad(lambda own, label: at_once.each(own[None], label[None]).sum()))(scores, labels)
    except FAILURES:
        return False
    return torch.allclose(together, gradients, rtol=1e-4, atol=1e-6)


def minimised(objective: LocalObjective, reported: Loss) -> Loss:
    """The loss that devices minimise: the `loss` of a built-in objective that has one; else the reported one."""
    loss: Loss = reported if isinstance(objective, Checked) else getattr(objective, "loss", reported)
    return loss


class RecordLoss:
    """The loss of scores and, where an objective compares models, its loss of features, all on vectors (M,).

    A record's features are what goes into the last layer that has parameters.
    """

    def __init__(self, module: nn.Module, loss: Loss, comparison: FeatureComparison | None) -> None:
        self.flat = ParameterLayout(module)
        self._module, self._loss, self._comparison = module, loss, comparison
        layers = [layer for layer in module.modules() if not isinstance(layer, Factor)]
        self._last = [layer for layer in layers if next(layer.parameters(recurse=False), None) is not None][-1]
        self._at_once: bool | None = None
        first = next(module.children(), None)
        self._rows = first if isinstance(loss, OwnScore) and isinstance(first, OfRecords) else None
        if self._rows is not None and not isinstance(self._rows.statistic, Statistic):
            self._rows = None  # a user's must not see two records at once

    def each(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        """(n,) losses of records x (n, *shape) with labels y (n, ...).

        Args:
            others: (M,) the received and the previous model, where models are compared.
        """
        if self._comparison is None:
            return self._loss.each(self._scores(model, x), y)
        scores, features = self._scores_and_features(model, x)
        received, previous = (self._scores_and_features(other, x)[1].detach() for other in others)
        return self._loss.each(scores, y) + self._comparison.feature_loss(features, received, previous)

    def mean(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        """The mean of `each`."""
        if self._comparison is None:
            return self._loss.mean(self._scores(model, x), y)
        return self.each(model, x, y, *others).mean()

    def gradients(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        """(n, M) the gradients of the records' losses in `model`, each of its record alone.

        All at once, or one after the other where `torch.func` cannot differentiate the module or the loss at once.
        The rows of a statistic are the slopes of its score: `torch.func` takes a second to import.
        """
        if self._rows is not None:
            rows: Tensor = self._rows(x)
            return rows.neg()
        if self._at_once is None:
            self._at_once = self._takes_records_at_once(model, x[:1], y[:1], *others)
        if self._at_once:
            return self._gradients_at_once(model, x, y, *others)
        leaf = model.detach().requires_grad_()
        losses = (self._of_one(leaf, *record, *others) for record in zip(x, y, strict=True))
        return torch.stack([torch.autograd.grad(each, leaf)[0] for each in losses])

    def _takes_records_at_once(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> bool:
        try:
            self._gradients_at_once(model, x.repeat_interleave(2, dim=0), y.repeat_interleave(2, dim=0), *others)
        except FAILURES:  # what fails for another reason fails again, one by one
            return False
        return True

    def _gradients_at_once(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        """(n, M) the same, all at once, or an error of `torch.func`."""
        each = vmap(grad(self._of_one), in_dims=(None, 0, 0, *(None for _ in others)))
        gradients: Tensor = each(model, x, y, *others)
        return gradients

    def _of_one(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        return self.mean(model, x[None], y[None], *others)

    def _scores(self, model: Tensor, x: Tensor) -> Tensor:
        scores: Tensor = functional_call(self._module, self.flat.views(model), (x,))
        return scores

    def _scores_and_features(self, model: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        seen: list[Tensor] = []

        def keep(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.append(inputs[0].flatten(1))

        hook = self._last.register_forward_pre_hook(keep)
        try:
            scores = self._scores(model, x)
        finally:
            hook.remove()
        return scores, seen[-1]
