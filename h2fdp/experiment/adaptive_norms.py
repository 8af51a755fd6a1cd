"""Where in a network a clip norm may follow a quantile of records' gradients."""

from __future__ import annotations

from h2fdp.config import Document
from h2fdp.errors import UserError
from h2fdp.experiment.rhythm import aggregation_times
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.privacy import noise_placement_of
from h2fdp.topology import Topology


def check_adaptive_clipping(experiment: ExperimentFile, topology: Topology, document: Document | None = None) -> None:
    """Refuse several steps between two releases of a subnet whose noise is on uploads or averages.

    After the step that draws a record its device stands elsewhere, and all other records may vote otherwise: no small
    noise hides that. Where every step is noisy, its votes are noisy too.

    Raises:
        UserError: such a subnet, with the rhythm that would do.
    """
    training, placement = experiment.training, noise_placement_of(experiment.method.privacy)
    if training.adaptive is None or placement.clips == "update" or training.local_steps is None:
        return
    times, star = aggregation_times(experiment, topology), experiment.method.topology == "star"
    for subnet in topology.as_star().subnets if star else topology.subnets:
        if placement.local_randomizer(subnet.trust, training.first_clip_norm, by_record=True).noisy_steps:
            continue
        longest = max(times.of(subnet.name).segments(training.local_steps))
        if longest > 1:
            text = (
                f"the noise of {subnet.name} is on {longest} steps together, after the first of which every record may "
                "vote otherwise; expected 1 (or noise: steps, dp-sgd), or a number as training.clip_norm"
            )
            key = "aggregate_every" if training.aggregate_every is not None and not star else "local_steps"
            where = "" if document is None else document.where(("training", key))
            raise UserError(text, where, f"training.{key}")
