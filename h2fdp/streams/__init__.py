"""Randomness of a run: streams by name, and fast normal numbers from them."""

from h2fdp.streams.keyed import Streams, generator_of
from h2fdp.streams.normals import last_standard_normals, standard_normal_rows, standard_normals

__all__ = ["Streams", "generator_of", "last_standard_normals", "standard_normal_rows", "standard_normals"]
