"""The region of the page about settings: the map of claims by settings, and the two settings that were run again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from experiments.reproduction.cells import cell, share_cell
from experiments.reproduction.claims import Claim
from experiments.reproduction.figures_file import COLUMNS
from experiments.reproduction.settings.design import Axis, Setting
from experiments.reproduction.settings.judged import ClaimOverSettings, JudgedSetting, SettingsResults, never_together
from experiments.reproduction.wording import claimed_words, found_words, verdict_text


def settings_region(
    claims: Sequence[Claim],
    data_set: str,
    found: SettingsResults,
    counted: Mapping[str, ClaimOverSettings],
    axes: Mapping[str, Axis],
) -> str:
    """The whole region."""
    working = [each for each in found.settings if not each.why and each.judged]
    judged = [claim for claim in claims if claim.id in counted]
    of_training = [claim for claim in judged if any(claim.id in each.judged for each in working)]
    of_decisions = [claim for claim in judged if any(claim.id in each.judged for each in found.decisions)]
    lines = list(_tried(found.settings))
    if of_training:
        lines += ["", *_map(of_training, data_set, working, counted, axes)]
        for one, other in never_together(of_training, data_set, working):
            both = " and ".join(f"“{claim.words}” ({claimed_words(claim, data_set)})" for claim in (one, other))
            lines.append(f"\nNo setting has, by its means, both {both}, though each is so in some.")
    if of_decisions:
        lines += ["", "And the claims about what the controller decides, in settings of its own parameters:", ""]
        lines += _map(of_decisions, data_set, found.decisions, counted, axes)
    lines += _again(of_training, data_set, found)
    lines += [f"\nMade by {each}." for each in found.made]
    return "\n".join(lines)


def _tried(settings: Sequence[JudgedSetting]) -> Iterator[str]:
    out = [each for each in settings if each.why]
    reasons = {why: [each.number for each in out if each.why == why] for why in dict.fromkeys(each.why for each in out)}
    words = f"{len(settings)} settings were tried; training works in {len(settings) - len(out)} of them."
    told = "; ".join(f"{why}: {', '.join(map(str, numbers))}" for why, numbers in reasons.items())
    yield words + (f" The others: {told}." if told else "")


def _map(
    claims: Sequence[Claim],
    data_set: str,
    settings: Sequence[JudgedSetting],
    counted: Mapping[str, ClaimOverSettings],
    axes: Mapping[str, Axis],
) -> Iterator[str]:
    """Claims by settings, these in the order of what noise at every device costs."""
    ordered = sorted(settings, key=_cost_of_noise)
    heads = "".join(f'<th title="{escape(_words(each.setting), quote=True)}">{each.number}</th>' for each in ordered)
    yield '<div class="verdicts map"><table>'
    yield f"<thead><tr><th>setting</th><th>holds in</th><th>by mean</th>{heads}</tr></thead><tbody>"
    for name in _shown(ordered, axes, claims):
        values = "".join(f"<td>{escape(_short(each.setting[name]))}</td>" for each in ordered)
        yield f'<tr class="value"><th>{escape(_key(name))}</th><td></td><td></td>{values}</tr>'
    for label in dict.fromkeys(label for each in ordered for label in each.accuracies):
        values = "".join(
            f"<td>{each.accuracies[label]:.0f} %</td>" if label in each.accuracies else "<td></td>" for each in ordered
        )
        yield f'<tr class="value"><th>accuracy of {escape(label)}</th><td></td><td></td>{values}</tr>'
    for claim in claims:
        over = counted[claim.id]
        cells = "".join(cell(claim, each.judged.get(claim.id), f"setting {each.number}") for each in ordered)
        told = f"paper {claimed_words(claim, data_set)}"
        yield (
            f'<tr><th title="{escape(told, quote=True)}">{escape(claim.words)}</th>{_share(over)}'
            f"<td>{over.signs}</td>{cells}</tr>"
        )
    yield "</tbody></table></div>"
    goes = [
        f"“{claim.words}” with {_key(over.goes_with[0])} ({_sign(over.goes_with[1])})"
        for claim in claims
        if (over := counted[claim.id]).goes_with is not None
    ]
    if goes:
        yield f"\nGoes with: {'; '.join(goes)}."


def _shown(settings: Sequence[JudgedSetting], axes: Mapping[str, Axis], claims: Sequence[Claim]) -> list[str]:
    """The parameters that matter to some figure of the claims."""
    figures = {claim.figure for claim in claims}
    names = settings[0].setting if settings else ()
    return [name for name in names if name not in axes or any(axes[name].matters_to(figure) for figure in figures)]


def _share(over: ClaimOverSettings) -> str:
    if over.best is None:
        more = "nowhere is the mean as large as the paper says"
    else:
        more = f"the mean is as the paper says in {over.reached}, most so in setting {over.best}"
    told = f"holds fully in {over.fully}; undecided in {over.undecided}; {more}"
    return share_cell(over.holds, over.undecided, over.judged, told)


def _cost_of_noise(each: JudgedSetting) -> tuple[float, int]:
    """Points between the most and the least accurate method."""
    spread = max(each.accuracies.values()) - min(each.accuracies.values()) if each.accuracies else 0.0
    return spread, each.number


def _again(claims: Sequence[Claim], data_set: str, found: SettingsResults) -> Iterator[str]:
    """The chosen settings, beside what the screening said of them."""
    by_number = {each.number: each for each in found.settings}
    for role, number in found.chosen.items():
        columns = [(column, found.confirmed[role, column]) for column in COLUMNS if (role, column) in found.confirmed]
        if not columns:
            continue
        setting = by_number[number]
        yield f"\nThe {role} setting is number {number}: {_words(setting.setting)}.{_now(role, number, found)}\n"
        yield (
            "| claim | paper | in the map | " + " | ".join(f"again, {COLUMNS[column]}" for column, _ in columns) + " |"
        )
        yield "|---" * (3 + len(columns)) + "|"
        for claim in claims:
            if any(claim.id in judged for _, judged in columns):
                cells = [claim.words, claimed_words(claim, data_set)]
                for judged in (setting.judged, *(each for _, each in columns)):
                    one = judged.get(claim.id)
                    cells.append("–" if one is None else f"{found_words(claim, one)}: **{verdict_text(one)}**")
                yield "| " + " | ".join(cells) + " |"


def _now(role: str, number: int, found: SettingsResults) -> str:
    """What the rule would choose of all settings, where others were added since."""
    other = found.would_choose.get(role, number)
    if other == number:
        return ""
    return f" It was chosen before the map grew; of all settings the same rule would now choose number {other}."


def _words(setting: Setting) -> str:
    return ", ".join(f"{_key(name)} {_short(value)}" for name, value in setting.items())


def _key(name: str) -> str:
    """The last word of a dotted key."""
    return name.rpartition(".")[2].replace("_", " ")


def _short(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def _sign(correlation: float) -> str:
    return f"{correlation:+.2f}".replace("-", "−")
