"""The job in Flower: a ClientApp and a ServerApp on the Ray simulation engine, one client at a time on each core.

Clients hold their records as float tensors, cut batches by indexing (a DataLoader would be slower) and keep one module
for each Ray actor. The server averages with Flower's own FedAvg strategy; nothing is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks.rivals.job import ByDevice, Job, Trained, drawn_batches, initial_model, loss

PACKAGES = ("flwr", "ray")
_LAST = torch.channels_last
client = ClientApp()


@cache
def _held(line: str) -> tuple[Job, nn.Module, ByDevice]:
    """What an actor keeps from client to client."""
    torch.set_num_threads(1)
    job = Job.from_json(line)
    return job, initial_model(job.model), ByDevice(job)


@client.train()
def local_steps(message: Message, context: Context) -> Message:
    """One device's part of a round."""
    job, module, devices = _held(message.content["config"]["job"])
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = devices[int(context.node_config["partition-id"])]
    optimizer = torch.optim.SGD(module.parameters(), lr=job.step_size)
    for batch in drawn_batches(job):
        optimizer.zero_grad()
        drawn = x[batch].contiguous(memory_format=_LAST if x.dim() == 4 else torch.contiguous_format)
        loss(module(drawn), y[batch]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": job.records})
    return Message(RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}), reply_to=message)


class _Timed(FedAvg):
    """Notes when each round's global model is there."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.ends: list[float] = []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        replies = list(replies)
        assert not any(reply.has_error() for reply in replies), next(r.error for r in replies if r.has_error())
        aggregated = super().aggregate_train(server_round, replies)
        self.ends.append(time.time())
        return aggregated


def train(job: Job) -> Trained:
    """Simulate with as many actors as the job has cores."""
    found: list[Trained] = []
    server = ServerApp()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        strategy = _Timed(
            fraction_train=job.participants / job.devices,
            fraction_evaluate=0.0,
            min_train_nodes=job.participants,
            min_available_nodes=job.devices,
        )
        arrays = ArrayRecord(initial_model(job.model).state_dict())
        result = strategy.start(grid, arrays, job.rounds, train_config=ConfigRecord({"job": job.to_json()}))
        state = result.arrays.to_torch_state_dict()
        found.append(Trained(strategy.ends, torch.cat([held.flatten() for held in state.values()])))

    resources = {"init_args": {"num_cpus": job.workers}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=job.devices, backend_config=resources)
    return found[0]
