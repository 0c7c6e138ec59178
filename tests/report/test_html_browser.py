"""The HTML report in a real browser: nothing leaves the page, it reads without scripts, mouse, colour or sight."""

from __future__ import annotations

import base64
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mtp_bench.report import html
from mtp_bench.report.lanes import PALETTE
from tests import browser as chromium
from tests import runs
from tests.report import pages

ROOT = Path(__file__).parents[2]
LIGHT, DARK = 0, 1


@pytest.fixture(scope="module")
def browser():
    if chromium.CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is not installed: apt-get install chromium")
        pytest.skip("Chromium is not installed")
    with chromium.Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Name -> a page of measured times, one of modelled ones, a hostile one and one of 100 results."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "measured": pages.measured(throttled=(20, 21)),
        "modelled": runs.modelled_run(),
        "hostile": pages.hostile(),
        "hundred": pages.large(100),
    }
    for name, run in made.items():
        (folder / f"{name}.html").write_text(html.run_report(run), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(params=["measured", "modelled", "hostile", "hundred"])
def file(request, files):
    return files[request.param]


def pixels(browser, png, *colours):
    """How many pixels of a picture are within 12 of a colour, for each of ``colours``; a browser decodes it."""
    page = browser.page()
    counts = page.evaluate(
        """(async (png, colours) => {
          const bitmap = await createImageBitmap(await (await fetch('data:image/png;base64,' + png)).blob());
          const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d');
          context.drawImage(bitmap, 0, 0);
          const {data} = context.getImageData(0, 0, bitmap.width, bitmap.height);
          return colours.map(colour => {
            const [r, g, b] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
            let count = 0;
            for (let i = 0; i < data.length; i += 4)
              count += Math.abs(data[i] - r) < 12 && Math.abs(data[i+1] - g) < 12 && Math.abs(data[i+2] - b) < 12;
            return count;
          });
        })("""
        f"'{base64.b64encode(png).decode()}', {list(colours)})"
    )
    page.close()
    return counts


CONTRAST = """(() => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = element => {
    for (; element; element = element.parentElement) {
      const colour = channels(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
  };
  const found = [];
  document.querySelectorAll('body *').forEach(element => {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) return;
    const style = getComputedStyle(element);
    const text = channels(element.closest('svg') ? style.fill : style.color);
    const [light, dark] = [luminance(text), luminance(paper(element))].sort((a, b) => b - a);
    found.push([(light + 0.05) / (dark + 0.05), element.textContent.slice(0, 40)]);
  });
  return found.sort((a, b) => a[0] - b[0])[0];
})()"""


SIZES = "[...document.querySelectorAll('{selector}')].map(element => element.getBoundingClientRect().{side})"
FOCUSED = "(e => `${e.localName} ${e.className || e.textContent.trim()}`)(document.activeElement)"
VISIBLE = """(e => getComputedStyle(e).outlineStyle !== 'none' && e.getBoundingClientRect().right > 0)
  (document.activeElement)"""


def test_no_console_error_and_no_request_leaves_the_page(browser, file):
    page = browser.page()
    page.open(file)
    assert page.complaints() == []
    assert page.requests() == [file.as_uri()]
    page.close()


def test_it_reads_without_javascript(browser, files):
    page = browser.page(javascript=False)
    page.open(files["measured"])
    nodes = page.accessibility()
    assert {node["name"] for node in nodes if node["role"] == "table"} >= {
        "Step time, syncs and values against original, lead 1 ms",
        "Values against a float64 reference",
    }
    cells = [node["name"] for node in nodes if node["role"] in ("cell", "rowheader")]
    assert {"patched", "sync_free", "host_lens"} <= set(cells)
    assert {"slower", "same", "faster"} <= {cell.split()[-1] for cell in cells if cell}
    page.close()


@pytest.mark.parametrize(("scheme", "index"), [("light", LIGHT), ("dark", DARK)])
def test_the_pictures_are_drawn_in_both_schemes(browser, files, scheme, index):
    page = browser.page()
    page.prefer(scheme)
    page.open(files["measured"])
    forest, distribution, order = (
        page.screenshot(f"section[aria-labelledby={part}] svg") for part in ("ratios", "distribution", "order")
    )
    page.close()

    def count(png, *names):
        return pixels(browser, png, html.PAPER[index], *(PALETTE[name][index] for name in names))

    paper, *marks = count(forest, "slower", "same", "faster", "band", "ink")
    assert paper > 50_000
    assert min(marks) > 20, marks
    _, *marks = count(distribution, "baseline", "candidate", "ink")
    assert min(marks) > 50, marks
    _, *marks = count(order, "baseline", "candidate", "clock", "throttled")
    assert min(marks) > 10, marks


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(browser, file, scheme):
    page = browser.page()
    page.prefer(scheme)
    page.open(file)
    least, text = page.evaluate(CONTRAST)
    assert least >= 4.5, text
    page.close()


def test_a_hundred_results_load_in_under_a_second(browser, files):
    def seconds():
        page = browser.page()
        taken = page.open(files["hundred"])
        page.close()
        return taken

    assert min(seconds() for _ in range(5)) < 1.0


@pytest.mark.parametrize("width", [320, 400, 800, 1280])
def test_only_tables_and_pictures_scroll_sideways(browser, file, width):
    page = browser.page(width=width)
    page.open(file)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


def test_it_prints_on_white_with_everything_that_is_folded(browser, files):
    page = browser.page(width=794, height=1123)
    page.prefer("dark")
    page.open(files["measured"])
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 2
    printed = page.pdf()
    assert printed.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 5
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    heights = page.evaluate(
        "[...document.querySelectorAll('details table')].map(t => t.getBoundingClientRect().height)"
    )
    assert min(heights) > 50
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert max(page.evaluate(SIZES.format(selector="svg", side="width"))) <= 794
    page.close()


def test_the_keyboard_reaches_everything_and_shows_where_it_is(browser, files):
    page = browser.page()
    page.open(files["measured"])
    page.press("Tab", 9)
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    assert page.evaluate(VISIBLE)
    page.press("Enter", 13, "\r")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = []
    for _ in range(30):
        page.press("Tab", 9)
        if page.evaluate("document.activeElement === document.body"):
            break
        seen.append(page.evaluate(FOCUSED))
        assert page.evaluate(VISIBLE), seen[-1]
    assert seen.count("div scroll") == 4
    assert seen.count("div chart") == 3
    assert [name for name in seen if name.startswith("summary")] == [
        "summary Quartiles of 4 sides as a table",
        "summary Every sample of 4 sides as a table",
    ]
    page.evaluate("document.querySelector('summary').focus()")
    page.press("Enter", 13, "\r")
    assert page.evaluate("document.querySelector('details').open")
    page.close()


def test_a_screen_reader_meets_landmarks_headings_tables_and_named_pictures(browser, files):
    page = browser.page()
    page.open(files["measured"])
    nodes = page.accessibility()
    page.close()
    roles = [node["role"] for node in nodes]
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert roles.count(landmark) == 1
    rows = "rows of packed-sft, scope loss, lead 1 ms, baseline original"
    assert [node["name"] for node in nodes if node["role"] == "image"] == [
        f"Forest plot of the ratios of 3 {rows} with 98 % intervals: 1 slower, 1 same, 1 faster.",
        f"Distribution of the step times of 4 {rows}.",
        f"Step times of 4 {rows} in the order measured, and the SM clock.",
    ]
    assert all(node["name"] for node in nodes if node["role"] in ("table", "heading", "region", "link"))
    assert "rowgroup" in roles
    assert "columnheader" in roles


def test_a_hostile_run_opens_no_dialog_and_changes_nothing(browser, files):
    page = browser.page()
    page.open(files["hostile"])
    assert page.events("Page.javascriptDialogOpening") == []
    assert page.evaluate("document.title").startswith("mtp-bench run: 0 <script>alert(1)</script>, 1 </title>")
    assert page.evaluate("document.querySelectorAll('script, img, iframe, [onmouseover]').length") == 0
    page.close()


def test_ten_thousand_samples_in_two_hundred_results_take_less_than_5_s(tmp_path):
    """Processor time, since other tests run beside this one."""
    pages.large().write(tmp_path / "large")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    page = subprocess.run(
        [sys.executable, "-m", "mtp_bench", "compare", "large", "--format", "html"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5.0
    assert len(page) < 3_000_000
