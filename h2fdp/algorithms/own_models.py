"""Devices with models of their own: pulled to the mean (MR-MTL, Liu et al. 2022), a second (Ditto, Li et al. 2021), or
in their last layers alone (FedPer, Arivazhagan et al. 2019).

An own model is made of gradients and of received models. Under noise on each step it is as noisy as what was uploaded,
and the account is that of the shared method: each step has one gradient, and one row in the ledger.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from h2fdp.algorithms.registry import OBJECTIVES, ObjectiveOptions, name_method
from h2fdp.config.fields import Count, Expect
from h2fdp.training.local_steps import OwnModels

_Pull = Annotated[float, Field(ge=0, le=1e9)]
Penalty = Annotated[_Pull | Literal["infinite"], Expect("a number from 0 to 1e9, or infinite for the shared model")]


class _Pulled(OwnModels, ObjectiveOptions):
    """w_i <- w_i - eta (g + lambda (w_i - received)), where w_i goes on from interval to interval.

    Attributes:
        penalty: lambda, the pull towards the received model: 0 is none, `infinite` starts each interval from it.
    """

    penalty: Penalty = 0.1

    @property
    def goes_on(self) -> bool:
        return self.penalty != "infinite"

    @property
    def towards_received(self) -> float:
        """lambda; 0 where the own model is the received one."""
        return 0.0 if self.penalty == "infinite" else self.penalty


@OBJECTIVES.register
class MeanRegularised(_Pulled):
    """MR-MTL (Algorithm A1): devices train and upload their own models; what they receive is the mean of these.

    With `infinite` this is federated averaging: min_w sum_i F_i(w) is the limit of
    min sum_i F_i(w_i) + lambda/2 ||w_i - mean||^2.
    """

    name: Literal["mean-regularised"] = "mean-regularised"


@OBJECTIVES.register
class Ditto(_Pulled):
    """Ditto (Algorithm 2): a shared model by plain steps, and an own one that is pulled to it.

    The steps take turns, the shared model first. So a step has one gradient, and a device half the steps of each.
    """

    takes_turns: ClassVar[bool] = True

    name: Literal["ditto"] = "ditto"


@OBJECTIVES.register
class PersonalHead(OwnModels, ObjectiveOptions):
    """FedPer: plain steps on the whole model, of which the last layers never leave the device.

    Attributes:
        layers: number of last layers with parameters that stay on the device.
    """

    name: Literal["personal-head"] = "personal-head"
    layers: Count = 1

    @property
    def head(self) -> int | None:
        """`layers`."""
        return self.layers


name_method(
    "mr-mtl", "own models, pulled to their mean (Liu et al. 2022)", objective="mean-regularised", topology="star"
)
name_method("ditto", "own models beside a shared one (Li et al. 2021)", objective="ditto", topology="star")
name_method(
    "fedper", "last layers that stay on devices (Arivazhagan et al. 2019)", objective="personal-head", topology="star"
)
