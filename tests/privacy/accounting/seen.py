"""Releases as vectors that somebody sees one by one, for tests of lower bounds."""

from h2fdp.privacy.accounting import SeenUpload, attained

RECORDS = 1_000_000  # so many that a batch is never empty


def alone(release, effect=None):
    """A release of its own: a vector of one upload under its noise."""
    return (
        SeenUpload(
            release.noise_multiplier, release.steps, release.sampling_rate, release.sampling, effect or release.bound
        ),
    )


def attained_alone(composition, delta, records=RECORDS):
    """What is attained where each release is seen by itself."""
    return attained({alone(release): count for release, count in composition.items()}, records, delta)
