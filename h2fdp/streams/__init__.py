"""Randomness of a run: streams by name, and fast normal numbers from them."""

from h2fdp.streams.keyed import Streams
from h2fdp.streams.normals import standard_normals

__all__ = ["Streams", "standard_normals"]
