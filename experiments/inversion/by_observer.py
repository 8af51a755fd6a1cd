"""Gradient inversion by observer: which picture each node can draw from one message, with and without noise.

    python -m experiments.inversion.by_observer --data-root DIR [--subnets 20] [--seed 1] [--gains]

Each device has one image. One interval of one step, from a model of zeros, is run for each network and epsilon.
Messages are those that pass between the nodes of the run; who sees which of them is what the audit of runs goes by. The
image of the first device of each subnet is attacked (`pictures_from_gradients.py`). The command writes the table of
inversion.md, and the picture; with `--gains` it says instead by how much pictures from five devices beat a guess.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.inversion.estimate import Images, Knowledge, decibels, exact
from experiments.programs import between_markers
from h2fdp import Experiment, Topology
from h2fdp.audit.instrumented_run import IntervalTranscript, RecordingNodes, SubnetTranscript, observations
from h2fdp.data.images import FashionMnist
from h2fdp.data.source import DataRequest
from h2fdp.network import Subnet, Trust
from h2fdp.privacy.places import Observer
from h2fdp.protocol import InProcessNodes
from h2fdp.run.setup import RunSetup
from h2fdp.streams import Streams

PAGE = Path(__file__).with_name("README.md")
PICTURE = PAGE.parent / "figures" / "inversion.png"
COMMAND = "python -m experiments.inversion.by_observer"
CLIP_NORM = 2.0  # below all gradients of these images, so that noise hides what is there and no more
EPSILONS = (math.inf, 100.0, 10.0, 1.0)  # the first: no noise
SHOWN = 17  # the subnet whose attacked image is drawn


@dataclass(frozen=True)
class View:
    """What one observer has of a device.

    Attributes:
        who, sees: for a reader.
        trust: of the device's edge server.
        devices: of a subnet.
        observer: as accounts call it; None for a trusted edge server, which has raw uploads and no account.
    """

    who: str
    sees: str
    trust: Trust
    devices: int
    observer: Observer | None


VIEWS = (
    View("trusted edge server", "each gradient as it is", "trusted", 5, None),
    View("untrusted edge server", "each noisy gradient", "untrusted", 5, "edge"),
    View("edge server and cloud, secure sums", "the sum of 5 noisy gradients", "secure-sum", 5, "edge"),
    View("cloud above a trusted edge server", "a noisy average of 5", "trusted", 5, "cloud"),
    View("cloud above an untrusted edge server", "an average of 5 noisy gradients", "untrusted", 5, "cloud"),
    View("edge server and cloud, secure sums", "the sum of 50 noisy gradients", "secure-sum", 50, "edge"),
)


def transcript(images: Images, trust: Trust, devices: int, epsilon: float, seed: int = 1) -> IntervalTranscript:
    """All that passed in one interval of a network whose device i of subnet c has image c * devices + i.

    Args:
        epsilon: of every observer, at delta 1e-5; infinite: `hfl`, which adds no noise, in the same network.
    """
    radio = {"distance_m": np.full(devices, 100.0), "power_dbm": np.full(devices, 20.0)}
    subnets = tuple(Subnet(f"edge-{c}", trust, radio) for c in range(len(images.y) // devices))
    x, y = images.x.astype(np.float32), images.y
    numbers = {f"{each.name}/{i + 1}": c * devices + i for c, each in enumerate(subnets) for i in range(devices)}

    def prepared(**method: Any) -> RunSetup:
        return Experiment(
            Topology("inversion", subnets), lambda device: (x[numbers[device]][None], y[numbers[device]][None]),
            test_data=(x, y), model="softmax", training="paper", intervals=1, local_steps=1, aggregate_every=1,
            step_size=1.0, step_decay="none", batch_size=None, sampling_rate=1.0, clip_norm=CLIP_NORM,
            clip_scope="record", noise_key="seed", seed=seed, **method,
        ).prepare()  # fmt: skip

    noisy = math.isfinite(epsilon)
    target = {"epsilon": epsilon if noisy else 1.0, "delta": 1e-5, "calibration": "accounted"}
    private = prepared(method="h2fdp", **target)
    run = private if noisy else prepared(method="hfl")
    below = {
        each.name: RecordingNodes(InProcessNodes({"devices": run.blueprint.device_group(c)}), 0)
        for c, each in enumerate(subnets)
    }
    servers = {name: replace(run.blueprint.edge_server(c), groups=below[name]) for c, name in enumerate(below)}
    edges = RecordingNodes(InProcessNodes(servers), 0)
    cloud = replace(run, initial=torch.zeros_like(run.initial)).cloud(edges)
    plan = cloud.plan(0)
    cloud.run_interval(plan)
    ((start, _, sent),) = edges.heard
    found = []
    for c, (name, part) in enumerate(plan.subnets.items()):
        ((_, _, uploads),) = below[name].heard
        place = private.blueprint.facts[c].place  # who sees what; without noise, the same nodes see the same messages
        assert place is not None, "the method is private"
        found.append(
            SubnetTranscript(
                place=place, first_device=c * devices, rows=part.rows, weights=part.weights,
                share=float(plan.weights[c]), steps=part.tasks.steps,
                noise_std=part.noise_std if noisy else np.zeros((1, 1)), received=start[None],
                uploads=uploads["devices"][None], upload=sent[name],
            )
        )  # fmt: skip
    return IntervalTranscript(plan.decision.step_size, tuple(found), start - cloud.model.double().numpy())


def pictures(view: View, heard: IntervalTranscript, images: Images, knowledge: Knowledge) -> Iterator[np.ndarray]:
    """The observer's picture of the first device of each subnet; it knows the labels and lengths of the images."""
    first, shrunk = [subnet.first_device for subnet in heard.subnets], images.shrunk(CLIP_NORM)
    if view.observer is None:
        for device, subnet in zip(first, heard.subnets, strict=True):
            yield knowledge.picture(
                subnet.uploads[0, 0], 0.0, shrunk[device : device + 1], images.y[device : device + 1]
            )
        return
    for seen in observations(view.observer, heard, first, lambda device: device):
        inside = slice(seen.device, seen.device + (1 if seen.weight == 1 else view.devices))
        yield knowledge.picture(seen.values, seen.noise_std, seen.weight * shrunk[inside], images.y[inside])


