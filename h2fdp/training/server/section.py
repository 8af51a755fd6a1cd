"""The schemas of `method.server` and `method.upcycle`, and the registry of server updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from h2fdp.config import Section
from h2fdp.config.choice import Choice
from h2fdp.config.fields import Expect, Magnitude
from h2fdp.training.server.average import Average
from h2fdp.training.server.feddyn import FedDynServer
from h2fdp.training.server.momentum import Momentum
from h2fdp.training.server.scaffold import ScaffoldServer
from h2fdp.training.server.upcycled import Upcycled
from h2fdp.training.server.update import ServerUpdate
from h2fdp.training.server.yogi import Yogi


@dataclass(frozen=True)
class _Entry:
    """`takes`: what else the update is built from: the model's `size`, the objective's `alpha`."""

    build: Callable[..., ServerUpdate]
    options: Mapping[str, float] = field(default_factory=dict)
    takes: tuple[str, ...] = ()


SERVERS: dict[str, _Entry] = {
    "average": _Entry(Average),
    "momentum": _Entry(Momentum, {"beta": 0.9, "server_step": 1.0}),
    "yogi": _Entry(Yogi, {"beta1": 0.9, "beta2": 0.99, "server_step": 0.01, "adaptivity": 1e-3}),
    "feddyn": _Entry(FedDynServer, takes=("alpha",)),
    "scaffold": _Entry(ScaffoldServer, {"server_step": 1.0}, takes=("size",)),
}

Decay = Annotated[float, Field(ge=0, lt=1), Expect("a number from 0 and below 1")]
Factor = Annotated[float, Field(ge=0, le=100), Expect("a number from 0 to 100")]


class ServerSection(Choice):
    """A server update with its parameters; the word `momentum` alone is short for {name: momentum}.

    >>> ServerSection.model_validate("momentum").options()
    {'beta': 0.9, 'server_step': 1.0}
    """

    choices: ClassVar = {name: dict(entry.options) for name, entry in SERVERS.items()}

    beta: Decay | None = None
    beta1: Decay | None = None
    beta2: Decay | None = None
    server_step: Magnitude | None = None
    adaptivity: Magnitude | None = None


class UpcycleSection(Section):
    """How far an upcycled update goes on: a constant factor, or kappa_m = mu / (mu + growth sqrt(m)).

    The second falls as 1/sqrt(m), as Corollary 5.8 of Upcycled-FL asks.
    """

    factor: Factor | None = None
    mu: Magnitude | None = None
    growth: Magnitude | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> UpcycleSection:
        if (self.factor is None) == (self.mu is None and self.growth is None):
            raise ValueError("expected either factor, or mu and growth")
        if (self.mu is None) != (self.growth is None):
            raise ValueError("expected mu and growth together")
        return self

    def kappa(self, m: int) -> float:
        """kappa_m, m from 1.

        >>> UpcycleSection(factor=0.9).kappa(3), UpcycleSection(mu=1.0, growth=0.5).kappa(4)
        (0.9, 0.5)
        """
        if self.factor is not None:
            return self.factor
        assert self.mu is not None
        assert self.growth is not None
        return self.mu / (self.mu + self.growth * math.sqrt(m))


def server_update(section: ServerSection, upcycle: UpcycleSection | None, **given: float | None) -> ServerUpdate:
    """The update that the sections describe, at its start.

    Args:
        given: what updates are built from beside their options: `size` of the model, the objective's `alpha`.
    """
    entry = SERVERS[section.name]
    update = entry.build(**section.options(), **{key: given[key] for key in entry.takes})
    return update if upcycle is None else Upcycled(update, upcycle.kappa)
