"""Scores of records by compiled kernels: the forward half of a step, for evaluation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.training.compiled.arrays import Floats, Held, Network
from h2fdp.training.compiled.chains import linear_chain
from h2fdp.training.compiled.engine import held_by, network_of
from h2fdp.training.compiled.jit import CompiledOnce, digest_of_sources
from h2fdp.training.compiled.layers import BLOCK, block_of, clear, forward
from h2fdp.training.compiled.stored_records import loaded
from h2fdp.training.compiled.vectors import borrowed
from h2fdp.training.device_records import DeviceRecords


class CompiledScores:
    """Of a module that has compiled steps. Records are read as they are stored; threads may call one at once."""

    def __init__(self, module: nn.Module) -> None:
        chain = linear_chain(module)
        assert not isinstance(chain, str), "the engine was built for it"
        self._network = network_of(chain)

    def __call__(self, model: Tensor, records: DeviceRecords, part: slice) -> Tensor:
        """See `Scores`; all is on the CPU."""
        network = self._network
        first, stop, _ = part.indices(len(records.y))
        scores = torch.empty(stop - first, int(network.outputs[-1]))
        block = np.empty(int(network.places[-1] + BLOCK * network.outputs[-1]), np.float32)
        _scores(network, held_by(records), model.contiguous().numpy(), block, first, scores.numpy())
        return scores


def _entry(sources: int) -> CompiledOnce[..., None]:
    """See `kernels._entry`."""

    def scores_of(
        network: Network, stored: Held, parameters: Floats, memory: Floats, begin: int, scores: Floats
    ) -> None:
        assert sources >= 0
        chain, records = borrowed(network), borrowed(stored)
        model, values, out = borrowed((parameters, memory, scores))
        layers = chain.inputs.shape[0]
        inputs, found = block_of(values, chain, 0), block_of(values, chain, layers)
        for first in range(0, out.shape[0], BLOCK):
            count = min(BLOCK, out.shape[0] - first)
            for r in range(BLOCK):
                if r < count:
                    loaded(records, begin + first + r, inputs[r])
                else:
                    clear(inputs[r])
            forward(model, chain, values, layers)
            for r in range(count):
                for c in range(out.shape[1]):
                    out[first + r, c] = found[r, c]

    return CompiledOnce(scores_of)


_scores = _entry(digest_of_sources())
