"""Distances between runs of neighbours, in units of the noise that the runs really add.

A prepared run is performed by its own engine on its own records, again and again under the same noise keys, each time
with one record of one device changed. The loss is linear, so that a gradient depends on its record alone, and the
records are such that clipped gradients move as far as they may. What an observer receives is then y = s + N z: s of
the records, z the draws of the run. Each draw moves one coordinate of the model that no record moves, by the level at
which it is added: so N is read off what passes. The draws themselves are made, too, and their variance is measured.

Integers of secure sums are rounded as they are, with the numbers that both runs draw; their noise is added where the
sum is decoded, in whole cells.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

import h2fdp.privacy.correlated
import h2fdp.privacy.mechanisms.pipeline
import h2fdp.privacy.mechanisms.stages
import h2fdp.privacy.modular_sums
import h2fdp.privacy.vectors
import h2fdp.protocol.cloud
from h2fdp.privacy.mechanisms.compression import RandK
from h2fdp.privacy.mechanisms.stages import UpdateNoise
from h2fdp.streams import Streams
from tests.protocol.overhearing import Overheard, devices_of, listen

FEATURES, CLASSES = 200, 2
FREE = range(1, FEATURES * CLASSES)  # coordinates of a model that no record moves: records have one feature
LARGE = 10.0  # gradients before they are clipped; clip norms are 1


def linear(scores, labels):
    """A loss whose gradient is the record."""
    return scores[:, 0]


class WithHead(nn.Module):
    """Scores that are linear in both layers, of which the last one may be a device's own."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(FEATURES, CLASSES, bias=False)
        self.head = nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, x):
        return self.shared(x) + self.head(x)


def records(device, features=FEATURES):
    """Two to four of a device. The first one turns the mean of all: a batch clips to +1 with it, to -1 without.

    Under every second device it is the other way round, so that a median stands between two ways.
    """
    count = 2 + sum(device.encode()) % 3
    x = np.zeros((count, features), np.float32)
    x[:, 0] = -LARGE
    x[0, 0] = 2 * LARGE * (count - 1)
    x[:, 0] *= -1 if device[-1] in "02468" else 1
    return x, np.arange(count) % CLASSES


