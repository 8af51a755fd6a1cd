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


def shown(page, figure):
    return page.evaluate(f'document.getElementById("plot-{figure}").data.length')


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_every_figure_is_drawn_and_the_axis_can_be_chosen_by_keyboard(opened, compared):
    page = opened(compared, DESKTOP)
    assert all(page.evaluate('[...document.querySelectorAll(".plot")].map((each) => each.data.length > 0)'))
    assert x_of(page, "accuracy") == [1, 2, 3]
    page.get_by_role("radio", name="intervals").focus()
    page.keyboard.press("ArrowRight")
    assert x_of(page, "accuracy") == x_of(page, "epsilon-cloud") == [4, 8, 12]
    for name, title in (("joules", "energy so far (J)"), ("simulated seconds", "simulated time (s)")):
        page.get_by_role("radio", name=name).check()
        assert page.evaluate('document.getElementById("plot-loss").layout.xaxis.title.text') == title
        assert x_of(page, "accuracy") == sorted(x_of(page, "accuracy")) != [4, 8, 12]


def test_runs_can_be_hidden_and_shown(opened, compared):
    page = opened(compared, DESKTOP)
    assert shown(page, "accuracy") == 3
    page.get_by_role("checkbox", name="controlled").uncheck()
    assert shown(page, "accuracy") == 2
    assert not page.locator("#figure-participation-1").is_visible()
    page.get_by_role("button", name="none").click()
    assert shown(page, "accuracy") == 0
    page.get_by_role("button", name="all").click()
    assert shown(page, "accuracy") == 3
    assert page.locator("#figure-participation-1").is_visible()


def test_scales_change_together_where_figures_share_one(opened, compared):
    page = opened(compared, DESKTOP)
    kind = 'document.getElementById("plot-{}").layout.yaxis.type'
    page.locator("#figure-loss").get_by_label("log scale").check()
    assert [page.evaluate(kind.format(key)) for key in ("loss", "energy")] == ["log", "linear"]
    box = page.locator("#figure-epsilon-edge").get_by_label("log scale")
    before = box.is_checked()
    box.set_checked(not before)
    keys = [f"epsilon-{observer}" for observer in ("edge", "peer", "cloud", "public")]
    assert {page.evaluate(kind.format(key)) for key in keys} == {"linear" if before else "log"}
    ranges = [page.evaluate(f'document.getElementById("plot-{key}").layout.yaxis.range') for key in keys]
    assert ranges == [ranges[0]] * 4


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


def test_it_prints_light_and_comes_back(opened, compared):
    page = opened(compared, DESKTOP, "dark")
    page.evaluate('window.dispatchEvent(new Event("beforeprint"))')
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    width = 'document.querySelector("#plot-loss .main-svg").clientWidth'
    assert page.evaluate(width) == 320
    page.evaluate('window.dispatchEvent(new Event("afterprint"))')
    assert ground(page) == "rgb(14, 16, 20)"
    page.wait_for_function(f"{width} > 400")
    assert page.pdf().startswith(b"%PDF")


def test_names_of_users_are_shown_as_they_are(opened, spoilt, tmp_path):
    runs = [spoilt("fixed", "<b>%{y}<img src=x onerror=alert(1)>"), spoilt("open", "$x^2$")]
    page = opened(report(runs, tmp_path / "names.html"), DESKTOP)
    assert page.get_by_role("checkbox", name=runs[0].name, exact=True).count() == 1
    page.evaluate('Plotly.Fx.hover("plot-accuracy", [{curveNumber: 0, pointNumber: 1}])')
    assert page.locator("#plot-accuracy .hovertext").first.text_content().startswith(runs[0].name + "test: ")


def test_the_controllers_reasons_are_told_where_one_points(opened, compared):
    page = opened(compared, DESKTOP)
    for name in ("fixed", "open"):
        page.get_by_role("checkbox", name=name).uncheck()
    page.evaluate('Plotly.Fx.hover("plot-tau", [{curveNumber: 0, pointNumber: 1}])')
    assert "next best tau" in page.locator("#plot-tau .hovertext").first.text_content()


def test_a_sweep_can_be_looked_at_along_its_keys(opened, sweep):
    page = opened(report(sweep), PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    plot = 'document.getElementById("plot-explorer").data'
    assert page.evaluate(f"{plot}[0].type") == "heatmap"
    assert page.evaluate(f"[{plot}[0].z.length, {plot}[0].z[0].length]") == [2, 3]
    corner = page.evaluate(f"{plot}[0].z[1][2]")  # epsilon 10, trust 1
    assert corner == pytest.approx(2.02)
    for name, chosen in (("metric", "loss"), ("x", "epsilon"), ("y", "")):
        page.locator(f'select[name="{name}"]').select_option(chosen)
    assert page.evaluate(f"{plot}.length") == 3
    page.get_by_label("at probability =").select_option("1")
    assert page.evaluate(f"[...{plot}[2].y]") == pytest.approx([0.72, 1.52])
    assert page.evaluate(f"[...{plot}[0].y]") == pytest.approx([0.71, 1.51])
