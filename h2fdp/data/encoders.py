"""Frozen encoders: modules that make features of images, which no training changes.

The features of a record depend on that record alone, so no account has to cover them. None covers what the encoder was
trained on either, so that is declared with each epsilon (Tramer, Kamath and Carlini 2024, "Considerations for
differentially private learning with large-scale public pretraining").
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from h2fdp.arithmetic import run_arithmetic
from h2fdp.config.own_answers import FAILURES, failure, trace
from h2fdp.data.public_features import PublicFeatures, crops, of_length_1, squared
from h2fdp.data.scattering import Whitening
from h2fdp.errors import Problem, UserError

KEY = "model.encoder"
Scale = tuple[float, ...]  # of pixels: of all, or of each channel


class Encoder(nn.Module):
    """A frozen module and the form of its inputs: (n, channels, height, width) from 0 to 1 -> (n, size).

    Args:
        name: as in the file.
        source: its training data, in words.
        module: the module; it is put in eval mode.
        side: of the squares to which images are resized, in pixels; None: they stay as they are.
        mean, deviation: of its pixels, by which those from 0 to 1 are standardised.

    Attributes:
        size: number of outputs.
        channels: that it takes; 0: as they are.
        together: images of a call, where neither their number nor the others among them move a bit.
        key: a digest of all that an image's features depend on but the image.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        name: str,
        source: str,
        module: nn.Module,
        side: int | None = None,
        mean: Scale = (0.0,),
        deviation: Scale = (1.0,),
    ) -> None:
        super().__init__()
        self.name, self.source, self.side, self.encoder = name, source, side, module
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(-1, 1, 1))
        self.channels = 3 if len(mean) == 3 else 0
        self.size, self.together, self.key = 0, 1, ""
        kinds = [each.dtype for each in module.parameters() if each.is_floating_point()]
        self.kind = kinds[0] if kinds else torch.float32
        self.requires_grad_(False).eval()

    @property
    def declared(self) -> str:
        """The statement that accompanies each epsilon of a run on its features."""
        return f"{self.name}, trained on {self.source}"

    def forward(self, pixels: Tensor) -> Any:
        """The module's output; of transformers the pooled output, or that of the first token."""
        if self.channels and pixels.shape[1] != self.channels:  # grey in three colours, or colours by their mean
            pixels = pixels.mean(1, keepdim=True).expand(-1, self.channels, -1, -1)
        found = self.encoder(((pixels - self.mean) / self.deviation).to(self.kind))
        if not isinstance(found, Tensor) and hasattr(found, "last_hidden_state"):
            pooled = getattr(found, "pooler_output", None)
            found = found.last_hidden_state[:, 0] if pooled is None else pooled
        return found.float() if isinstance(found, Tensor) else found

    def features(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, size) of images (n, channels, height, width), each by itself; what is no number counts as 0.

        Raises:
            UserError: the module fails.
        """
        found = np.empty((len(images), self.size), np.float32)
        try:
            # A forward pass may keep values in its module, of one thread; parameters and buffers are shared.
            own = copy.deepcopy(self, {id(each): each for each in (*self.parameters(), *self.buffers())})
            for first in range(0, len(images), self.together):
                part = torch.from_numpy(images[first : first + self.together])
                full = torch.cat([part, part[-1:].expand(self.together - len(part), -1, -1, -1)])
                with torch.no_grad():
                    found[first : first + len(part)] = own(full)[: len(part)].numpy()
        except FAILURES as error:
            text = f"the encoder {self.name} fails where images are encoded: {failure(error)}"
            raise UserError([Problem(text, key=KEY, trace=trace(error))]) from error
        return np.nan_to_num(found, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


_PARTS, _PART_SIDE = 256, 64  # of photographs; pixels, where the encoder resizes
_AT_ONCE = 1_000  # records


class Encoded(PublicFeatures):
    """The features of images by an encoder, less their average over photographs.

    Outputs that are never negative have much in common, which is half their length. Without it more of the length that
    is clipped separates images; the average of photographs costs no budget. Fewer features than the encoder's outputs
    are those along the directions in which photographs differ most.

    Args:
        encoder: that was checked.
        shape: of an image.
        size: number of features; null, or more than outputs: as many as these.
    """

    def __init__(self, encoder: Encoder, shape: tuple[int, ...], size: int | None = None) -> None:
        self.encoder, self.key, self.declared = encoder, encoder.key, encoder.declared
        self.size = min(size or encoder.size, encoder.size)
        self.called = f"features by {encoder.name}"
        self._colours = shape[0]
        self._sides = shape[1:] if encoder.side is None else (_PART_SIDE, _PART_SIDE)

    @property
    def note(self) -> str:
        """The note of `PublicFeatures` that names the encoder."""
        text = f"model public-features: by the encoder {self.declared}; no account covers what it learned there"
        return f"{text}, so no record of a device may be among that"

    @property
    def width(self) -> int:
        """The encoder's outputs."""
        return self.encoder.size

    def rows(self, images: NDArray[np.float32]) -> NDArray[np.float16]:
        """(n, width) the encoder's outputs for images, each by itself, at length 1."""
        if (side := self.encoder.side) is not None:
            images = np.concatenate([squared(each, side, "bicubic") for each in images[:, None]]).clip(0, 1)
        return of_length_1(self.encoder.features(images)).astype(np.float16)

    def finished(self, rows: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """(n, size + 1) rows less those of photographs, at length 1, with a constant."""
        fewer = self.size < self.width
        count = max(_PARTS, 2 * self.size * fewer)
        parts = crops(count, max(self._sides), colours=self._colours)[:, :, : self._sides[0], : self._sides[1]]
        public = self.stored_rows(parts, 0.0, 255.0)
        middle = public.mean(axis=0, dtype=np.float64).astype(np.float32)
        if fewer:
            with run_arithmetic():
                axes = Whitening.of(public.astype(np.float32), self.size).axes.astype(np.float64)
            axes /= np.linalg.norm(axes, axis=0)
            # In 64 bits, so that no record moves a bit of another one that is kept.
            blocks = (rows[first : first + _AT_ONCE].astype(np.float64) for first in range(0, len(rows), _AT_ONCE))
            rows = np.concatenate([np.empty((0, self.size)), *(each @ axes for each in blocks)])
            middle = (middle @ axes).astype(np.float32)
        features = super().finished(rows)
        centred = features[:, :-1]  # changed in place: there may be a gigabyte of them
        centred -= middle
        centred /= np.maximum(np.sqrt(np.einsum("ij,ij->i", centred, centred)), 1e-12)[:, None]
        return features
