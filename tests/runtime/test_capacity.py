"""How many hosts fit, what each takes, and what is told when they do not fit."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2fdp import Experiment, Topology, UserError
from h2fdp.runtime import start_hosts
from h2fdp.runtime.placement import (
    PLACEMENTS,
    HostResources,
    Machine,
    RuntimeSection,
    chosen_backend,
    even_cpus,
    fitting,
    number_of_hosts,
    shares,
    smallest_number_of_hosts,
)
from tests.networks import placed

TWO = [Machine(cpus=2, memory_gib=10)]


def hosts(machines=TWO, smallest=1, **section):
    section = RuntimeSection(**section)
    return number_of_hosts(section, machines, shares(section, machines, smallest), smallest)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=5), st.integers(1, 200))
def test_even_cpus_leave_room_for_all_and_hardly_more_would(cpus, count):
    machines = [Machine(each) for each in cpus]
    share = even_cpus(machines, count)
    assert fitting(machines, HostResources(share)) >= count
    assert share == 1 or fitting(machines, HostResources(share + 2e-4)) < count


def test_more_processes_than_memory_holds_are_refused():
    with pytest.raises(UserError, match=r"placement: 100 hosts take at least 0\.17 GiB each, and 10 GiB are available"):
        hosts(smallest=100, placement="entity")


@pytest.mark.parametrize("placement", ["subnet", "entity"])
def test_hosts_of_a_placement_are_counted_before_they_are_made(placement):
    sizes = {"a": 1, "b": 2, "c": 3, "d": 1}
    subnets = [placed(name, True, [1.0] * size, [1.0] * size) for name, size in sizes.items()]
    topology = Topology("net", tuple(subnets))
    places = [place for top in PLACEMENTS[placement](topology, 1) for place in top.all()]
    assert len(places) == smallest_number_of_hosts(placement, topology)
    held = [number for place in places if place.kind in ("subnets", "edge") for number in place.numbers]
    assert sorted(held) == [0, 1, 2, 3]
    assert len({place.name for place in places}) == len(places)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"address": "head"}, 'runtime.address: expected auto or HOST:PORT, found "head"'),
        ({"backend": "inline", "placement": "subnet"}, "runtime.placement: backend: inline is one process"),
        ({"placement": "entity", "hosts": 3}, "runtime.hosts: expected auto with placement: entity"),
        ({"placement": "scattered"}, "runtime.placement: expected one of packed, subnet, entity"),
    ],
)
def test_what_contradicts_itself_is_told(settings, words):
    with pytest.raises(UserError) as told:
        Experiment(runtime=settings)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("settings", "backend"),
    [
        ({}, "inline"),
        ({"hosts": 2}, "ray"),
        ({"address": "auto"}, "ray"),
        ({"backend": "inline", "gpus_per_host": 1}, "inline"),
    ],
)
def test_auto_is_one_process_unless_something_asks_for_ray(settings, backend):
    assert chosen_backend(RuntimeSection(**settings)) == backend


def test_without_ray_a_run_is_told_how_to_do_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = r"runtime\.backend: Ray is not installed; .* --set runtime\.backend=inline"
    with pytest.raises(UserError, match=words), start_hosts(None, RuntimeSection(backend="ray")):
        pass
