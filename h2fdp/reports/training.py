"""Accuracy, loss and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from h2fdp.reports.figures import Curve, CurveChart, Figure, ReportSection, Series, Table, number


def known(series: Series, column: str) -> bool:
    """Whether there is anything in a column."""
    return any(value is not None for value in series.columns.get(column, ()))


def curves_of(
    every: Sequence[Series], column: str, label: str, style: int = 0, words: str | None = None, stepped: bool = False
) -> list[Curve]:
    """A column of every series that has it; with a band where the series has its ends (`_low`, `_high`)."""
    found = []
    for place, series in enumerate(every):
        if known(series, column):
            ends = (f"{column}_low", f"{column}_high")
            band = ends if all(known(series, end) for end in ends) else None
            said = words if words is not None and words in series.columns else None
            found.append(Curve(place, column, label, style, band, said, stepped))
    return found


def training(every: Sequence[Series], bands: str) -> ReportSection:
    """What was learned, and what it cost.

    Args:
        bands: a sentence about the bands around the curves; empty where there are none.
    """
    figures = [
        CurveChart(
            "accuracy",
            "Accuracy",
            f"Share of the test data that the global model classifies correctly, after each interval.{bands}",
            "test accuracy",
            [*curves_of(every, "accuracy", "test"), *curves_of(every, "validation_accuracy", "validation", 1)],
        ),
        CurveChart(
            "loss",
            "Loss",
            f"Mean loss of the global model on the test data, after each interval.{bands}",
            "test loss",
            [*curves_of(every, "loss", "test"), *curves_of(every, "validation_loss", "validation", 1)],
            scale="linear",
        ),
        CurveChart(
            "energy",
            "Energy",
            f"Energy of messages and local steps so far, in joules, summed over all nodes.{bands}",
            "energy so far (J)",
            curves_of(every, "energy_j", "energy"),
            scale="linear",
        ),
        CurveChart(
            "clock",
            "Time",
            f"Seconds on the simulated clock of the network, on which subnets work in parallel.{bands}",
            "simulated time (s)",
            curves_of(every, "clock_s", "simulated time"),
            scale="linear",
        ),
    ]
    return ReportSection("training", "Training and its cost", "", [figure for figure in figures if figure.curves])


def fairness(every: Sequence[Series]) -> ReportSection:
    """How evenly the devices are served."""
    curves = [
        *curves_of(every, "accuracy_trusted", "under trusted edge servers", 0),
        *curves_of(every, "accuracy_untrusted", "under untrusted edge servers", 1),
        *curves_of(every, "accuracy_secure-sum", "under secure sums", 2),
    ]
    caption = (
        "Accuracy of the final model on each device's own records, devices sorted: at 0.1 along the axis, a tenth of "
        "the devices have at most the accuracy of the curve. A flat curve is fair."
    )
    figure = CurveChart(
        "devices",
        "Accuracy over devices",
        caption,
        "accuracy on own records",
        curves,
        x="share",
        x_title="share of the devices",
    )
    return ReportSection("fairness", "Devices", "", [figure] if curves else [])


def schedule(
    every: Sequence[Series],
    bands: str,
    heats: Sequence[Figure] = (),
    folded: Mapping[str, Table | str] | None = None,
) -> ReportSection:
    """Interval length, participation and step size as they were chosen; what never changes is said in a sentence."""
    why = " Point at a curve of a controlled run for the controller's reasons." if _reasoned(every) else ""
    figures = [
        CurveChart(
            "tau",
            "Interval length",
            f"Local steps of each interval (tau_k).{bands}{why}",
            "local steps (tau_k)",
            curves_of(every, "local_steps", "local steps", words="reason", stepped=True),
        ),
        CurveChart(
            "participants",
            "Participation",
            f"Devices that contributed to an average in each interval, after drop-outs.{bands}",
            "devices",
            curves_of(every, "participants", "devices", words="reason", stepped=True),
        ),
        CurveChart(
            "step-size",
            "Step size",
            f"Step size of the devices in each interval (eta_k).{bands}",
            "step size (eta_k)",
            curves_of(every, "step_size", "step size", words="reason", stepped=True),
            scale="linear",
        ),
    ]
    terms = ("energy", "delay", "gap")
    parts = [
        curve for style, term in enumerate(terms) for curve in curves_of(every, f"term_{term}", term, style, "reason")
    ]
    if parts:
        figures.append(
            CurveChart(
                "terms",
                "Terms of the controller's objective",
                "The three weighted terms of problem P at the chosen interval length and participation: energy and "
                "delay of what remains of the run, and the gap that noise leaves (no unit; phi and the alphas are "
                "in it).",
                "weighted term of P",
                parts,
                scale="linear",
            )
        )
    constants = {figure.key: value for figure in figures if (value := _constant(figure, every)) is not None}
    said = [f"{figure.y_title} {number(constants[figure.key])}" for figure in figures if figure.key in constants]
    lead = f"In every interval the same: {', '.join(said)}." if said else ""
    changing = [figure for figure in figures if figure.curves and figure.key not in constants]
    return ReportSection("schedule", "Schedule", lead, [*changing, *heats], folded=folded)


def _constant(figure: CurveChart, every: Sequence[Series]) -> float | None:
    """The one value of all curves of a figure; None where they differ, or where their points tell reasons."""
    if any(curve.words for curve in figure.curves):
        return None
    values = {value for curve in figure.curves for value in every[curve.series].columns[curve.column]} - {None}
    return values.pop() if len(values) == 1 else None


def _reasoned(every: Sequence[Series]) -> bool:
    return any("reason" in series.columns for series in every)
