"""The choices of `method.privacy`: who adds noise, and where."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from h2fdp.config.fields import LARGEST_INTEGER, Expect, Flag, Magnitude, Options, Section, Whole
from h2fdp.config.named_options import Choices
from h2fdp.privacy.accounting import RcSearch
from h2fdp.privacy.mechanisms.central import CentralDp
from h2fdp.privacy.mechanisms.dp_sgd import DpSgd
from h2fdp.privacy.mechanisms.hierarchical import HierarchicalDp, HierarchicalSteps, LocalDp, LocalSteps, NonPrivate
from h2fdp.privacy.mechanisms.noise_placement import NoisePlacement
from h2fdp.privacy.mechanisms.perturbations import ObjectivePerturbation, OutputPerturbation
from h2fdp.privacy.trust_model import Tolerance


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
    """What secure sums withstand.

    Attributes:
        colluding: devices that tell their shares of the noise.
        dropouts: devices that may be lost while a sum is made: a number, or a share below 1 of those that begin.
        rounding: b: what is added up are integers modulo 2^b under discrete noise; null adds up numbers.
        cloud: whether the cloud holds a secure sum too, of what its children send.
    """

    colluding: Whole = 0
    dropouts: Dropouts = 0
    rounding: Bits | None = None
    cloud: Flag = False

    def tolerance(self) -> Tolerance:
        """What they withstand."""
        return Tolerance(self.colluding, self.dropouts)


@NOISE_PLACEMENTS.register
class HierarchicalOptions(NoisePlacementOptions):
    """Noise where trust ends.

    Attributes:
        noise: what untrusted devices add it to: `uploads`, or each of their local `steps`.
        input_bound: a public bound on the norm of inputs, which are divided by it: softmax regression needs no clipping
            then; null has none.
        secure_sum: what the sums of `secure-sum` edge servers withstand; null is nobody colluding, nobody lost.
    """

    name: Literal["hierarchical"] = "hierarchical"
    noise: Literal["uploads", "steps"] = "uploads"
    input_bound: Magnitude | None = None
    secure_sum: SecureSumSection | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        sums = self.secure_sum or SecureSumSection()
        placement = HierarchicalSteps if self.noise == "steps" else HierarchicalDp
        return placement(self.input_bound, sums.tolerance(), sums.rounding, sums.cloud)


@NOISE_PLACEMENTS.register
class LocalOptions(NoisePlacementOptions):
    """Noise at every device.

    Attributes:
        noise: what devices add it to: `uploads`, or each of their local `steps`.
        input_bound: a public bound on the norm of inputs, which are divided by it: softmax regression needs no clipping
            then; null has none.
    """

    name: Literal["local"] = "local"
    noise: Literal["uploads", "steps"] = "uploads"
    input_bound: Magnitude | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        return (LocalSteps if self.noise == "steps" else LocalDp)(self.input_bound)


@NOISE_PLACEMENTS.register
class CentralOptions(NoisePlacementOptions):
    """Noise at the cloud.

    Attributes:
        noise_multiplier: the noise divided by the sensitivity; null is calibrated.
    """

    name: Literal["central"] = "central"
    noise_multiplier: Magnitude | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        return CentralDp(self.noise_multiplier)


@NOISE_PLACEMENTS.register
class DpSgdOptions(NoisePlacementOptions):
    """Noise on every local step.

    Attributes:
        noise_multiplier: the noise divided by the sensitivity; null is calibrated.
        normalize: what a sum of gradients is divided by: the `expected` size of a batch, the number `drawn`, or a
            number that is stated.
        rc_search: how many iterations the target allows: `safe`, or the search of the `paper`, which overspends.
    """

    name: Literal["dp-sgd"] = "dp-sgd"
    noise_multiplier: Magnitude | None = None
    normalize: Annotated[
        Literal["expected", "drawn"] | Magnitude, Expect("expected, drawn or a number from 1e-9 to 1e9")
    ] = "expected"
    rc_search: RcSearch = "safe"

    def build(self) -> NoisePlacement:
        """The placement."""
        return DpSgd(self.noise_multiplier, self.normalize, self.rc_search)


@NOISE_PLACEMENTS.register
class OutputOptions(NoisePlacementOptions):
    """Noise on the clipped model.

    Attributes:
        model_norm: tau, to which a device cuts its model.
        noise_std: sigma; null is calibrated.
    """

    name: Literal["output"] = "output"
    model_norm: Magnitude = 1.0
    noise_std: Magnitude | None = None

    def build(self) -> NoisePlacement:
        """The placement."""
        return OutputPerturbation(self.model_norm, self.noise_std)


@NOISE_PLACEMENTS.register
class ObjectivePerturbationOptions(NoisePlacementOptions):
    """A random linear term in the objective.

    Attributes:
        rate: of the density of the term, exp(-rate ||n||); null is calibrated.
        input_bound: a public bound on the norm of inputs, which are divided by it; every record is checked.
    """

    name: Literal["objective"] = "objective"
    rate: Magnitude | None = None
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
