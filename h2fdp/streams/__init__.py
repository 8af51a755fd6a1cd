"""Randomness of a run: streams by name, and fast normal numbers from them."""

from h2fdp.streams.keyed import Streams, generator_of
from h2fdp.streams.normals import standard_normal_rows, standard_normals

__all__ = ["Streams", "generator_of", "standard_normal_rows", "standard_normals"]
