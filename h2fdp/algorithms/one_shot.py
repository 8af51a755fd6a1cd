"""One message a device: class sums and second moments of public features, a linear discriminant at the cloud.

A device's update is the mean of one vector for each record, which no model enters: it is one step, of length 1, on a
loss whose gradient that vector is. So its sensitivity is that of clipped gradients, and noise, weights, sums, ledger
and cost are those of any method with one interval. The cloud makes a model of the average (Fisher 1936; Hastie,
Tibshirani and Friedman 2009, "The Elements of Statistical Learning", 4.3), which costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from h2fdp.algorithms.fedavg import AverageOptions
from h2fdp.algorithms.registry import (
    OBJECTIVES,
    ONE_STEP,
    SERVERS,
    ObjectiveOptions,
    ServerContext,
    ServerOptions,
    name_method,
)
from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.config.fields import Expect
from h2fdp.data.public_features import BIAS
from h2fdp.errors import EXPERIMENT_REFUSALS, refused
from h2fdp.models.architectures import SHARE, triangle
from h2fdp.models.construct import ParameterLayout
from h2fdp.models.registry import Auto, PublicFeatures, start_of
from h2fdp.training.clipping import clip_factors
from h2fdp.training.losses import Loss, OwnScore

# The length of a record's vector, above which the sizes of stored features (float16) bring few.
_LENGTH = math.sqrt(SHARE * (1 + BIAS**2) + (1 - SHARE) * (1 + BIAS**2) ** 2)
_LEAST = 1e-6  # of the largest eigenvalue, to all of them
_NONE = 1e-30  # in place of a 0 to divide by
_RAREST = 0.01  # of the mean number of records, for a class of which noise leaves none
_DOUBT = 3.0  # times the noise of shares: unlike ones pass that noise alone makes once in a thousand times, of ten


@OBJECTIVES.register
class ClassSums(ObjectiveOptions):
    """Class sums and second moments, from one step of length 1 on all records: the model's gradients (`Discriminant`
    of `models.architectures`) averaged, with the other sign."""

    server: ClassVar[str | None] = "discriminant"
    trains: ClassVar[str | None] = "discriminant"
    features: ClassVar[int] = 256  # of more, second moments are longer and have more noise
    loss: ClassVar[Loss] = OwnScore()
    settles: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {**ONE_STEP, "clip_norm": round(_LENGTH, 4), "clip_scope": "record"}
    )
    name: Literal["class-sums"] = "class-sums"

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """A step moves by a sum of clipped vectors."""
        return True


class Discriminant(ServerUpdate):
    """The model of which the uploads' average has the class sums and second moments; the model before has no part.

    Args:
        layout: of the model.
        shrinkage: see `discriminant`.
        kept: what clipping leaves of the length of each record's vector, which is the same for all.
    """

    def __init__(self, layout: ParameterLayout, shrinkage: float, kept: float = 1.0) -> None:
        self._layout, self._shrinkage, self._kept = layout, shrinkage, kept

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the linear model; 0 in place of second moments."""
        sent = self._layout.views(uploaded.average.double().neg() / self._kept)
        sums, square = sent["weight"] / SHARE**0.5, sent["square"] / (1 - SHARE) ** 0.5
        upper = triangle(square, sums.shape[1])
        weights = discriminant(sums, (upper + upper.T) / 2, self._shrinkage)
        made = torch.zeros_like(model)
        self._layout.views(made)["weight"].copy_(weights / SHARE**0.5)
        return made


@SERVERS.register
class DiscriminantOptions(ServerOptions):
    """A linear discriminant of class sums and second moments.

    Attributes:
        shrinkage: what is added to all eigenvalues of the covariance, as a multiple of how far noise alone would bring
            the least of them below 0.
    """

    objective: ClassVar[str | None] = "class-sums"
    name: Literal["discriminant"] = "discriminant"
    shrinkage: Annotated[float, Field(ge=0, le=100), Expect("a number from 0 to 100")] = 0.2

    @property
    def audited(self) -> ServerOptions:
        """The average: all messages are sent before the discriminant is made, which has no coordinates for canaries."""
        return AverageOptions()

    def build(self, context: ServerContext) -> ServerUpdate:
        """The update."""
        cut, length = context.clipping, torch.tensor(_LENGTH, dtype=torch.float64)
        kept = 1.0 if cut is None else float(clip_factors(length, cut.norm, cut.gamma))
        return Discriminant(ParameterLayout(context.module()), self.shrinkage, kept)


