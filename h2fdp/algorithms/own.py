"""A user's own local objective and server update, whose answers are checked where they come back."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from h2fdp.algorithms.server_update import Uploaded
from h2fdp.config.own_answers import Checked, Origin, Rule, Words, flag_rule, is_number, state_rule, tensor_rule
from h2fdp.training.local_steps import FeatureComparison, LocalObjective, pull_of


class OwnServer(Checked):
    """The update with its mistakes named.

    Raises:
        UserError: it fails, or answers what `ServerUpdate` does not.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"apply": tensor_rule, "state": state_rule}

    def try_out(self, other: OwnServer, model: Tensor, variate: bool) -> None:
        """Do once what a run will do, with made-up uploads: two updates, a checkpoint between them, a resume.

        Args:
            other: another object of the same part, which is resumed.
            model: (M,) the initial one.
            variate: whether devices send changes of control variates.

        Raises:
            UserError: any mistake of the part.
        """
        average = torch.linspace(-1e-3, 1e-3, model.numel(), dtype=torch.float32)
        uploaded = Uploaded(average, average.clone() if variate else None, 1.0)
        received = model.clone()
        moved = self.apply(received, uploaded)
        if not torch.equal(received, model):
            raise self._origin.problem("apply changed the model in place; expected a tensor of its own")
        if not bool(moved.isfinite().all()):
            raise self._origin.wrong("apply", "a model of finite numbers", Words("infinite ones or NaN"))
        if self.variate is not None and (expected := tensor_rule(self.variate, model)):
            raise self._origin.wrong("variate", expected, self.variate)
        other.load(copy.deepcopy(self.state()))
        first, resumed = self.apply(moved, uploaded), other.apply(moved, uploaded)
        if not torch.equal(first, resumed):
            words = Words("another one; what it remembers must be in `state` and `load` (`kept` of a ServerUpdate)")
            raise self._origin.wrong("apply", "the same model after a checkpoint was loaded", words)


def _memory_rule(value: Any) -> str:
    return "" if value is None or isinstance(value, str) else "what devices keep, in words, or None"


def _pull_rule(value: Any) -> str:
    return "" if value is None or (is_number(value) and value >= 0) else "a number of at least 0, or None"


def _correction_rule(value: Any, memory: Tensor, *given: Any) -> str:
    return "" if value is None else tensor_rule(value, memory)


def _loss_rule(value: Any, features: Tensor, *given: Any) -> str:
    right = isinstance(value, Tensor) and value.shape == features.shape[:1]
    return "" if right else f"losses of shape ({features.shape[0]},)"


class OwnObjective(Checked):
    """The objective with its mistakes named.

    Raises:
        UserError: it describes itself wrongly, fails, or answers what `LocalObjective` does not.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "memory": _memory_rule,
        "personal": flag_rule,
        "pull": _pull_rule,
        "correction": _correction_rule,
        "remembered": tensor_rule,
        "keeps_sensitivity": flag_rule,
        "feature_loss": _loss_rule,
    }

    def __init__(self, own: LocalObjective, origin: Origin) -> None:
        super().__init__(own, origin)
        self.memory = self._right("memory", origin.call("memory", getattr, own, "memory", None))
        self.personal = self._right("personal", origin.call("personal", getattr, own, "personal", False))
        self.pull = self._right("pull", origin.call("pull", pull_of, own))

    def direction(self, model: Tensor, *given: Any) -> tuple[Tensor, Tensor | None]:
        """The direction of a step; see `LocalObjective.direction`."""
        step: Any = self._origin.call("direction", self._own.direction, model, *given)
        if not isinstance(step, tuple) or len(step) != 2:
            raise self._origin.wrong("direction", "a pair: the direction, and the personal model or None", step)
        for each in step if self.personal else step[:1]:
            if expected := tensor_rule(each, model):
                raise self._origin.wrong("direction", expected, each)
        if not self.personal and step[1] is not None:
            raise self._origin.wrong("direction", "no personal model, since its `personal` is False", step[1])
        return step

    def keeps_sensitivity(self, step_size: float, momentum: float = 0.0) -> bool:
        """Whether sensitivity is kept, see `LocalObjective.keeps_sensitivity`; false where what states it cannot know.

        With momentum that is a function that does not take it; without, one that was inherited by a class with another
        direction.
        """
        rule = self._own.keeps_sensitivity
        with_momentum = _takes_two(rule)
        if (momentum and not with_momentum) or _is_inherited(self._own):
            return False
        return bool(self._ask("keeps_sensitivity", rule, *((step_size, momentum) if with_momentum else (step_size,))))

    def try_out(self, model: Tensor, empty_batches: bool) -> None:
        """Ask for a direction once, with a made-up gradient.

        Args:
            model: (..., M) as the engine hands it over.
            empty_batches: whether gradients can be zero because nothing was drawn.

        Raises:
            UserError: any mistake of the part.
        """
        for size in (1e-3, 0.0) if empty_batches else (1e-3,):
            given = [model.clone() for _ in range(3)]
            way, _ = self.direction(given[0], partial(torch.full_like, fill_value=size), *given[1:])
            if not all(torch.equal(each, model) for each in given):
                raise self._origin.problem("direction changed a model in place; expected a tensor of its own")
            if any(way.data_ptr() == each.data_ptr() for each in given):
                raise self._origin.problem("direction gave a model that it was given; expected a tensor of its own")
            if not bool(way.isfinite().all()):
                batch = "an empty batch, whose gradient is zero" if size == 0 else "a gradient of finite numbers"
                raise self._origin.wrong("direction", f"finite numbers for {batch}", Words("infinite ones or NaN"))


class _OwnComparison(OwnObjective):
    """One that compares models. `FeatureComparison` looks for the method in the class, not at the object."""

    def feature_loss(self, features: Tensor, received: Tensor, previous: Tensor) -> Any:
        return self._ask("feature_loss", self._own.feature_loss, features, received, previous)


def checked(own: LocalObjective, origin: Origin) -> LocalObjective:
    """A user's own objective, with its mistakes named."""
    kind = _OwnComparison if isinstance(own, FeatureComparison) else OwnObjective
    return cast(LocalObjective, kind(own, origin))


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
