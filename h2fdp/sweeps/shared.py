"""What the runs of one process have in common is made once: drawn topologies, the records of data sets."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Generic, TypeVar

from h2fdp.config import Document
from h2fdp.config.own_parts import OwnPart
from h2fdp.data import DataRequest, Pool
from h2fdp.experiment.file import Settings, draw_topology, experiment_from
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.records.digests import hash_of
from h2fdp.run.data_source import configured_data
from h2fdp.run.identity import code_of
from h2fdp.run.prepare import prepare
from h2fdp.run.setup import RunSetup
from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.topology.yaml_text import yaml_text

Value = TypeVar("Value")
MOST_TOPOLOGIES, MOST_POOLS = 8, 2  # a pool may take 200 MB


class LeastRecentlyUsed(Generic[Value]):
    """The values that were asked for last, each made once as long as it is kept.

    >>> kept = LeastRecentlyUsed[str](most=1)
    >>> [kept.get(key, lambda: made) for key, made in (("a", "first"), ("a", "second"), ("b", "third"))]
    ['first', 'first', 'third']
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, which determines it."""
        if key not in self._values:
            self._values[key] = make()
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)
        return self._values[key]


def _digest_of(topology: Topology) -> str:
    own_code = code_of(part.part for part in topology.radio.own_parts)
    return hash_of([yaml_text(topology), own_code] if own_code else [yaml_text(topology)])


class SharedInputs:
    """Experiments that share what equal parts of their configurations determine. Files are taken not to change."""

    def __init__(self) -> None:
        self._topologies = LeastRecentlyUsed[Topology](MOST_TOPOLOGIES)
        self._networks = LeastRecentlyUsed[tuple[Topology, str]](MOST_TOPOLOGIES)
        self._pools = LeastRecentlyUsed[Pool](MOST_POOLS)

    def experiment(self, document: Document, settings: Settings) -> tuple[ExperimentFile, Topology]:
        """See `experiment_from`; the document stays as it is."""
        return experiment_from(document.copy(), settings, draw=self._topology)

    def network(self, topology: Topology) -> str:
        """A digest of a topology as it is written, and of the code of its own parts."""
        # What is kept has the topology itself, so that no other one can have its number.
        return self._networks.get(id(topology), lambda: (topology, _digest_of(topology)))[1]

    def prepare(self, config: ExperimentFile, topology: Topology, root: Path | None) -> RunSetup:
        return prepare(config, topology, data_root=root, data_source=configured_data(config, self._pool))

    def request(self, config: ExperimentFile, topology: Topology, root: Path | None) -> DataRequest | None:
        """What a run asks of its data set; None of a user's own function."""
        if isinstance(config.data, OwnPart):
            return None
        groups = [(subnet.name, subnet.size) for subnet in topology.subnets]
        return DataRequest(config.data, groups, Streams(config.seed), root)

    def read(self, request: DataRequest) -> None:
        """Read the records of a data set, to find out whether that is possible; drawn ones always are.

        Raises:
            UserError: it is not.
        """
        if request.options.on_disk:
            self._pool(request)

    def _topology(self, document: Document, wanted: str | dict[str, Any], seed: int, settings: Settings) -> Topology:
        values = [(key, value) for key, value, _ in settings]
        key = json.dumps([str(document.folder), wanted, values, seed])
        return self._topologies.get(key, lambda: draw_topology(document, wanted, seed, settings))

    def _pool(self, request: DataRequest) -> Pool:
        return self._pools.get(request.origin, request.read)