@dataclass(frozen=True)
class Study:
    """The pictures of all observers.

    Attributes:
        originals, guesses: (n, pixels) the attacked images, and the mean images of their labels.
        pictures: (n, pixels) by observer and epsilon.
    """

    originals: np.ndarray
    guesses: np.ndarray
    pictures: dict[tuple[View, float], np.ndarray]

    @classmethod
    def of(cls, public: Images, private: Images, subnets: int, seed: int = 1, views: Sequence[View] = VIEWS) -> Study:
        """Of so many subnets with private images at random; the sum of 50 has the images of the sum of 5, and more."""
        knowledge, most = Knowledge.of(public), max(view.devices for view in VIEWS)
        chosen = np.random.default_rng(seed).permutation(len(private.y))[: subnets * most].reshape(subnets, most)

        def of_subnets(devices: int) -> Images:
            places = chosen[:, :devices].ravel()
            return Images(private.x[places], private.y[places])

        @cache
        def heard(trust: Trust, devices: int, epsilon: float) -> IntervalTranscript:
            return transcript(of_subnets(devices), trust, devices, epsilon, seed)

        def seen(view: View, epsilon: float) -> np.ndarray:
            passed = heard(view.trust, view.devices, epsilon)
            return np.stack(list(pictures(view, passed, of_subnets(view.devices), knowledge)))

        found = {(view, epsilon): seen(view, epsilon) for view in views for epsilon in EPSILONS}
        first = of_subnets(1)
        return cls(first.x, knowledge.means[first.y], found)

    def text(self, pictures: np.ndarray, parting: str = ", ") -> str:
        """How many are exact, where any is, and the median of the others in dB."""
        right, ratios = exact(pictures, self.originals), decibels(pictures, self.originals)
        if right.all():
            return "exact"
        others = f"{np.median(ratios[~right]):.1f} dB"
        return f"{right.sum()} of {len(right)} exact{parting}others {others}" if right.any() else others

    def table(self) -> Iterator[str]:
        """A row for each observer: medians over the attacked images."""
        yield "| observer | receives | no noise | " + " | ".join(f"epsilon {each:g}" for each in EPSILONS[1:]) + " |"
        yield "|---" * (2 + len(EPSILONS)) + "|"
        for view in VIEWS:
            cells = [self.text(self.pictures[view, epsilon]) for epsilon in EPSILONS]
            yield f"| {view.who} | {view.sees} | " + " | ".join(cells) + " |"
        yield f"| a guess by the label | nothing | {' | '.join([self.text(self.guesses)] * len(EPSILONS))} |"

    def gains(self) -> Iterator[str]:
        """By how much pictures are closer than guesses, over the attacked images: the mean and its 95 % interval."""
        for (view, epsilon), found in self.pictures.items():
            if math.isfinite(epsilon):
                more = decibels(found, self.originals) - decibels(self.guesses, self.originals)
                half = 1.96 * more.std(ddof=1) / math.sqrt(len(more))
                yield f"{view.who}, epsilon {epsilon:g}: {more.mean():+.2f} ± {half:.2f} dB"

    def draw(self, path: Path, shown: int) -> None:
        """A row for each observer, of one attacked image; below each picture the numbers of the table."""
        noises = ["no noise", *(rf"$\epsilon$ = {each:g}" for each in EPSILONS[1:])]
        heads = ["original", *noises, "guess\nby the label"]
        figure = Figure(figsize=(9.6, 10.6), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        figure.suptitle("What each observer can draw of a device's image, from what it receives of one training step")
        side = math.isqrt(self.originals.shape[1])
        for row, view in zip(figure.subplots(len(VIEWS), len(heads)), VIEWS, strict=True):
            cells = [self.originals, *(self.pictures[view, epsilon] for epsilon in EPSILONS), self.guesses]
            for number, (axes, images) in enumerate(zip(row, cells, strict=True)):
                axes.imshow(images[shown].reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
                axes.set(xticks=[], yticks=[], xlabel=self.text(images, "\n") if number else "\n")
                axes.xaxis.label.set_size(8)
                if number and exact(images, self.originals)[shown]:
                    axes.spines[:].set(color="#c00000", linewidth=2.5)
                if view is VIEWS[0]:
                    axes.set_title(heads[number], fontsize=10)
            row[0].set_ylabel(f"{view.who}\n({view.sees})", rotation=0, ha="right", va="center", fontsize=9)
        note = f"Numbers: {len(self.originals)} images like this one; dB: median likeness to the original (PSNR)."
        figure.supxlabel(
            f"In brackets: what the observer receives. Red frame: all pixels are right. {note}", fontsize=8
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)


def fashion_mnist(root: Path | None) -> tuple[Images, Images]:
    """Its training and its test images, flat."""
    options = FashionMnist.model_validate({"name": "fashion-mnist"})
    pool = options.load(DataRequest(options, (), Streams(1), root))
    train, test = (Images(each.x.reshape(len(each.y), -1) / 255, each.y) for each in (pool.train, pool.test))
    return train, test


def main() -> None:
    """Attack, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="folder of the data sets; by default H2FDP_DATA or a cache")
    parser.add_argument("--subnets", type=int, default=20, help="of each network; one image of each is attacked")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gains", action="store_true")
    asked = parser.parse_args()
    if asked.gains:
        views = [view for view in VIEWS if view.observer and view.devices == 5]
        print(*Study.of(*fashion_mnist(asked.data_root), asked.subnets, asked.seed, views).gains(), sep="\n")
        return
    study = Study.of(*fashion_mnist(asked.data_root), asked.subnets, asked.seed)
    study.draw(PICTURE, SHOWN % asked.subnets)
    PAGE.write_text(between_markers(PAGE.read_text(), COMMAND, study.table()))


if __name__ == "__main__":
    main()
