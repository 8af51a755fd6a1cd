"""The page in a browser: it loads in silence, its controls work, it fits a phone, and it prints light."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from h2fdp import report
from tests.reports.test_sweeps import sweep

__all__ = ["sweep"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium: of the system, or the one that playwright has installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as started:
        found = next((path for name in NAMES if (path := shutil.which(name))), started.chromium.executable_path)
        if not Path(found).exists():
            pytest.skip(f"needs Chromium: install it, or have one of {', '.join(NAMES)} on the path")
        with TemporaryDirectory(dir="/tmp") as folder:  # its socket's path has at most 107 characters
            chromium = started.chromium.launch(
                executable_path=found,
                args=["--no-sandbox"] if os.geteuid() == 0 else [],
                env={**os.environ, "TMPDIR": folder},
            )
            yield chromium
            chromium.close()


@pytest.fixture
def opened(browser):
    """Opens a page, and fails if it complained or asked a network for anything."""
    contexts, complaints = [], []

    def open_page(path, viewport, scheme="light"):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: request.url.startswith(("data:", "blob:", "file:")) or complaints.append(request.url),
        )
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def compared(runs, tmp_path_factory):
    return report([runs["fixed"], runs["controlled"], runs["open"]], tmp_path_factory.mktemp("page") / "report.html")


def x_of(page, figure, curve=0):
    return page.evaluate(f'[...document.getElementById("plot-{figure}").data[{curve}].x]')


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_every_figure_is_drawn_and_the_axis_can_be_chosen_by_keyboard(opened, compared):
    page = opened(compared, DESKTOP)
    assert all(page.evaluate('[...document.querySelectorAll(".plot")].map((each) => each.data.length > 0)'))
    joules = x_of(page, "accuracy")  # at first
    assert joules == sorted(joules) != [1, 2, 3]
    page.get_by_role("radio", name="intervals").check()
    assert x_of(page, "accuracy") == [1, 2, 3]
    page.get_by_role("radio", name="intervals").focus()
    page.keyboard.press("ArrowRight")
    assert x_of(page, "accuracy") == x_of(page, "epsilon") == [4, 8, 12]
    for name, title in (("joules", "energy so far (J)"), ("simulated seconds", "simulated time (s)")):
        page.get_by_role("radio", name=name).check()
        assert page.evaluate('document.getElementById("plot-loss").layout.xaxis.title.text') == title
        assert x_of(page, "accuracy") == sorted(x_of(page, "accuracy")) != [4, 8, 12]


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_the_page_fits_its_window_and_its_theme_can_be_chosen(opened, compared, viewport, scheme):
    page = opened(compared, viewport, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    for plot in page.locator(".plot").all():
        if plot.is_visible():
            assert plot.locator(".main-svg").first.bounding_box()["width"] <= viewport["width"]
    colours = {"light": "rgb(244, 245, 247)", "dark": "rgb(14, 16, 20)"}
    assert ground(page) == colours[scheme]
    other = "dark" if scheme == "light" else "light"
    before = page.evaluate('document.getElementById("plot-loss").data[0].line.color')
    page.get_by_role("radio", name=other).check()
    assert ground(page) == colours[other]
    assert page.evaluate('document.getElementById("plot-loss").data[0].line.color') != before


def test_a_sweep_can_be_looked_at_along_its_keys(opened, sweep):
    page = opened(report(sweep), PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    plot = 'document.getElementById("plot-explorer").data'
    assert page.evaluate(f"{plot}.map((each) => each.name)") == ["epsilon = 2", "epsilon = 10"]
    assert page.evaluate(f"[...{plot}[1].error_y.array]") == pytest.approx([0, 0.01, 0.01])
    page.locator('select[name="look"]').select_option("colours")
    assert page.evaluate(f"{plot}[0].type") == "heatmap"
    assert page.evaluate(f"[{plot}[0].z.length, {plot}[0].z[0].length]") == [2, 3]
    corner = page.evaluate(f"{plot}[0].z[1][2]")  # epsilon 10, trust 1
    assert corner == pytest.approx(2.02)
    for name, chosen in (("metric", "loss"), ("x", "epsilon"), ("y", "")):
        page.locator(f'select[name="{name}"]').select_option(chosen)
    assert page.evaluate(f"{plot}.length") == 1
    page.get_by_label("at probability =").select_option("1")
    assert page.evaluate(f"[...{plot}[0].y]") == pytest.approx([0.72, 1.52])
    assert page.evaluate(f"[...{plot}[0].error_y.arrayminus]") == pytest.approx([0.01, 0.01])


def test_a_phone_shows_the_accuracy_without_a_swipe(opened, compared, sweep):
    for path in (compared, report(sweep)):
        page = opened(path, PHONE)
        second = page.locator("#results th[scope=col]").nth(1)
        assert "accuracy" in second.inner_text()
        box = second.bounding_box()
        assert box["x"] + box["width"] <= PHONE["width"]


def test_every_choice_has_a_name(opened, compared):
    page = opened(compared, DESKTOP)
    for box in page.locator("#controls input").all():
        assert box.evaluate("(each) => each.labels[0].innerText.trim()")
