"""The standard deviations of all noises of one subnet in one interval (H2FDP, Prop. 3.1 with Lemma 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from h2fdp.privacy.calibration import PaperCalibration, ReleaseKind
from h2fdp.privacy.noise_placement import NoiseSource
from h2fdp.privacy.sensitivity import accumulated_gradient_sensitivity, estimate_sensitivity

SensitivityRule = Literal["paper", "tight"]


@dataclass(frozen=True)
class NoiseLevels:
    """Turns an interval's plan into noise.

    Attributes:
        clip_norm: G.
        sensitivity: `paper` takes tau_k steps for every release; `tight` the steps that the upload accumulated.
    """

    calibration: PaperCalibration
    clip_norm: float
    sensitivity: SensitivityRule

    def of_subnet(
        self,
        source: NoiseSource,
        segments: Sequence[int],
        step_size: float,
        weights: np.ndarray,
        sampling_rates: np.ndarray,
    ) -> np.ndarray:
        """(len(segments), s) for noise from devices, (.., 1) from the edge server, (.., 0) from nobody.

        Args:
            segments: local steps before each aggregation, the last one global.
            weights: (s,) rho_j of the active devices, or (len(segments), s) of those really averaged in each
                aggregation, 0 for the others: with fewer devices each weighs more. An edge server's noise covers the
                largest rho_j q_j, so that unequal weights or rates cost noise, never privacy; a device's own upload
                carries no weight.
            sampling_rates: (s,) q_j.
        """
        last = len(segments) - 1
        kinds: list[ReleaseKind] = ["global" if segment == last else "local" for segment in range(len(segments))]
        if source == "none":
            return np.empty((len(segments), 0))
        exposed = sampling_rates if source == "device" else np.max(weights * sampling_rates, axis=-1, keepdims=True)
        rows = []
        of_segments = np.broadcast_to(exposed, (len(segments), exposed.shape[-1]))
        for kind, accumulated, shown in zip(kinds, segments, of_segments, strict=True):
            steps = sum(segments) if self.sensitivity == "paper" else accumulated
            own = accumulated_gradient_sensitivity(step_size, steps, self.clip_norm)
            rows.append(self.calibration.noise_std(kind, own, 1.0) * shown)
        return np.stack(rows)

    def of_estimates(self, source: NoiseSource, numbers: int, sampling_rates: np.ndarray) -> np.ndarray:
        """(s,) or (1,) for estimates in units of their ranges; an edge server's maximum has no weights to shrink it."""
        assert source != "none", "private estimates are released under noise"
        exposed = sampling_rates if source == "device" else np.max(sampling_rates, keepdims=True)
        return np.asarray(self.calibration.noise_std("estimate", estimate_sensitivity(numbers), 1.0) * exposed)
