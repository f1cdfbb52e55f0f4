"""The page in a real browser: no errors, pictures drawn, mouse and keyboard work, accessible.

Screenshots are left in `.artefacts`, which git ignores.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib.util
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from example_reports import REPORTS, kink, report
from gradproof._render import html, plots

MISSING = [name for name in ("chromium", "chromedriver", "npm") if shutil.which(name) is None]
MISSING += [name for name in ("selenium", "jinja2") if importlib.util.find_spec(name) is None]
MISSING += [] if plots.available() else ["matplotlib"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}; .ci/run installs them"),
]

ARTEFACTS = Path(__file__).parents[2] / ".artefacts"
AXE = "axe-core@4.14.1"  # the audit, fetched when the tests run
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars"""
WIDTHS = (375, 1280)


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    explained = REPORTS["explained"]
    kinked = dataclasses.replace(explained.checks[0], kinks=(kink(0), kink(1)))
    written = {
        "failure": html.render(report(kinked, *explained.checks[1:], repeat=explained.repeat)),
        "run": html.render_many(list(REPORTS.items()), title="a run"),
    }
    for name, page in written.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in written}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(300)  # the audit of a long page, on a machine that others share
    driver.set_page_load_timeout(300)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def audit(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("axe")
    quiet = {**os.environ, "npm_config_loglevel": "error"}
    subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True, env=quiet)
    [archive] = folder.glob("*.tgz")
    with tarfile.open(archive) as opened:
        return opened.extractfile("package/axe.min.js").read().decode()


def open_page(browser, address: str, width: int = 1280, dark: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": scheme})
    browser.get(address)


def focused(browser) -> str:
    """What the element that has the focus says beside its own text."""
    names = browser.execute_script(
        "const e = document.activeElement; return ['aria-description', 'aria-label'].map("
        "n => e.getAttribute(n))"
    )
    return next(filter(None, names), "")


def press(browser, *keys) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    chain = ActionChains(browser)
    for key in keys:
        chain.send_keys(key)
    chain.perform()


@pytest.mark.parametrize("name", ["failure", "run"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_without_errors_fits_and_is_accessible(browser, pages, audit, name, width, dark):
    open_page(browser, pages[name], width, dark)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.execute_script(audit)
    found = browser.execute_async_script("axe.run().then(arguments[0])")
    said = [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found["violations"]]
    assert said == []
    keep(browser, f"{name}-{width}{'-dark' if dark else ''}", width)


def keep(browser, name: str, width: int) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    clip = {"x": 0, "y": 0, "width": width, "height": 4000, "scale": 1}
    whole = {"captureBeyondViewport": True, "clip": clip}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", whole)
    (ARTEFACTS / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def test_tables_of_statistics_are_not_cut_off(browser, pages):
    """At 840 pixels, half of a usual screen, a column of them was outside."""
    open_page(browser, pages["run"], 840)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = browser.execute_script(
        "return [...document.querySelectorAll('.numbers')].map(t => t.parentElement)"
        ".map(box => [box.scrollWidth, box.clientWidth])"
    )
    assert len(wide) > 3
    assert all(inside <= seen for inside, seen in wide), wide


def test_pictures_are_drawn(browser, pages):
    open_page(browser, pages["failure"])
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert len(boxes) == 3
    assert min(boxes) > 200
    cells = browser.find_elements("css selector", '[aria-label="gap"] tbody td')
    wrong, right = (
        {
            cell.value_of_css_property("background-color")
            for cell in cells
            if is_wrong(cell) is which
        }
        for which in (True, False)
    )
    assert not wrong & right


def is_wrong(cell) -> bool:
    return "wrong" in cell.get_attribute("class").split()


def test_pointing_at_an_entry_tells_its_numbers(browser, pages):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    open_page(browser, pages["failure"])
    figure = browser.find_element(By.CSS_SELECTOR, "figure.maps")
    cell = figure.find_element(By.CSS_SELECTOR, "td.wrong")
    ActionChains(browser).move_to_element(cell).perform()
    told = figure.find_element(By.CLASS_NAME, "readout").text
    assert told == cell.get_attribute("aria-description")
    assert told.startswith("x[1, 3] to output 0[0, 0]: claimed -0.")
    assert "refuted" in told
    assert len(figure.find_elements(By.CSS_SELECTOR, "td.same")) == 3

    picture = browser.find_element(By.CSS_SELECTOR, "figure.curve")
    point = picture.find_elements(By.CSS_SELECTOR, ".point")[4]
    ActionChains(browser).move_to_element(point).perform()
    assert picture.find_element(By.CLASS_NAME, "readout").text.startswith(
        "step 3.1e-05, difference"
    )


def test_the_keyboard_reaches_every_entry_and_every_point(browser, pages):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, pages["failure"])
    for _ in range(40):
        press(browser, Keys.TAB)
        if focused(browser).startswith("x[1, 0] to output 0[0, 0]"):
            break
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert focused(browser).startswith("x[1, 2] to output 0[0, 1]")
    press(browser, Keys.END)
    assert focused(browser).startswith("x[1, 7] to output 0[0, 1]")
    press(browser, Keys.ARROW_RIGHT, Keys.HOME, Keys.ARROW_UP)
    assert focused(browser).startswith("x[1, 0] to output 0[0, 0]")
    press(browser, Keys.TAB, Keys.TAB, Keys.TAB)  # two more tables, then the first picture
    assert focused(browser).startswith("step 0.12")
    press(browser, Keys.ARROW_RIGHT)
    assert focused(browser).startswith("step 0.016")


def test_the_line_that_repeats_it_can_be_copied(browser, pages):
    from selenium.webdriver.common.by import By

    open_page(browser, pages["failure"])
    allowed = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": allowed})
    button = browser.find_element(By.CSS_SELECTOR, "[data-copy]")
    button.click()
    read = "navigator.clipboard.readText().then(arguments[0])"
    assert browser.execute_async_script(read) == REPORTS["explained"].repeat
    assert browser.find_element(By.ID, "said").get_attribute("textContent") == "Copied"


def test_it_prints_without_what_paper_cannot_do(browser, pages):
    open_page(browser, pages["failure"])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    hidden = "return getComputedStyle(document.querySelector('button')).display"
    assert browser.execute_script(hidden) == "none"
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    ARTEFACTS.mkdir(exist_ok=True)
    (ARTEFACTS / "failure.pdf").write_bytes(base64.b64decode(printed["data"]))
    assert len(printed["data"]) > 10_000
