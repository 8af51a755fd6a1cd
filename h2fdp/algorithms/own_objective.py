"""A user's own local objective, whose answers are checked where they come back."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor

from h2fdp.config.own_answers import Origin, Words, is_number, is_true_or_false
from h2fdp.training.local_objective import FeatureComparison, Gradient, LocalObjective, LocalWork, pull_of


class OwnObjective:
    """The objective with its mistakes named.

    Raises:
        UserError: it describes itself wrongly.
    """

    def __init__(self, own: LocalObjective, origin: Origin) -> None:
        self._own, self._origin = own, origin
        self.memory = origin.call("memory", getattr, own, "memory", None)
        self.personal = origin.call("personal", getattr, own, "personal", False)
        self.pull = origin.call("pull", pull_of, own)
        if self.memory is not None and not isinstance(self.memory, str):
            raise origin.wrong("memory", "what devices keep, in words, or None", self.memory)
        if not is_true_or_false(self.personal):
            raise origin.wrong("personal", "True or False", self.personal)
        if self.pull is not None and not (is_number(self.pull) and self.pull >= 0):
            raise origin.wrong("pull", "a number of at least 0, or None", self.pull)

    def direction(
        self, model: Tensor, gradient: Gradient, received: Tensor, personal: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `LocalObjective.direction`.

        Raises:
            UserError: the user's code fails, or gives other shapes.
        """
        found: Any = self._origin.call("direction", self._own.direction, model, gradient, received, personal)
        if not isinstance(found, tuple) or len(found) != 2:
            raise self._origin.wrong("direction", "a pair: the direction, and the personal model or None", found)
        way, own = found
        self._check("direction", way, model)
        if self.personal:
            self._check("direction", own, model, "as the personal model ")
        elif own is not None:
            raise self._origin.wrong("direction", "no personal model, since its `personal` is False", own)
        return way, own

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """See `LocalObjective.keeps_sensitivity`; false where what states it cannot know.

        With momentum that is a function that does not take it; without, one that was inherited by a class with another
        direction.

        Raises:
            UserError: the user's code fails, or answers neither true nor false.
        """
        rule = self._own.keeps_sensitivity
        with_momentum = _takes_two(rule)
        if (momentum and not with_momentum) or _is_inherited(self._own):
            return False
        found = self._origin.call(
            "keeps_sensitivity", rule, *((step_size, momentum) if with_momentum else (step_size,))
        )
        if not is_true_or_false(found):
            raise self._origin.wrong("keeps_sensitivity", "True or False", found)
        return bool(found)

    def correction(self, memory: Tensor, variate: Tensor | None) -> Tensor | None:
        """See `LocalObjective.correction`.

        Raises:
            UserError: the user's code fails, or gives other shapes.
        """
        found = self._origin.call("correction", self._own.correction, memory, variate)
        if found is not None:
            self._check("correction", found, memory)
        return found

    def remembered(self, memory: Tensor, variate: Tensor | None, done: LocalWork) -> Tensor:
        """See `LocalObjective.remembered`.

        Raises:
            UserError: the user's code fails, or gives other shapes.
        """
        found = self._origin.call("remembered", self._own.remembered, memory, variate, done)
        self._check("remembered", found, memory)
        return found

    def try_out(self, model: Tensor, empty_batches: bool) -> None:
        """Ask for a direction once, with a made-up gradient.

        Args:
            model: (..., M) as the engine hands it over.
            empty_batches: whether gradients can be zero because nothing was drawn.

        Raises:
            UserError: any mistake of the part.
        """
        for size in (1e-3, 0.0) if empty_batches else (1e-3,):
            at, received, personal = model.clone(), model.clone(), model.clone()
            gradient = partial(torch.full_like, fill_value=size)
            way, _ = self.direction(at, gradient, received, personal)
            for name, held in {"model": at, "received": received, "personal": personal}.items():
                if not torch.equal(held, model):
                    words = Words(f"`{name}` changed in place")
                    raise self._origin.wrong("direction", "nothing that it was given to change", words)
            if not bool(way.isfinite().all()):
                batch = "an empty batch, whose gradient is zero" if size == 0 else "a gradient of finite numbers"
                raise self._origin.wrong("direction", f"finite numbers for {batch}", Words("infinite ones or NaN"))
            if way.data_ptr() in (at.data_ptr(), received.data_ptr()):
                words = Words("the model that it was given")
                raise self._origin.wrong("direction", "a direction in memory of its own", words)

    def _check(self, method: str, found: Any, like: Tensor, what: str = "") -> None:
        if not isinstance(found, Tensor) or found.shape != like.shape or found.dtype != like.dtype:
            expected = f"{what}a tensor of shape {tuple(like.shape)} and type {like.dtype}"
            raise self._origin.wrong(method, expected, found)
        if found.requires_grad:
            raise self._origin.wrong(method, f"{what}a tensor of shape {tuple(like.shape)}, detached,", found)


class OwnComparison(OwnObjective):
    """One that compares models, see `FeatureComparison`."""

    def feature_loss(self, features: Tensor, received: Tensor, previous: Tensor) -> Tensor:
        """See `FeatureComparison.feature_loss`.

        Raises:
            UserError: the user's code fails, or gives other shapes.
        """
        assert isinstance(self._own, FeatureComparison), "it compares"
        found: Any = self._origin.call("feature_loss", self._own.feature_loss, features, received, previous)
        if not isinstance(found, Tensor) or found.shape != features.shape[:1]:
            raise self._origin.wrong("feature_loss", f"losses of shape ({features.shape[0]},)", found)
        return found


def checked(own: LocalObjective, origin: Origin) -> LocalObjective:
    """A user's own objective, with its mistakes named."""
    return (OwnComparison if isinstance(own, FeatureComparison) else OwnObjective)(own, origin)


def _is_inherited(own: LocalObjective) -> bool:
    """Whether the direction was replaced and what is said of its sensitivity was not."""
    namespaces = [vars(own) if hasattr(own, "__dict__") else {}, *(vars(each) for each in type(own).__mro__)]

    def place(name: str) -> int:
        return next((at for at, names in enumerate(namespaces) if name in names), len(namespaces))

    return min(map(place, ("direction", "correction"))) < place("keeps_sensitivity")


def _takes_two(rule: Any) -> bool:
    """Whether a function states what it makes of momentum: it takes that as a second argument."""
    try:
        inspect.signature(rule).bind(0.1, 0.9)
    except (TypeError, ValueError):
        return False
    return True