@dataclass
class Draws:
    """The noise of a run.

    Attributes:
        owners: coordinate -> node whose draw it is; only of draws that were made.
        squares, values: of all draws, in units of their levels: the sum of squares, and how many.
        scale: node -> factor on its noise, a planted error.
        reused: interval and slot of a stream -> those whose draw it has, a planted error.
        free: coordinates of the model that no record moves.
    """

    owners: dict[int, str] = field(default_factory=dict)
    squares: float = 0.0
    values: int = 0
    scale: dict[str, float] = field(default_factory=dict)
    reused: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    _keys: dict[int, tuple] = field(default_factory=dict)
    free: range = FREE
    _places: dict[tuple, int] = field(default_factory=dict)
    _in_sums: dict[int, float] = field(default_factory=dict)
    _lent: Any = None

    @property
    def variance(self):
        """Of the draws, in units of what their levels say; its standard error is sqrt(2 / values)."""
        return self.squares / self.values

    def patch(self, patched):
        """Listen to all draws of Gaussian noise, and give each its coordinate."""
        made, key = h2fdp.privacy.vectors.add_gaussian_noises, Streams.key
        correlated = h2fdp.privacy.correlated
        normal, opened = correlated.standard_normal, correlated.generator_of

        def named(streams, node, purpose, interval=0, slot=0):
            found = key(streams, node, purpose, interval, slot)
            self._keys[found] = node, purpose, *self.reused.get((interval, slot), (interval, slot))
            return found

        def add(vectors, levels, keys):
            drawn = torch.zeros(len(vectors), vectors.shape[1])
            made(drawn, levels, keys)
            for vector, noise, level, each in zip(vectors, drawn, levels.tolist(), keys, strict=True):
                vector[self._place(each, noise / level)] += level * self._scale(each)

        def one(vector, each):
            noise = torch.zeros_like(vector)
            noise[self._place(each, normal(vector, opened(each)))] = self._scale(each)
            return noise

        patched.setattr(Streams, "key", named)
        for module in (h2fdp.privacy.mechanisms.pipeline, h2fdp.privacy.mechanisms.stages, h2fdp.privacy.vectors):
            patched.setattr(module, "add_gaussian_noises", add)
        patched.setattr(correlated, "generator_of", lambda each: each)
        patched.setattr(correlated, "standard_normal", one)
        self._patch_cloud(patched)
        self._patch_integers(patched)

    def _patch_cloud(self, patched):
        """Listen to the one noise that the cloud adds."""
        made, borrowed = h2fdp.protocol.cloud.add_gaussian_noise, Streams.borrowed

        def lent(streams, *of):
            self._lent = streams.key(*of)
            return borrowed(streams, *of)

        def add(vector, level, stream):
            found, key = vector.clone(), self._lent
            found[self._place(key, made(torch.zeros_like(vector), level, stream) / level)] += level * self._scale(key)
            return found

        patched.setattr(Streams, "borrowed", lent)
        patched.setattr(h2fdp.protocol.cloud, "add_gaussian_noise", add)

    def _patch_integers(self, patched):
        """Listen to the noise of devices in sums of integers; the last number of what each sends says whose it is."""
        sums, pipeline = h2fdp.privacy.modular_sums, h2fdp.privacy.mechanisms.pipeline
        made, opened = sums.discrete_gaussian, pipeline.generator_of
        encode, decode = sums.ModularCode.encode, sums.ModularCode.decode

        def none(cells, count, stream):
            self._place(stream.key, torch.from_numpy(made(cells, count, stream.opened) / cells))
            return np.zeros(count, np.int64)

        def encoded(code, update, share, cells, signs, stream):
            sent = encode(code, update, share, cells, signs, stream)
            place = self._places[self._keys[stream.key]]
            self._in_sums[place] = cells * code.spacing * self._scale(stream.key)
            return torch.cat([sent, torch.tensor([place])])

        def decoded(code, residues, signs):
            total = decode(code, residues[:, :-1], signs)
            total[self.free.start : self.free.stop] = 0.0  # of rounding alone, and where noises are
            for place in residues[:, -1].tolist():
                total[place] = self._in_sums[place]
            return total

        patched.setattr(pipeline, "generator_of", lambda key: Keyed(key, opened(key)))
        patched.setattr(sums, "discrete_gaussian", none)
        patched.setattr(sums.ModularCode, "encode", encoded)
        patched.setattr(sums.ModularCode, "decode", decoded)

    def _place(self, key, noise):
        """The coordinate of a draw, which lasts; and the draw is counted the first time."""
        stream = self._keys[key]
        if stream not in self._places:
            self._places[stream] = place = self.free[len(self._places)]
            self.owners[place] = stream[0]
            self.squares += float(noise.double().square().sum())
            self.values += noise.numel()
        return self._places[stream]

    def _scale(self, key):
        return self.scale.get(self._keys[key][0], 1.0)


class Keyed:
    """A stream that says which it is."""

    def __init__(self, key, opened):
        self.key, self.opened = key, opened

    def __getattr__(self, name):
        return getattr(self.opened, name)


@dataclass(frozen=True)
class Neighbour:
    """In what the records of a run differ from those of the first one.

    Attributes:
        rows: (edge server, row) of the device, wherever it ever is.
        to: by which its first record is multiplied; 0 is the null record.
        whole: all its records are.
    """

    rows: tuple
    to: float = 0.0
    whole: bool = False


