"""Two explicit adversaries: losses and a record, and the exact law of how far they move an upload.

Neighbours: the record, or a null record that contributes nothing and is not counted. Both adversaries act along one
coordinate u of the model. Positions are in units of G along it for each local step, less what the worst step would do.

`turning`: the data's gradients are long and point along -u. The record's outweighs them and points along u; and it
moves a second coordinate v, by as little as one likes, to where the data's gradients point along u, and the record's
does not move v any more. So its first draw turns its own step, and all later steps of the upload. A release ends that:
its noise puts v back among the many places where nothing is turned. (v's line is cut into long stretches of the first
kind with short ones of the second between them, which a step from anywhere reaches.)

`pushing`: only the record has a gradient, of the clip norm and along u: each draw moves its own step and nothing else.

Both are real: `tests/privacy/test_adversaries_in_runs.py` trains them. Derivation: docs/privacy.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from h2fdp.privacy.accounting.output_pairs import OutputPair
from h2fdp.privacy.accounting.seen_vectors import SeenUpload, SeenVector

Adversary: TypeAlias = Literal["turning", "pushing"]
ADVERSARIES: tuple[Adversary, ...] = ("turning", "pushing")
MOST_CENTRES = 400  # of a vector's law: beyond it an adversary is not followed
_DIGITS = 11  # by which two sums of uploads at different weights are the same centre


class UploadLaw(NamedTuple):
    """Where an upload is along u, less its least position.

    Attributes:
        unit: between two positions, in units of the sensitivity.
        present, absent: (n,) probability of each position 0, 1, ... with the record, and without.
    """

    unit: float
    present: np.ndarray
    absent: np.ndarray


class StepLaw(NamedTuple):
    """The law of one local step on positions 0 .. n-1, given how the record is drawn.

    Attributes:
        absent: the record is null.
        before: the record is there, not drawn yet and not now.
        at: it is drawn for the first time.
        after: it has been drawn before.
    """

    absent: np.ndarray
    before: np.ndarray
    at: np.ndarray
    after: np.ndarray


def pair_of(vector: SeenVector, records: int, adversary: Adversary) -> OutputPair | None:
    """The two laws of a vector, in units of its noise; None where this adversary's is not known.

    Args:
        records: D of the device, the attacked record included.
    """
    positions: np.ndarray = np.zeros(1)
    present: np.ndarray = np.ones(1)
    absent: np.ndarray = np.ones(1)
    for upload in vector:
        law = upload_law(upload._replace(noise_multiplier=1.0), records, adversary)
        if law is None or law.present.size * positions.size > MOST_CENTRES**2:
            return None
        own = np.arange(law.present.size) * (law.unit / upload.noise_multiplier)
        sums = np.add.outer(positions, own).ravel()
        scale = 10.0 ** (_DIGITS - math.ceil(math.log10(sums.max() or 1.0)))
        _, first, number = np.unique(np.rint(sums * scale), return_index=True, return_inverse=True)
        if first.size > MOST_CENTRES:
            return None
        positions = sums[first]
        present = np.bincount(number.ravel(), np.multiply.outer(present, law.present).ravel())
        absent = np.bincount(number.ravel(), np.multiply.outer(absent, law.absent).ravel())
    kept = (present > 0) | (absent > 0)
    positions, present, absent = positions[kept] - positions[kept][0], present[kept], absent[kept]
    return OutputPair(*(tuple(each.tolist()) for each in (positions, present / present.sum(), absent / absent.sum())))


@lru_cache(maxsize=4096)
def upload_law(upload: SeenUpload, records: int, adversary: Adversary) -> UploadLaw | None:
    """Of one upload; None where it is not known.

    >>> upload = SeenUpload(1.0, steps=2, sampling_rate=0.5, sampling="poisson", effect="batch")
    >>> law = upload_law(upload, records=1_000, adversary="turning")  # a batch is never empty
    >>> law.unit, law.present.round(6).tolist(), law.absent.round(6).tolist()
    (0.25, [0.25, 0.0, 0.25, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0, 0.0])
    """
    q, m = chance_of_a_draw(upload, records), upload.steps
    if adversary == "pushing":
        reach = _reach_of_a_draw(upload, records)
        drawn = _binomial(m, q)
        return UploadLaw(reach, drawn, np.eye(1, m + 1)[0])
    if upload.effect == "batch":
        step, unit = _turned_batch(upload, records), 1 / (2 * m)
    elif upload.effect == "record":
        gradients = _gradients_in_a_mean(upload, records)
        if m * 2 * gradients + 1 > MOST_CENTRES and upload.sampling == "poisson" and q < 1:
            return None
        own = min(1.0, 0.5 / (upload.sampling_rate * records))
        step, unit = _turned_mean(upload, records), 1 / (2 * gradients * (m - 1 + own))
    else:
        return None
    return UploadLaw(unit, *_accumulated(step, q, m))


def chance_of_a_draw(upload: SeenUpload, records: int) -> float:
    """That one batch holds the record: q, or of a batch of a whole number of records their share."""
    if upload.effect == "update":
        return 1.0
    return upload.sampling_rate if upload.sampling == "poisson" else _fixed_size(upload, records) / records


def _fixed_size(upload: SeenUpload, records: int) -> int:
    return int(np.clip(np.rint(upload.sampling_rate * records), 1, records))


def _gradients_in_a_mean(upload: SeenUpload, records: int) -> int:
    """B, the least number of gradients that make up a mean of length G: those of data are clipped to b / B of G."""
    return max(1, math.ceil(upload.sampling_rate * records * (1 - 1e-9)))


def _reach_of_a_draw(upload: SeenUpload, records: int) -> float:
    """How far each draw of a record moves the upload that pushes by itself, in units of the sensitivity."""
    m, batch = upload.steps, upload.sampling_rate * records
    if upload.effect == "batch":
        return 1 / (2 * m)
    if upload.effect == "record":
        return min(1.0, 1 / batch) / (2 * (m - 1 + min(1.0, 0.5 / batch)))
    return 1 / m  # of m draws that move it by the sensitivity


def _turned_batch(upload: SeenUpload, records: int) -> StepLaw:
    """Positions 0: along -u, 1: an empty batch, 2: along u."""
    q = upload.sampling_rate
    against, empty, along = np.eye(3)
    if upload.sampling == "poisson":
        alone = (1 - q) ** (records - 1)
        data = (1 - alone) * against + alone * empty
        after = (1 - alone * (1 - q)) * along + alone * (1 - q) * empty
        return StepLaw(data, data, along, after)
    if _fixed_size(upload, records) > 1:
        return StepLaw(against, against, along, along)
    drawn = chance_of_a_draw(upload, records)  # a null record that is drawn leaves the batch empty
    return StepLaw((1 - drawn) * against + drawn * empty, against, along, along)


def _turned_mean(upload: SeenUpload, records: int) -> StepLaw:
    """Positions in steps of 1 / B, from all of G along -u, at 0, to all of it along u, at 2 B."""
    q, most = upload.sampling_rate, _gradients_in_a_mean(upload, records)
    if upload.sampling == "poisson":
        others = _binomial(records - 1, q)
        with_it, without, after = _at(others, 1, most), others, _joined(others, q)
        return StepLaw(_at(without, 0, most), _at(without, 0, most), with_it, _along(after, most))
    size = _fixed_size(upload, records)
    drawn = size / records
    whole, less = np.eye(size + 1)[size], np.eye(size + 1)[size - 1]
    null = drawn * less + (1 - drawn) * whole
    return StepLaw(_at(null, 0, most), _at(whole, 0, most), _at(less, 1, most), _along(whole, most))


def _joined(others: np.ndarray, q: float) -> np.ndarray:
    """The number of records in a batch, from that of others: one more with probability q."""
    return (1 - q) * np.append(others, 0.0) + q * np.insert(others, 0, 0.0)


def _at(counts: np.ndarray, along: int, most: int) -> np.ndarray:
    """The law of the mean of n gradients along -u, n by `counts`, and so many along u."""
    place = most + np.clip(along - np.arange(counts.size), -most, most)
    return np.bincount(place, counts, minlength=2 * most + 1)


def _along(counts: np.ndarray, most: int) -> np.ndarray:
    """The same of n gradients along u."""
    return np.bincount(most + np.minimum(np.arange(counts.size), most), counts, minlength=2 * most + 1)


def _accumulated(step: StepLaw, q: float, m: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) laws of the sum of m steps: with the record, which is first drawn at step l or never, and without it."""
    drawn, waiting, absent = np.zeros(1), np.ones(1), np.ones(1)
    for _ in range(m):
        drawn = np.convolve(drawn, step.after) + q * np.convolve(waiting, step.at)
        waiting = (1 - q) * np.convolve(waiting, step.before)
        absent = np.convolve(absent, step.absent)
    return drawn + waiting, absent


@lru_cache(maxsize=1024)
def _chances(n: int, q: float) -> tuple[float, ...]:
    if q in (0.0, 1.0):
        return tuple(float(j == n * q) for j in range(n + 1))
    logs = [math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in range(n + 1)]
    found = [math.exp(each + j * math.log(q) + (n - j) * math.log1p(-q)) for j, each in enumerate(logs)]
    total = math.fsum(found)
    return tuple(each / total for each in found)


def _binomial(n: int, q: float) -> np.ndarray:
    """(n + 1,) probabilities of 0 .. n draws."""
    return np.array(_chances(n, q))
