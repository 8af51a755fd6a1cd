"""The loss of records under a model given as one vector, with what an objective adds by comparing models."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call

from h2fdp.models import ParameterLayout
from h2fdp.training.local_objective import FeatureComparison
from h2fdp.training.losses import Loss


class RecordLoss:
    """The loss of scores and, where an objective compares models, its loss of features, all on vectors (M,).

    A record's features are what goes into the last layer that has parameters.
    """

    def __init__(self, module: nn.Module, loss: Loss, comparison: FeatureComparison | None) -> None:
        self.flat = ParameterLayout(module)
        self._module, self._loss, self._comparison = module, loss, comparison
        leaves = [layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None]
        self._last = leaves[-1]

    def each(self, model: Tensor, x: Tensor, y: Tensor, *others: Tensor) -> Tensor:
        """(n,) losses of records x (n, *shape) with labels y (n,).

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