@dataclass
class Performed:
    """What passed in a run, and when.

    Attributes:
        uploads: device's name -> its uploads as noise left them, before any compression.
        ends: after each interval, how many vectors of each kind and node there are, and how many rows.
    """

    heard: Overheard = field(default_factory=Overheard)
    draws: Draws = field(default_factory=Draws)
    uploads: dict[str, list[np.ndarray]] = field(default_factory=dict)
    ends: list[dict] = field(default_factory=list)

    def lists(self):
        """(kind, node) -> vectors in order."""
        kinds = {"sent down": self.heard.broadcasts, "received": self.heard.received, "uploads": self.uploads}
        found = {(kind, node): vectors for kind, of_nodes in kinds.items() for node, vectors in of_nodes.items()}
        others = {"models": self.heard.models, "rows": self.heard.rows}
        return found | {(kind, None): vectors for kind, vectors in others.items()}

    def until(self, interval, kind, node=None, only=None):
        """What there is of a kind after so many intervals; of these, or of some `only`."""
        ends = [0, *(end.get((kind, node), 0) for end in self.ends[: interval + 1])]
        vectors = self.lists().get((kind, node), [])
        during = [vectors[begin:end] for begin, end in pairwise(ends)]
        return [vector for at, of in enumerate(during) if only is None or at in only for vector in of]


def performed(setup, monkeypatch, changed=None, draws=None):
    """Run a prepared run.

    Args:
        changed: the `Neighbour`; None for the records as they are.
    """
    run = Performed(draws=draws or Draws())
    encode = UpdateNoise.encode

    def noisy(stage, updates, received, at):
        sent = encode(stage, updates, received, at)
        for node, vector in zip(at.nodes, sent, strict=True):
            run.uploads.setdefault(node, []).append(vector.double().numpy().copy())
        return sent

    def group(number, name):
        made = setup.blueprint.device_group(number)
        own = [] if changed is None else [row - made.first_row for edge, row in changed.rows if edge == name]
        x, offsets = made.records.x.clone(), made.records.offsets
        for row in own:
            x[offsets[row] : offsets[row + 1] if changed.whole else offsets[row] + 1] *= changed.to
        return replace(made, records=replace(made.records, x=x))

    def ended():
        run.ends.append({key: len(vectors) for key, vectors in run.lists().items()})

    with monkeypatch.context() as patched:
        run.draws.patch(patched)
        patched.setattr(UpdateNoise, "encode", noisy)
        # All leave out the same coordinates of what has its noise. Signals and noises are in different ones here.
        patched.setattr(RandK, "encode", lambda stage, updates, received, at: updates)
        start = torch.zeros_like(setup.initial)
        listen(setup, patched, run.heard, group, start, setup.config.training.intervals, ended)
    return run


def squared_gap(run, other, vectors, others, known):
    """mu^2 between what an observer has of neighbours; infinite where some of it moves without noise.

    Args:
        vectors, others: (n, M) of both runs.
        known: nodes whose noise the observer can subtract.
    """
    seen, moved = np.array(vectors), np.array(others) - np.array(vectors)
    hidden = [place for place, node in run.draws.owners.items() if node not in known]
    noises, moved = seen[:, hidden], np.delete(moved, list(run.draws.owners), axis=1)
    noises[np.abs(noises) < 1e-6 * np.abs(seen).max()] = 0.0  # of float32
    moved = moved[:, np.abs(moved).max(axis=0) > 0]
    levels = np.linalg.norm(noises, axis=1)
    if np.abs(moved[levels == 0]).max(initial=0.0) > 1e-6 * np.abs(seen).max():
        return np.inf
    noises, moved = (each[levels > 0] / levels[levels > 0, None] for each in (noises, moved))
    solved, *_ = np.linalg.lstsq(noises, moved, rcond=1e-4)
    if np.abs(noises @ solved - moved).max(initial=0.0) > 1e-3 * np.abs(moved).max(initial=0.01):
        return np.inf
    return float(np.square(solved).sum())


def charged(rows, device_of):
    """(device, observer) -> the sum of mu^2 of these rows.

    Args:
        device_of: row (edge server, number) -> the device whose it is.
    """
    found = {}
    for row in rows:
        for place in devices_of(row):
            key = device_of[place], row.observer
            found[key] = found.get(key, 0.0) + (row.sensitivity / row.noise_std) ** 2
    return found
