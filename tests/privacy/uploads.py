"""One upload of a subnet in numbers that can be worked with by hand, the noise that it gets, and its rows."""

import numpy as np

from h2fdp.privacy import Holder, Merged, Place, Span, Uploads, releases, vectors_of_observers
from h2fdp.privacy.places import Segment

PLACES = {
    "none": None,
    "step": Place(Holder.STEP),
    "device": Place(Holder.DEVICE),
    "share": Place(Holder.SHARE),
    "edge": Place(Holder.NODE),
    "cloud": Place(Holder.NODE, 1),
}


def uploads_of(place, weights, rates, levels, **changes):
    """What `place` says of a subnet, under noise of these levels; `interval` is from 1, as in the ledger."""
    values = {
        "edge": "a",
        "place": PLACES[place] if isinstance(place, str) else place,
        "rows": np.arange(len(weights)),
        "steps": np.full(len(weights), 4),
        "weights": np.asarray(weights),
        "sampling_rates": np.asarray(rates),
        "records": np.full(len(rates), 9),
        "levels": np.asarray(levels, dtype=float),
        "sampling": "poisson",
    }
    first, kind = changes.pop("first_slot", 0), changes.pop("kind", "global")
    at = changes.pop("interval", 1) - 1, first, first + 4, kind
    segment = Segment(*at, step_size=changes.pop("step_size", 0.1))
    return Uploads(segment=segment, **values | changes)


def levels_of(mechanism, place, weights, rates, records, segments=(4,), step_size=0.1):
    """(segments, n) the noise that a mechanism asks for."""
    levels = []
    for segment in Segment.row(0, 0, segments, step_size):
        span = Span(PLACES[place] if isinstance(place, str) else place, None, segment, sum(segments))
        exposures = mechanism.exposures(span, np.asarray(rates), np.asarray(records))
        levels.append(mechanism.unit(span) * span.place.levels(np.asarray(weights), exposures))
    return np.stack(levels)


def rows_of(mechanism, uploads, above=(), peers=True, edge_is_cloud=False, cloud=None):
    """The ledger's rows; `cloud`: the subnet's share and the cloud's noise."""
    levels = vectors_of_observers(uploads.place, edge_is_cloud=edge_is_cloud)
    above = (*above, *([] if cloud is None else [Merged(*cloud, 0.0)]))
    kind = "step" if uploads.place.holder is Holder.STEP else mechanism.kind(uploads.segment.kind)
    return list(releases(uploads, kind, mechanism.sensitivities(uploads), above, levels, peers))
