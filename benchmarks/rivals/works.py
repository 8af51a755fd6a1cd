"""What is done side by side, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.rivals.shapes import EACH_ROUND, SHAPES


@dataclass(frozen=True)
class System:
    """Who does the work: the name in the table, the program, cores, and the subnets and precision of h2fdp's run."""

    name: str
    program: str
    workers: int
    subnets: int = 1
    precision: str = "float32"


@dataclass(frozen=True)
class Work:
    """One federated averaging, timed, and its deterministic small sister, compared.

    Attributes:
        same: devices, local steps and rounds of the latter; all devices take part, with all records at each step.
    """

    title: str
    model: str
    devices: int
    participants: int
    records: int
    rounds: int
    local_steps: int
    batch_size: int
    same: tuple[int, int, int]
    systems: tuple[System, ...]


STAR, FLOWER, PFL, JAX = (
    System("h2fdp, a star", "own_app", 1),
    System("Flower", "flower_app", 2),
    System("pfl", "pfl_app", 1),
    System("JAX", "jax_app", 1),
)
WORKS = (
    Work(
        "FedAvg on Fashion-MNIST's shape, softmax regression",
        "softmax",
        devices=50,
        participants=50,
        records=1200,
        rounds=23,
        local_steps=20,
        batch_size=32,
        same=(50, 3, 3),
        systems=(
            STAR,
            System("h2fdp, 10 subnets", "own_app", 1, 10),
            System("h2fdp, 10 subnets", "own_app", 2, 10),
            FLOWER,
            PFL,
            JAX,
        ),
    ),
    Work(
        "pfl's benchmark on CIFAR-10's shape, two convolutions (its `simple_cnn` without dropout)",
        "two convolutions",
        devices=1000,
        participants=50,
        records=50,
        rounds=6,
        local_steps=5,
        batch_size=10,
        same=(10, 2, 2),
        systems=(
            STAR,
            System("h2fdp, a star, bfloat16", "own_app", 1, precision="bfloat16"),
            System("h2fdp, 2 subnets", "own_app", 2, 2),
            System("h2fdp, 2 subnets, bfloat16", "own_app", 2, 2, "bfloat16"),
            FLOWER,
            PFL,
            JAX,
        ),
    ),
)
WORKS += tuple(
    Work(
        f"FLUTE's shape {name}",
        name,
        devices=shape.devices,
        participants=EACH_ROUND,
        records=shape.records,
        rounds=6,
        local_steps=shape.steps,
        batch_size=shape.batch,
        same=(4, 2, 2),
        systems=(STAR, System("h2fdp, a star", "own_app", 2), FLOWER, PFL),
    )
    for name, shape in SHAPES.items()
)
QUICK: dict[str, dict[str, Any]] = {
    "softmax": {"devices": 10, "participants": 10, "records": 100, "rounds": 5, "local_steps": 3, "same": (10, 2, 2)},
    "two convolutions": {"devices": 20, "participants": 4, "rounds": 5},
    **{name: {"devices": 10, "records": 4, "rounds": 5, "batch_size": 4, "local_steps": 1} for name in SHAPES},
}
STEP_SIZE = 0.1
NOTES = (
    "All start from the same model, on the same records, with the same torch (JAX computes by itself); nobody "
    "evaluates in the rounds that are timed. h2fdp, Flower and JAX draw batches at random; pfl takes them as they lie.",
    "Flower: ClientApp and ServerApp, `run_simulation` on Ray, one CPU for each client, so as many actors as cores; "
    "records in each actor's memory, no DataLoader.",
    "pfl: SimulatedBackend in one process, records as tensors, `Dataset` objects kept with their batches cut; images "
    "with channels last, as in its benchmark (for Flower too).",
    "JAX: records in memory as float32, one thread; softmax regression as one compiled round, a `vmap` over devices of "
    "a `lax.scan` over steps. With convolutions the scan is unrolled and Python calls it device by device: inside "
    "loops of XLA (`lax.map`) they are far slower on a CPU.",
    "bfloat16 (`training.precision`): the factors of convolutions' products have 8 bits in place of 24, sums keep 32; "
    "so these models differ from the others by more than rounding of float32.",
    "Peak MB: of a system's processes together, proportional set sizes (shared pages count once), read twice a second; "
    "or the highest resident size of one of them, if that is more. torch, which every program imports, is in it.",
    "h2fdp: `Experiment.run` as users call it, with ledger, metrics and run directory; subnets without aggregations of "
    "their own, which is FedAvg again, let it use more than one core.",
)
