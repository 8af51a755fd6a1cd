"""A user's own server update, whose answers are checked where they come back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from h2fdp.algorithms.server_update import ServerUpdate, Uploaded
from h2fdp.config.own_answers import Origin, Words, unstorable


class OwnServer:
    """The update with its mistakes named.

    Args:
        parameters: M, the number of the model's parameters.
    """

    def __init__(self, own: ServerUpdate, origin: Origin, parameters: int) -> None:
        self._own, self._origin, self._parameters = own, origin, parameters

    @property
    def variate(self) -> Tensor | None:
        """See `ServerUpdate.variate`.

        Raises:
            UserError: the user's code fails, or gives another vector.
        """
        found = self._origin.call("variate", getattr, self._own, "variate")
        return None if found is None else self._vector("variate", found)

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """See `ServerUpdate.apply`.

        Raises:
            UserError: the user's code fails, gives no model, or one that is not finite though all that it got was.
        """
        moved = self._vector("apply", self._origin.call("apply", self._own.apply, model, uploaded))
        if not bool(moved.isfinite().all()) and bool(model.isfinite().all() and uploaded.average.isfinite().all()):
            raise self._origin.wrong("apply", "a model of finite numbers", Words("infinite ones or NaN"))
        return moved

    def state(self) -> dict[str, Any]:
        """See `ServerUpdate.state`.

        Raises:
            UserError: the user's code fails, or gives what no checkpoint can hold.
        """
        kept = getattr(self._own, "kept", ())
        if not isinstance(kept, (tuple, list)) or not all(isinstance(name, str) for name in kept):
            raise self._origin.wrong("kept", "a tuple of names of attributes", kept)
        missing = [name for name in kept if not hasattr(self._own, name)]
        if missing:
            raise self._origin.problem(f"`kept` names `{missing[0]}`; expected an attribute that it has from the start")
        found = self._origin.call("state", self._own.state)
        expected = "a dict of plain values, arrays and tensors"
        if not isinstance(found, dict):
            raise self._origin.wrong("state", expected, found)
        if problem := unstorable(found):
            raise self._origin.wrong("state", expected, Words(problem))
        return found

    def load(self, state: Mapping[str, Any]) -> None:
        """See `ServerUpdate.load`.

        Raises:
            UserError: the user's code fails.
        """
        self._origin.call("load", self._own.load, state)

    def try_out(self, other: OwnServer, model: Tensor, variate: bool) -> None:
        """Do once what a run will do, with made-up uploads: two updates, a checkpoint between them, a resume.

        Args:
            other: another object of the same part, which is resumed.
            model: (M,) the initial one.
            variate: whether devices send changes of control variates.

        Raises:
            UserError: any mistake of the part.
        """
        average = torch.linspace(-1e-3, 1e-3, self._parameters)
        uploaded = Uploaded(average, average.clone() if variate else None, 1.0)
        received = model.clone()
        moved = self.apply(received, uploaded)
        if not torch.equal(received, model):
            words = Words("the model that it was given, changed in place")
            raise self._origin.wrong("apply", "a model in memory of its own", words)
        kept = copy.deepcopy(self.state())
        other.load(kept)
        first, resumed = self.apply(moved, uploaded), other.apply(moved, uploaded)
        if not torch.equal(first, resumed):
            words = Words("another one; what it remembers must be in `state` and `load` (`kept` of a StatefulUpdate)")
            raise self._origin.wrong("apply", "the same model after a checkpoint was loaded", words)
        _ = self.variate

    def _vector(self, method: str, found: Any) -> Tensor:
        expected = f"a float32 tensor of shape ({self._parameters},)"
        if not isinstance(found, Tensor) or found.shape != (self._parameters,) or found.dtype != torch.float32:
            raise self._origin.wrong(method, expected, found)
        if found.requires_grad:
            raise self._origin.wrong(method, f"{expected}, detached,", found)
        return found
