"""A host that is lost comes again on the same kind of processor, or not at all."""

import pytest

from h2fdp import UserError
from h2fdp.runtime.host import Whereabouts
from h2fdp.runtime.ray_team import _check_kind


def at(*kinds):
    return Whereabouts(1, "machine", "package", frozenset(kinds))


def test_the_same_kind_may_redo_an_interval_and_another_may_not():
    _check_kind("host:0", at("a"), at("a"))
    with pytest.raises(UserError, match=r"host:0 was lost.*another kind of processor"):
        _check_kind("host:0", at("a"), at("b"))
    with pytest.raises(UserError, match="fresh draws"):
        _check_kind("edge:library", at("a"), at("a", "b"))
