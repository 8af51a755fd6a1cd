"""A host that is lost comes again on the same kind of processor, or not at all."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from h2fdp import UserError
from h2fdp.runtime.host import HostLocation
from h2fdp.runtime.ray_nodes import _check_kind, _check_repeats


def at(**kinds):
    return HostLocation(1, "package", kinds)


def test_the_same_kind_may_redo_an_interval_and_another_may_not():
    _check_kind("host", at(host="a"), at(host="a"))
    with pytest.raises(UserError, match=r"host was lost.*another processor or with other versions"):
        _check_kind("host", at(host="a"), at(host="b"))


def test_hosts_below_may_not_change_places_on_machines_of_two_kinds():
    with pytest.raises(UserError, match="fresh draws"):
        _check_kind("edge", at(edge="a", one="a", other="b"), at(edge="a", one="b", other="a"))


@pytest.mark.parametrize(
    ("device", "noise", "refused"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
def test_what_a_gpu_computed_under_noise_is_not_computed_again(device, noise, refused):
    blueprint = SimpleNamespace(device=torch.device(device), noise_placement=SimpleNamespace(private=noise))
    with pytest.raises(UserError, match="on a GPU") if refused else nullcontext():
        _check_repeats("host:0", blueprint)
