"""Colours that everybody can tell apart, on both pages."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import h2fdp.reports
from h2fdp.reports.figures import CURVES, DASHES, MARKERS, marker_of

PAGE = Path(h2fdp.reports.__file__).with_name("page.html").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--(\w+):(#\w+);", PAGE.partition(f"set {name} =")[2].partition("%}")[0]))
    for name in ("light", "dark")
)

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
EYES = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour, eyes):
    xyz = TO_XYZ @ np.clip(np.array(EYES[eyes]) @ linear(colour), 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one, other):
    dark, bright = sorted(float(TO_XYZ[1] @ linear(each)) for each in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def curves(theme):
    return [theme[f"curve{number}"] for number in range(len(CURVES))]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa_and_curves_that_of_graphics(theme):
    for ground in (theme["card"], theme["surface"]):
        for text in (theme["ink"], theme["faint"], theme["accent"]):
            assert contrast(text, ground) >= 4.5
    for colour in (*curves(theme), theme["trusted"], theme["untrusted"]):
        assert contrast(colour, theme["card"]) >= 3


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_curves_stay_apart_for_all_eyes(theme, eyes):
    for one, other in itertools.combinations(curves(theme), 2):
        assert np.linalg.norm(lab(one, eyes) - lab(other, eyes)) >= 18


def test_pictures_have_the_colours_of_the_light_page_and_36_series_differ_in_colour_or_marker():
    assert curves(LIGHT) == [*CURVES]
    assert len(CURVES) == len(DASHES) == len(MARKERS)
    assert len({(number % len(CURVES), marker_of(number)) for number in range(36)}) == 36
