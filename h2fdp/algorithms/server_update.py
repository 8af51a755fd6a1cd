"""The server update of a method: what the cloud does with the average of the uploads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class Uploaded:
    """What came up in an interval.

    Attributes:
        average: (M,) weighted average of the subnets' uploads w(t_k) - w_c, with whatever noise is on them.
        variate: (M,) that of the changes of the devices' control variates, where devices send any.
        share: of all devices of the network, those of which anything arrived.
    """

    average: Tensor
    variate: Tensor | None
    share: float


class ServerUpdate(Protocol):
    """Moves the global model. It sees what the cloud received and nothing else, so it costs no privacy."""

    @property
    def variate(self) -> Tensor | None:
        """(M,) what is sent down beside the model; None for nothing."""
        ...

    def apply(self, model: Tensor, uploaded: Uploaded) -> Tensor:
        """(M,) the next global model, after w(t_k) `model`."""
        ...

    def state(self) -> dict[str, Any]:
        """What outlives an interval, in plain values and tensors, for a checkpoint."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        ...


class StatefulUpdate:
    """State by the names of its attributes, for updates that keep some.

    Attributes:
        kept: names of the attributes that outlive an interval.
    """

    kept: tuple[str, ...] = ()

    @property
    def variate(self) -> Tensor | None:
        """Nothing beside the model."""
        return None

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.kept}

    def load(self, state: Mapping[str, Any]) -> None:
        for name in self.kept:
            setattr(self, name, state[name])
