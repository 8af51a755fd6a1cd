"""The private mean of features, released in the first interval and taken off the features of the others.

Features that were whitened on public images have a mean on the devices' images. Without it they are shorter, so that a
record's gradient fits the same bound with more of it; and no direction is as steep as that of the mean.
While the model is 0, all records count as of one class. All scores are equal then, so that a record's gradient is a
fixed vector u over the classes times its features: the average is u times their mean. As a message it is one of a
gradient: it is clipped, has noise, costs and a row in the ledger as that of any interval.
The cloud writes the mean into the model, where it changes no score (`models.architectures.Centred`), so that it
travels, is stored and is evaluated with it. All that happens here is post-processing of what the cloud received.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from h2fdp.algorithms.registry import ServerContext
from h2fdp.algorithms.server_update import AroundUpdate, ServerUpdate, Uploaded
from h2fdp.data.public_features import BIAS
from h2fdp.models.architectures import Centred
from h2fdp.training.clipping import clip_factors
from h2fdp.training.losses import Loss

_LENGTH = (1 + BIAS**2) ** 0.5  # of a record's features
_LEAST = 1e-3  # of the mean that arrived


class Centring(AroundUpdate):
    """A server update inside, and what all classes' weights have in common: the mean, which that one does not move.

    Args:
        pattern: (classes,) u, the gradient in the scores of a record of the first class where all scores are equal.
        inputs: K.
        step: by which the first interval multiplies each record's gradient, as it is after clipping.
    """

    def __init__(self, inner: ServerUpdate, pattern: Tensor, inputs: int, step: float) -> None:
        super().__init__(inner)
        self._pattern, self._inputs, self._step = pattern, inputs, step

    @classmethod
    def of(cls, inner: ServerUpdate, context: ServerContext, loss: Loss, step_size: float) -> Centring:
        """That of a run, whose first step has this size."""
        layer: nn.Module = next(each for each in context.module().modules() if isinstance(each, Centred))
        classes, inputs = layer.get_parameter("centred").shape
        pattern = loss.score_gradient(torch.zeros(1, 1, classes), torch.zeros(1, 1, dtype=torch.int64))[0, 0].double()
        cut, length = context.clipping, pattern.norm() * _LENGTH
        kept = 1.0 if cut is None else float(clip_factors(length, cut.norm, cut.gamma))
        return cls(inner, pattern, inputs, step_size * kept)

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the next model: of centred features, and with the same mean; after 0 with the mean that arrived."""
        if self._weights(model).any():
            moved = self._inner.apply(model, uploaded)
            ahead, before = self._weights(moved), self._weights(model)
            ahead += before.mean(dim=0) - ahead.mean(dim=0)  # of which there is noise alone
            return moved
        kept = deepcopy(self._inner.state())
        moved = self._inner.apply(model, uploaded)  # an audit's coordinates go on as in any interval
        self._inner.load(kept)
        self._weights(moved).copy_(self.mean(self._weights(uploaded.average)))
        return moved

    def mean(self, average: Tensor) -> Tensor:
        """(K,) the mean of features, 0 for the last, by the average upload (classes, K) of the first interval.

        Drawn towards 0 by the noise, as by James and Stein (1961), but never quite to it, as the model is 0 before the
        mean alone. How large the noise is, the average says itself: what lies across the pattern is noise alone.
        """
        unit = self._pattern / self._pattern.norm()
        along = unit @ average.double()
        across = average.double() - unit[:, None] * along
        noise = float(across.square().sum()) / ((len(unit) - 1) * self._inputs)
        along[-1] = 0.0
        length = float(along.square().sum())
        kept = max(_LEAST, 1 - (self._inputs - 1) * noise / length) if length else 0.0
        mean: Tensor = along * (kept / (self._step * float(self._pattern.norm())))
        return mean.to(average.dtype)

    def _weights(self, model: Tensor) -> Tensor:
        """(classes, K) a view of a model (M,), or of one with an audit's coordinates after these."""
        return model[: len(self._pattern) * self._inputs].view(len(self._pattern), self._inputs)
