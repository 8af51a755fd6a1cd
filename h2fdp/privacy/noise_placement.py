"""The choices of `method.privacy`: who adds noise, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from h2fdp.config.fields import Expect, Magnitude, Options
from h2fdp.config.named_options import Choices
from h2fdp.privacy.mechanisms.central import Central
from h2fdp.privacy.mechanisms.dp_sgd import DpSgd
from h2fdp.privacy.mechanisms.hierarchical import EveryDevice, Nowhere, WhereTrustEnds
from h2fdp.privacy.mechanisms.objective import Objective
from h2fdp.privacy.mechanisms.output import Output
from h2fdp.privacy.mechanisms.placement import Placement


class PlacementOptions(Options):
    """The options of a placement of noise."""

    def build(self) -> Placement:
        """The placement with these options."""
        raise NotImplementedError


NOISE_PLACEMENTS: Choices[PlacementOptions] = Choices()


@NOISE_PLACEMENTS.register
class NoneOptions(PlacementOptions):
    """No noise."""

    name: Literal["none"] = "none"

    def build(self) -> Placement:
        """The placement."""
        return Nowhere()


@NOISE_PLACEMENTS.register
class HierarchicalOptions(PlacementOptions):
    """Noise where trust ends."""

    name: Literal["hierarchical"] = "hierarchical"

    def build(self) -> Placement:
        """The placement."""
        return WhereTrustEnds()


@NOISE_PLACEMENTS.register
class LocalOptions(PlacementOptions):
    """Noise at every device."""

    name: Literal["local"] = "local"

    def build(self) -> Placement:
        """The placement."""
        return EveryDevice()


@NOISE_PLACEMENTS.register
class CentralOptions(PlacementOptions):
    """Noise at the cloud; a `noise_multiplier` of null is calibrated."""

    name: Literal["central"] = "central"
    noise_multiplier: Magnitude | None = None

    def build(self) -> Placement:
        """The placement."""
        return Central(self.noise_multiplier)


@NOISE_PLACEMENTS.register
class DpSgdOptions(PlacementOptions):
    """Noise on every local step; a `noise_multiplier` of null is calibrated."""

    name: Literal["dp-sgd"] = "dp-sgd"
    noise_multiplier: Magnitude | None = None
    normalize: Annotated[Literal["expected", "drawn"], Expect("one of expected, drawn")] = "expected"
    rc_search: Annotated[Literal["safe", "paper"], Expect("one of safe, paper")] = "safe"

    def build(self) -> Placement:
        """The placement."""
        return DpSgd(self.noise_multiplier, self.normalize, self.rc_search)


@NOISE_PLACEMENTS.register
class OutputOptions(PlacementOptions):
    """Noise on the clipped model, whose norm is `model_norm`, tau; a `noise_std` (sigma) of null is calibrated."""

    name: Literal["output"] = "output"
    model_norm: Magnitude = 1.0
    noise_std: Magnitude | None = None

    def build(self) -> Placement:
        """The placement."""
        return Output(self.model_norm, self.noise_std)


@NOISE_PLACEMENTS.register
class ObjectivePerturbationOptions(PlacementOptions):
    """A random linear term in the objective; a `rate` of null is calibrated."""

    name: Literal["objective"] = "objective"
    rate: Magnitude | None = None
    u1: Magnitude | None = None
    u2: Magnitude | None = None
    input_bound: Magnitude = 1.0

    def build(self) -> Placement:
        """The placement."""
        return Objective(**self.options())


if TYPE_CHECKING:
    PlacementSection = PlacementOptions
else:
    PlacementSection = NOISE_PLACEMENTS.section()


def placement_of(value: PlacementOptions | Any) -> Placement:
    """The placement that a section describes, checked or as a recorded configuration has it."""
    section = value if isinstance(value, PlacementOptions) else NOISE_PLACEMENTS.read(value)
    assert isinstance(section, PlacementOptions), "no placement is a user's own: an account must know it"
    return section.build()
