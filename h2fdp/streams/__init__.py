"""Randomness of a run: streams by name, and fast uniform and normal numbers from them."""

from h2fdp.streams.keyed import Streams, generator_of
from h2fdp.streams.normals import last_standard_normals, standard_normal_rows, standard_normals
from h2fdp.streams.uniforms import uniform_rows

__all__ = [
    "Streams",
    "generator_of",
    "last_standard_normals",
    "standard_normal_rows",
    "standard_normals",
    "uniform_rows",
]
