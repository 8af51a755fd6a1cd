"""DP-SGD on devices: records' gradients are clipped one by one, noise is added to their sum at every local step.

Source: ALI-DPFL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from h2fdp.config.fields import Expect, Magnitude
from h2fdp.errors import UserError, refused
from h2fdp.network import Trust
from h2fdp.privacy.accounting import ACCOUNTANTS, Accountant, ReleaseType, Sampling
from h2fdp.privacy.accounting.renyi import classic_epsilon_from_rdp
from h2fdp.privacy.accounts import MARGIN, Accounts
from h2fdp.privacy.calibration import MOST_RELEASES, RcSearch, iteration_budget, smallest_factor
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts, Mechanism, MechanismContext, Span
from h2fdp.privacy.mechanisms.noise_placement import (
    Clips,
    StatedNoise,
    UploadClipping,
    clipped,
    remembering,
    uncontrolled,
)
from h2fdp.privacy.mechanisms.pipeline import Pipeline
from h2fdp.privacy.mechanisms.stages import NoisySteps
from h2fdp.privacy.places import Holder, Place, ReleaseKind
from h2fdp.privacy.views import Sensitivities, Uploads

DRAWN = (
    "normalize drawn: how many records a batch drew scales its noise, and shows in it, so sampling hides nothing: the "
    "account has no amplification, and holds for neighbours where a record gets a gradient of zero and is still "
    "counted, not for a record that is missing; the claim, and R_c, amplify, as ALI-DPFL's paper does"
)

OVERSPENT = (
    "rc_search paper: the number of steps is that of the authors' search, which stops up to 0.01 above the target"
)


@dataclass(frozen=True)
class DpSgdMechanism(Mechanism):
    """N(0, (z C)^2 I) on the sum of each batch's clipped gradients.

    Every step is a release of its own, to all observers alike: whatever they receive is computed from noisy steps of
    the device, and of others, which do not depend on its records otherwise. Neighbours: a null record contributes
    nothing to the sum, and is not counted; so the sum moves by at most C.

    Attributes:
        noise_multiplier: z.
        clip_norm: C, of each record's gradient.
        exposed: a step of the device with the largest rate, at a noise multiplier of 1.
        planned: steps of a device in the planned run.
        search: the search for R_c; None where the noise is made for the planned steps, which then are all there are.
        amplified: whether sampling hides a record. A sum that is divided by the number of records drawn shows that
            number by the scale of its noise; given b of D, the record is in the batch with probability b/D, and no
            amplification by q is left.
        divisor: the stated number that sums are divided by; None for one that follows from the batches.
        open_ended: the run takes R_c steps, however many are planned.
    """

    noise_multiplier: float
    clip_norm: float
    delta: float
    exposed: ReleaseType
    planned: int
    search: RcSearch | None
    amplified: bool = True
    divisor: float | None = None
    open_ended: bool = False
    releases: ClassVar[ReleaseKind] = "step"

    def unit(self, span: Span) -> float:
        """The deviation of the noise on the sum."""
        return self.noise_multiplier * self.clip_norm

    def sensitivities(self, uploads: Uploads) -> Sensitivities:
        """The reach of a record in the sum of each step."""
        ones = np.ones(len(uploads.rows))
        sampling: Sampling = uploads.sampling if self.amplified else "fixed"
        rates = uploads.sampling_rates if self.amplified else ones
        return Sensitivities(self.clip_norm * ones, rates, ones, sampling, "record")

    def variance(self, uploads: Uploads) -> float:
        """The variance to first order, as if the noise of one step did not change the gradients of the next."""
        divisors = uploads.sampling_rates * uploads.records if self.divisor is None else self.divisor
        of_steps = uploads.segment.step_size * uploads.levels / divisors
        return float((uploads.steps * (uploads.weights * of_steps) ** 2).sum())

    def claimed(self, accounts: Accounts, made: AggregationCounts) -> float | None:
        """The claim by orders 2 to 64 and the classic conversion, as ALI-DPFL counts, of the steps really made."""
        if not self.amplified:
            return self._claimed_with_amplification(accounts)
        divergences = accounts.rdp("edge")
        return float(classic_epsilon_from_rdp(divergences, self.delta).max()) if divergences.size else 0.0

    def _claimed_with_amplification(self, accounts: Accounts) -> float:
        """The claim as if every device drew at the largest rate, without being seen to."""
        classic, found = ACCOUNTANTS["classic-rdp"], 0.0
        for each in accounts.classes("edge"):
            drawn: Counter[ReleaseType] = Counter()
            for step, count in each.composition.items():
                drawn[replace(self.exposed, noise_multiplier=step.noise_multiplier)] += count
            found = max(found, classic.epsilon(drawn, self.delta))
        return found

    def scaled(self, factor: float) -> DpSgdMechanism:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    @property
    def step_noise_multiplier(self) -> float:
        """z."""
        return self.noise_multiplier

    def iterations(self, epsilon: float, accountant: Accountant) -> int:
        """The budget R_c of the device with the largest rate, for all; every slot counts as a step.

        No more than are planned, where a run cannot take more.
        """
        if self.search is None:
            return self.planned
        step = replace(self.exposed, noise_multiplier=self.noise_multiplier)
        most = MOST_RELEASES if self.open_ended else self.planned
        found = iteration_budget(self.search, step, epsilon, self.delta, accountant, most)
        if found == 0:
            spent = accountant.epsilon({step: 1}, self.delta)
            text = f"a single step with this noise has epsilon {spent:.4g}, above the target {epsilon:g}"
            raise UserError(f"{text}; expected a larger number", key="method.privacy.noise_multiplier")
        return found


class DpSgd(StatedNoise):
    """Noise on every local step.

    Trust is irrelevant: edge servers, trusted or not, see noisy steps. A multiplier that is null is calibrated to the
    target for the planned steps; with a given one the run ends at R_c, the largest number of steps of a device that
    meets the target. The public program of ALI-DPFL divides by the number 64.

    Attributes:
        normalize: what a sum of gradients is divided by: the `expected` size of a batch, the number `drawn`, or a
            number that is stated.
        rc_search: how many iterations the target allows: `safe`, or the search of the `paper`, which overspends.
    """

    name: Literal["dp-sgd"] = "dp-sgd"
    normalize: Annotated[
        Literal["expected", "drawn"] | Magnitude, Expect("expected, drawn or a number from 1e-9 to 1e9")
    ] = "expected"
    rc_search: RcSearch = "safe"

    @property
    def clips(self) -> Clips:
        return "record"

    @property
    def all_steps_noisy(self) -> bool:
        return True

    @property
    def tells_batch_sizes(self) -> bool:
        return self.normalize == "drawn"

    @property
    def states_divisor(self) -> bool:
        return not isinstance(self.normalize, str)

    @property
    def notes(self) -> tuple[str, ...]:
        """The cost of the paper's own ways."""
        chosen = {DRAWN: self.normalize == "drawn", OVERSPENT: self.rc_search == "paper"}
        return tuple(note for note, holds in chosen.items() if holds)

    def place(self, chain: Sequence[Trust], passed: int) -> Place:
        """The device adds it."""
        return Place(Holder.STEP)

    def problems(self, experiment: Any) -> Iterator[tuple[str, str]]:
        """Refusals of settings under which a record could move a step by more than one clipped gradient."""
        yield from remembering(experiment, noisy_steps=True)
        yield from clipped(experiment, "gradients")
        yield from super().problems(experiment)
        yield from uncontrolled(experiment)
        scope = experiment.training.clip_scope if "clip_scope" in experiment.training.model_fields_set else "record"
        searching = self.noise_multiplier is None and self.rc_search != "safe"
        yield from refused(
            "dp-sgd clips each record's gradient, and counts steps under a stated noise_multiplier",
            ("training.clip_scope", scope != "record", "record", scope),
            ("method.privacy.rc_search", searching, "safe, or a noise_multiplier", self.rc_search),
        )

    def pipeline(self, trust: Trust, clipping: UploadClipping) -> Pipeline:
        return Pipeline((NoisySteps(),), self.normalize)

    def mechanism(self, setting: MechanismContext) -> Mechanism:
        assert setting.clip_norm is not None, "a guarantee comes with clipping"
        exposed = ReleaseType(1.0, 1, float(setting.sampling_rates.max()), setting.sampling)
        planned = setting.intervals * setting.local_steps
        noise = self.noise_multiplier or planned_multiplier(setting, exposed)
        search = None if self.noise_multiplier is None else self.rc_search
        amplified = not self.tells_batch_sizes
        divisor = None if isinstance(self.normalize, str) else self.normalize
        of_run = setting.delta, exposed, planned, search, amplified, divisor, setting.open_ended
        return DpSgdMechanism(noise, setting.clip_norm, *of_run)


def planned_multiplier(setting: MechanismContext, exposed: ReleaseType) -> float:
    """z for the planned steps, or epochs, by ALI-DPFL's account.

    That account is never below log(1/delta) / 63. Where another one will be met in the end, this is no obstacle.

    Raises:
        UserError: a target below that.
    """
    steps, classic = {exposed: setting.intervals * setting.step_releases}, ACCOUNTANTS["classic-rdp"]
    try:  # within 0.1 %
        return smallest_factor([steps], setting.epsilon, lambda each: classic.epsilon(each, setting.delta)) * MARGIN
    except UserError:
        if not setting.accounted:
            raise
        return 1.0
