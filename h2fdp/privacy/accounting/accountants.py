"""The accountants by name: from what was released to epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from h2fdp.privacy.accounting.conversion import classic_epsilon_from_rdp, epsilon_from_rdp
from h2fdp.privacy.accounting.mixture_composition import RELATIVE_TOLERANCE, epsilon_of_mixtures
from h2fdp.privacy.accounting.mixtures import mixture_of
from h2fdp.privacy.accounting.opacus_prv import opacus_prv_epsilon
from h2fdp.privacy.accounting.release_types import Composition, revealing
from h2fdp.privacy.accounting.renyi import ORDERS, rdp_of

AccountantName = Literal["rdp", "pld", "prv", "classic-rdp"]


class Accountant(Protocol):
    """From a composition to an upper bound on epsilon.

    Neighbours: one record of the device becomes a null record. The composition is fixed without looking at the data.

    Attributes:
        libraries: that compute its epsilon, beside NumPy.
        spread: by which part its epsilon may be above its exact bound, and so differ between nearly equal accounts.
    """

    name: ClassVar[AccountantName]
    libraries: ClassVar[tuple[str, ...]]
    spread: ClassVar[float]

    def epsilon(self, composition: Composition, delta: float) -> float:
        """Epsilon at `delta`, in nats: 0 for nothing released, inf where a release carries no noise.

        Raises:
            UnsupportedRelease: where the accountant has no sound bound.
        """
        ...


@dataclass(frozen=True)
class RdpAccountant:
    """Renyi divergences of the accounted mixtures added up, and the tight conversion; the live account.

    >>> from h2fdp.privacy.accounting import ReleaseType
    >>> round(RdpAccountant().epsilon({ReleaseType(1.1, steps=1, sampling_rate=0.015): 900}, delta=1e-5), 3)
    2.505
    """

    name: ClassVar[AccountantName] = "rdp"
    libraries: ClassVar[tuple[str, ...]] = ()
    spread: ClassVar[float] = 0.0

    def epsilon(self, composition: Composition, delta: float) -> float:
        return float(epsilon_from_rdp(total_rdp(composition), delta)) if revealing(composition) else 0.0


@dataclass(frozen=True)
class ClassicRdpAccountant:
    """The same divergences with the conversion of Mironov 2017 and orders 2..64, as ALI-DPFL counts."""

    name: ClassVar[AccountantName] = "classic-rdp"
    libraries: ClassVar[tuple[str, ...]] = ()
    spread: ClassVar[float] = 0.0

    def epsilon(self, composition: Composition, delta: float) -> float:
        return float(classic_epsilon_from_rdp(total_rdp(composition), delta)) if revealing(composition) else 0.0


@dataclass(frozen=True)
class PldAccountant:
    """Privacy loss distributions of the accounted mixtures; at most 0.05 % above their true
    epsilon (`mixtures_epsilon`)."""

    name: ClassVar[AccountantName] = "pld"
    libraries: ClassVar[tuple[str, ...]] = ("scipy",)
    spread: ClassVar[float] = RELATIVE_TOLERANCE

    def epsilon(self, composition: Composition, delta: float) -> float:
        return epsilon_of_mixtures(composition, mixture_of, delta)


@dataclass(frozen=True)
class PrvAccountant:
    """Opacus's accountant (Gopi, Lee and Wutschitz 2021), a cross-check from another code base.

    It knows the Poisson-subsampled Gaussian only, so m = 1 or no amplification. Its bound includes its own error term.
    """

    name: ClassVar[AccountantName] = "prv"
    libraries: ClassVar[tuple[str, ...]] = ("opacus", "scipy")
    spread: ClassVar[float] = 0.0

    def epsilon(self, composition: Composition, delta: float) -> float:
        return opacus_prv_epsilon(revealing(composition), delta)


ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant
    for accountant in (RdpAccountant(), PldAccountant(), PrvAccountant(), ClassicRdpAccountant())
}


def total_rdp(composition: Composition) -> np.ndarray:
    """(len(ORDERS),) Renyi divergence of all releases together; to the bit the same in whatever order."""
    parts = [count * rdp_of(release) for release, count in sorted(revealing(composition).items())]
    return np.sum(parts, axis=0) if parts else np.zeros(ORDERS.size)