def discriminant(sums: Tensor, moments: Tensor, shrinkage: float) -> Tensor:
    """(C, D) weights of log p_c - m_c^T S^-1 m_c / 2 + m_c^T S^-1 x, with the constant on the last feature.

    p_c are the shares of the classes, m_c their means, S is the covariance inside classes: the second moments without
    those of the means. Without noise this is the linear discriminant of the records.

    How large the noise is, the last feature says, which is `BIAS` in all records: its products with the others are
    their sums times `BIAS`, but for noise. The edge of the spectrum of a symmetric matrix of noise of deviation v off
    the diagonal is 2 v sqrt(D) (Wigner 1955). The shares are drawn towards equal ones by the noise, as by James and
    Stein (1961), and are equal where noise alone could have made what they differ by. The means whose moments are taken
    away are drawn towards their mean, for else noise is taken away, too. Of the eigenvalues of S those are 0 that are
    smaller than half of that edge.

    Args:
        sums: (C, D) sums over a class's records, divided by the number of all; the last feature is `BIAS` in all.
        moments: (D, D) symmetric, the sum of x x^T over all records, divided by their number.
        shrinkage: what the eigenvalues of S grow by, in units of that edge.
    """
    classes, features = len(sums), sums.shape[1] - 1
    left = moments[:features, -1] - BIAS * sums[:, :features].sum(dim=0)  # noise alone
    sent = float(left.square().mean()) / (1 / (2 * (1 - SHARE)) + BIAS**2 * classes / SHARE)  # variance in a message
    noise, edge = math.sqrt(sent / SHARE), math.sqrt(2 * features * sent / (1 - SHARE))  # of the sums; of S
    unlike = sums[:, -1] / BIAS - 1 / classes
    kept = 1 - _DOUBT * classes * (noise / BIAS) ** 2 / max(float(unlike.square().sum()), _NONE)
    shares = (1 / classes + max(kept, 0.0) * unlike).clamp(min=_RAREST / classes)
    shares = (shares / shares.sum())[:, None]
    means = sums[:, :features] / shares
    middle = (means * shares).sum(dim=0)
    apart = (means - middle).square().sum(dim=1, keepdim=True).clamp(min=_NONE)
    drawn = middle + (1 - features * (1 - shares) * (noise / shares) ** 2 / apart).clamp(min=0) * (means - middle)
    values, axes = torch.linalg.eigh(moments[:features, :features] - (drawn * shares).T @ drawn)
    least = shrinkage * edge + _LEAST * float(values[-1].abs())
    projected = means @ axes / ((values - edge / 2).clamp(min=0) + least)
    weights = projected @ axes.T
    constant = shares.log() - (weights * means).sum(dim=1, keepdim=True) / 2
    return torch.cat([weights, constant / BIAS], dim=1)


@EXPERIMENT_REFUSALS.register
def refusals(experiment: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that have no effect under an objective without descent, and of models that do not fit it."""
    model, objective, training = experiment.model, experiment.method.objective, experiment.training
    head = model.head if isinstance(model, PublicFeatures) and "head" in model.model_fields_set else None
    name = objective.name
    if not isinstance(objective, ClassSums):
        text = f"{name} trains scores by their loss, which has no class sums"
        yield from refused(text, ("model.head", head == ClassSums.trains, "softmax or mlp, or method one-shot", head))
        return
    public = isinstance(model, PublicFeatures | Auto)
    yield from refused(
        f"{name} sends sums over public features, of which a linear model is made",
        ("model", not public, "auto, or public-features", model.name),
        ("model.head", head not in (None, objective.trains), objective.trains, head),
    )
    settled = [(key, getattr(training, key), right) for key, right in objective.settles.items() if "clip" not in key]
    norm, scope, placement = training.clip_norm, training.clip_scope, experiment.method.privacy
    length, key, number = objective.settles["clip_norm"], "training.clip_norm", isinstance(norm, float | int)
    whole = placement.clips in ("update", "model")
    longer = placement.private and not whole and number and norm > length
    yield from refused(
        f"{name} is one step of length 1 on all records of a device",
        *(
            (f"training.{key}", found not in (None, right), "null" if right is None else f"{right:g}", found)
            for key, found, right in settled  # of a pair, the key that is null leaves it to the other
        ),
        ("training.clip_scope", number and scope != "record", "record: the cloud divides by their number", scope),
        (key, whole and norm != length, f"{length:g}, so that the cloud knows how much was cut", norm),
        (key, longer, f"at most {length:g}, as longer ones add noise for nothing", norm),
    )
    control, method = experiment.control, experiment.method
    budget = next((key for key in ("joules", "seconds", "accuracy") if getattr(control, key) is not None), None)
    waits, start = budget is None and method.schedule.name != "fixed", start_of(model)
    public_records = getattr(experiment.data, "public", 0.0)
    yield from refused(
        f"{name} is one message of each device, which no model enters and no other follows",
        (f"control.{budget}", budget is not None, "null, as none is left out", getattr(control, budget or "joules")),
        ("method.schedule", waits, "fixed", method.schedule.name),
        ("method.upcycle", method.upcycle is not None, "null", method.upcycle),
        ("model.from", start is not None, "null", start),
        ("data.public", public_records > 0, "0, as records for a first model would be lost", public_records),
    )


name_method(
    "one-shot",
    "one message a device, with class sums and second moments of public features; noise as with h2fdp",
    objective="class-sums",
    privacy="hierarchical",
    server="discriminant",
)
