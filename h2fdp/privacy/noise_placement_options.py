"""The choices of `method.privacy`: who adds noise, and where."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from h2fdp.config.fields import LARGEST_INTEGER, Count, Expect, Flag, Magnitude, Options, Section, Whole
from h2fdp.config.named_options import Choices
from h2fdp.privacy.accounting import RcSearch
from h2fdp.privacy.mechanisms.central import CentralDp
from h2fdp.privacy.mechanisms.dp_sgd import DpSgd, Normalize
from h2fdp.privacy.mechanisms.hierarchical import HierarchicalDp, LocalDp, NonPrivate
from h2fdp.privacy.mechanisms.noise_inside import HierarchicalSteps, LocalSteps
from h2fdp.privacy.mechanisms.noise_placement import NoisePlacement
from h2fdp.privacy.mechanisms.objective import ObjectivePerturbation
from h2fdp.privacy.mechanisms.output import OutputPerturbation
from h2fdp.privacy.secure_sum import KeySizes, Tolerance


class NoisePlacementOptions(Options):
    """The options of a placement of noise."""

    @abstractmethod
    def build(self) -> NoisePlacement:
        """The placement with these options."""


def _number_or_share(value: float) -> float:
    if isinstance(value, float) and value >= 1:
        raise ValueError(f"expected a whole number of at least 0, or a share below 1, found {value:g}")
    return value


NOISE_PLACEMENTS: Choices[NoisePlacementOptions] = Choices()


@NOISE_PLACEMENTS.register
class NoneOptions(NoisePlacementOptions):
    """No noise."""

    name: Literal["none"] = "none"

    def build(self) -> NoisePlacement:
        """The placement."""
        return NonPrivate()


Dropouts = Annotated[
    int | float,
    Field(ge=0, le=LARGEST_INTEGER),
    AfterValidator(_number_or_share),
    Expect("a whole number of at least 0, or a share below 1"),
]


Bits = Annotated[int, Field(ge=8, le=32), Expect("a whole number of bits from 8 to 32")]


class SecureSumSection(Section):
    """What secure sums withstand: `colluding` devices that tell their shares of the noise, and `dropouts`.

    `dropouts` is a number of devices, or a share below 1 of those that begin. `key_bits` and `share_bits` are the sizes
    of what they exchange for every sum, a public key and a share of a secret. With `rounding: b` what they add up are
    integers modulo 2^b under discrete noise. With `cloud: true` the cloud holds one too, of what its children send.
    """

    colluding: Whole = 0
    dropouts: Dropouts = 0
    key_bits: Count = 256
    share_bits: Count = 256
    rounding: Bits | None = None
    cloud: Flag = False

    def tolerance(self) -> Tolerance:
        """What they withstand."""
        return Tolerance(self.colluding, self.dropouts)

    def sizes(self) -> KeySizes:
        """Of the messages."""
        return KeySizes(self.key_bits, self.share_bits)


@NOISE_PLACEMENTS.register
class HierarchicalOptions(NoisePlacementOptions):
    """Noise where trust ends; with an `input_bound`, a public one, softmax regression needs no clipping.

    `noise` says what untrusted devices add it to: `uploads`, or each of their local `steps`; `secure_sum` what the sums
    of `secure-sum` edge servers withstand.
    """

    name: Literal["hierarchical"] = "hierarchical"
    noise: Literal["uploads", "steps"] = "uploads"
    input_bound: Magnitude | None = None
    secure_sum: SecureSumSection | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        sums = self.secure_sum or SecureSumSection()
        placement = HierarchicalSteps if self.noise == "steps" else HierarchicalDp
        return placement(self.input_bound, sums.tolerance(), sums.sizes(), sums.rounding, sums.cloud)


@NOISE_PLACEMENTS.register
class LocalOptions(NoisePlacementOptions):
    """Noise at every device; `noise` and `input_bound` see hierarchical."""

    name: Literal["local"] = "local"
    noise: Literal["uploads", "steps"] = "uploads"
    input_bound: Magnitude | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        return (LocalSteps if self.noise == "steps" else LocalDp)(self.input_bound)


@NOISE_PLACEMENTS.register
class CentralOptions(NoisePlacementOptions):
    """Noise at the cloud; a `noise_multiplier` of null is calibrated."""

    name: Literal["central"] = "central"
    noise_multiplier: Magnitude | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        return CentralDp(self.noise_multiplier)


@NOISE_PLACEMENTS.register
class DpSgdOptions(NoisePlacementOptions):
    """Noise on every local step; a `noise_multiplier` of null is calibrated."""

    name: Literal["dp-sgd"] = "dp-sgd"
    noise_multiplier: Magnitude | None = None
    normalize: Normalize = "expected"
    rc_search: RcSearch = "safe"

    def build(self) -> NoisePlacement:
        """The placement."""
        return DpSgd(self.noise_multiplier, self.normalize, self.rc_search)


@NOISE_PLACEMENTS.register
class OutputOptions(NoisePlacementOptions):
    """Noise on the clipped model, whose norm is `model_norm`, tau; a `noise_std` (sigma) of null is calibrated."""

    name: Literal["output"] = "output"
    model_norm: Magnitude = 1.0
    noise_std: Magnitude | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        return OutputPerturbation(self.model_norm, self.noise_std)


@NOISE_PLACEMENTS.register
class ObjectivePerturbationOptions(NoisePlacementOptions):
    """A random linear term in the objective; a `rate` of null is calibrated."""

    name: Literal["objective"] = "objective"
    rate: Magnitude | None = None
    u1: Magnitude | None = None
    u2: Magnitude | None = None
    input_bound: Magnitude = 1.0

    def build(self) -> NoisePlacement:
        """The placement."""
        return ObjectivePerturbation(**self.options())


if TYPE_CHECKING:
    NoisePlacementSection = NoisePlacementOptions
else:
    NoisePlacementSection = NOISE_PLACEMENTS.section()


def noise_placement_of(value: NoisePlacementOptions | Any) -> NoisePlacement:
    """The placement that a section describes, checked or as a recorded configuration has it."""
    section = value if isinstance(value, NoisePlacementOptions) else NOISE_PLACEMENTS.read(value)
    assert isinstance(section, NoisePlacementOptions), "no placement is a user's own: an account must know it"
    return section.build()
