"""What secure sums change in the plan of a subnet: integers stand for vectors, and a sum of too few is never opened."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from h2fdp.errors import UserError
from h2fdp.privacy import ModularCode, SecureSum, TrustModel, code_for
from h2fdp.world import CompletedWork

_WHOLE = 1e-9  # of a grid cell: a noise of so many whole cells stays what it is


def bits_of(trust_model: TrustModel) -> int | None:
    """Of the integers that stand for the numbers of vectors; None where vectors are sent as they are."""
    return trust_model.rounding if isinstance(trust_model, SecureSum) else None


def coded(
    bits: int, parameters: int, subnet: str, lengths: Sequence[float], shares: np.ndarray, noise_std: np.ndarray
) -> tuple[tuple[ModularCode, ...], np.ndarray]:
    """How integers stand for vectors in each sum of a subnet, and its noises (segments, s) in whole cells of these.

    Args:
        parameters: M, of the vectors.
        lengths: of each segment, of the longest update of a device.
        shares: (s,) of the devices in the subnet's average.
        noise_std: (segments, s) of what devices add.

    Raises:
        UserError: too few bits for this noise.
    """
    codes, levels = [], []
    for length, level in zip(lengths, noise_std, strict=True):
        code = code_for(bits, parameters, subnet, length, level * shares)
        if code is None:
            text = f"{bits} bits are too few for the noise and the updates of {subnet}"
            raise UserError(f"{text}; expected more", key="method.privacy.secure_sum.rounding")
        codes.append(code)
        levels.append(np.ceil(level * shares / code.spacing - _WHOLE) * code.spacing / shares)
    return tuple(codes), np.stack(levels)


def opened(
    trust_model: TrustModel, started: int, segments: Sequence[int], completed: CompletedWork | None
) -> CompletedWork | None:
    """What the devices' work comes to where a sum of too few uploads is never opened."""
    if completed is None:
        if trust_model.opens(started, started):
            return None
        steps = np.repeat(np.array(segments)[:, None], started, axis=1)
        completed = CompletedWork(steps, np.zeros(started, dtype=np.int64))
    arrived = (completed.steps > 0).sum(axis=1)
    are_opened = np.array([each == 0 or trust_model.opens(started, each) for each in arrived.tolist()])
    return completed if are_opened.all() else completed.opening(are_opened)
