"""Noise of another scale in each layer, at one account: the run trains w / s in place of the parameters w.

All that the protocol clips, adds noise to, and sends is v = w / s. Noise of one deviation sigma on v is noise of s_l
sigma on layer l, and a gradient along v is s times the gradient along w, so that the clip norm bounds the length of
(s_l |g_l|)_l. The account knows the ratio of noise to clip norm alone and is the same for all scales. A step of size
eta along v is one of s_l^2 eta along w.
Source: clipping and noise by layer, McMahan et al. 2018 (learning differentially private recurrent language models).
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

import torch
from torch import Tensor, nn
from torch.func import functional_call


class ScaledLayers(nn.Module):
    """A module whose parameters w are trained as v = w / s.

    Args:
        module: any module, frozen parameters included.
        scales: the beginning of a parameter's name -> s, above 0; of several that fit the longest counts, and 1 where
            none does.

    Raises:
        ValueError: a scale that is not above 0, or the beginning of no trained parameter's name.
    """

    def __init__(self, module: nn.Module, scales: Mapping[str, float]) -> None:
        super().__init__()
        trained = [name for name, each in module.named_parameters() if each.requires_grad]
        for start, scale in scales.items():
            if not scale > 0:
                raise ValueError(f"expected a scale above 0 for {start}, found {scale}")
            if not any(name.startswith(start) for name in trained):
                raise ValueError(f"expected the beginning of one of {', '.join(trained)}; found {start}")
        self.module = module
        self.scales = {name: _scale_of(name, scales) for name in trained}
        with torch.no_grad():
            for name, scale in self.scales.items():
                module.get_parameter(name).div_(scale)

    def forward(self, records: Tensor) -> Tensor:
        """(n, classes) scores of the module at w = s v."""
        # Not `get_parameter`: the engines put tensors of many devices in the place of parameters.
        weights = {name: scale * attrgetter(name)(self.module) for name, scale in self.scales.items()}
        return functional_call(self.module, weights, (records,))


def _scale_of(name: str, scales: Mapping[str, float]) -> float:
    fitting = [start for start in scales if name.startswith(start)]
    return scales[max(fitting, key=len)] if fitting else 1.0


class Perceptron(ScaledLayers):
    """One hidden layer, with a scale of noise for each of the two layers.

    Args:
        inputs, hidden, classes: numbers of units; `inputs` of a flattened record.
        body, head: s of the first and of the last layer.
    """

    def __init__(
        self, inputs: int = 64, hidden: int = 32, classes: int = 10, body: float = 1.0, head: float = 1.0
    ) -> None:
        layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))
        super().__init__(layers, {"1.": body, "3.": head})
