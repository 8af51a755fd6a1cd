"""The second axis of a method: where, between a device and the cloud, noise enters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from h2fdp.config.choice import Choice

NoiseSource = Literal["none", "device", "edge"]


@dataclass(frozen=True)
class NoisePlacement:
    """Which party adds noise, given whether its edge server is trusted.

    >>> NOISE_PLACEMENTS["hierarchical"].source(trusted=True), NOISE_PLACEMENTS["hierarchical"].source(trusted=False)
    ('edge', 'device')
    """

    name: str
    under_trusted: NoiseSource
    under_untrusted: NoiseSource
    description: str

    def source(self, trusted: bool) -> NoiseSource:
        """The party that adds noise under an edge server of this trust."""
        return self.under_trusted if trusted else self.under_untrusted

    @property
    def private(self) -> bool:
        """Whether a guarantee is asked for at all."""
        return self.under_trusted != "none"


NOISE_PLACEMENTS: dict[str, NoisePlacement] = {
    placement.name: placement
    for placement in (
        NoisePlacement("none", "none", "none", "no noise anywhere"),
        NoisePlacement(
            "hierarchical", "edge", "device", "noise where trust ends: a trusted edge server, else the device"
        ),
        NoisePlacement(
            "local", "device", "device", "every device adds its own noise, as if no edge server were trusted"
        ),
    )
}


class PlacementSection(Choice):
    """Where noise is added; a word, or a mapping with the placement's parameters.

    >>> PlacementSection.model_validate("local").name
    'local'
    """

    choices: ClassVar = {name: {} for name in NOISE_PLACEMENTS}
