"""The HTML report as text: all parts in order, one file, complete without pictures, and nobody's text is obeyed."""

from __future__ import annotations

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from mtp_bench.compare import Threshold, compare
from mtp_bench.report import html
from mtp_bench.report.comparison_view import ComparisonView
from mtp_bench.report.lanes import PALETTE
from tests import runs
from tests.report import pages

VOID = {"meta", "br"}
PARTS = [
    "Verdict",
    "Environments and cautions",
    "Comparison",
    "Ratios of step times to the baseline, with 98 % intervals",
    "Distribution of the windows",
    "Windows in the order measured",
    "Syncs a step by call site",
    "Values",
    "How to reproduce",
]


class Page(HTMLParser):
    """What a browser makes of a page: its elements, their attributes and the text inside them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements = []  # (name, attributes, text)
        self.open = []
        self.feed(text)
        self.close()
        assert self.open == [], "elements that are never closed"

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), "an attribute twice"
        element = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag in VOID:
            self.handle_data(" ")
        else:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, "elements that overlap"
        if tag in ("td", "th"):
            self.handle_data(" ")

    def handle_data(self, data):
        for _, _, texts in self.open:
            texts.append(data)

    def all(self, *names):
        """Elements by name, each (attributes, text on one line)."""
        return [(a, " ".join("".join(texts).split())) for tag, a, texts in self.elements if tag in names]

    def text(self, *names):
        return [text for _, text in self.all(*names)]


def of(run, **options):
    """The page that compares the variants of a run."""
    return Page(html.comparison_report(compare([("here", [("here", run)])], **options)))


def two_sides(**changes):
    """The page that compares two runs of one variant."""
    sides = [
        ("before", [("before", pages.measured())]),
        ("after", [("after", pages.measured([("original", 0.03), ("patched", 0.0)], seed=1))]),
    ]
    return Page(html.comparison_report(compare(sides, **changes)))


def test_the_parts_come_in_the_order_of_every_format():
    assert of(pages.measured()).text("h2") == PARTS


def test_a_comparison_says_what_is_compared():
    assert of(pages.measured()).text("h1") == ["mtp-bench compare: variants of here"]
    assert two_sides().text("h1") == ["mtp-bench compare: after with before"]


def test_the_report_of_a_run_begins_with_its_first_line_and_its_headline():
    page = Page(html.run_report(runs.modelled_run()))
    assert page.text("h1") == ["mtp-bench run: padded-sft, packed-sft"]
    first, second, *_ = page.text("p")
    assert first.startswith("mtp-bench 0.1.0 on sim:h100 (modelled), torch 2.13.0, scope loss: padded-sft, packed-sft")
    assert second.startswith("The `num_tokens > 0` guard costs 16.5 us a step, packed rolls cost 240.0 us")


def test_the_verdict_comes_first_with_what_failed_and_what_gates_cannot_tell():
    page = two_sides(fail_on=["slower", "values"])
    text = " ".join(page.text("section")[:1])
    assert text.startswith("Verdict Gate slower, values: failed.")
    assert "Failed: slower: original (after) on packed-sft at lead 1 ms: slower than original (before) by " in text
    assert "Cannot tell: slower: sync_free (after) on packed-sft: not in after" in text


def test_a_row_has_everything_that_a_verdict_rests_on():
    (row,) = [text for text in of(pages.measured()).text("tr") if text.startswith("patched") and "slower" in text]
    number = r"[+-]?[\d,]+\.\d+"
    assert re.fullmatch(
        rf"patched \u25b2 slower {number} ?\[{number}, {number}\] {number} 1\.\d{{4}} ?\[1\.\d{{4}}, 1\.\d{{4}}\] "
        rf"{number} {number} <0\.001 ?\(<0\.001\) 40 32 close yes",
        row,
    )


def test_every_verdict_is_a_word_and_a_mark_beside_its_colour():
    page = of(pages.measured())
    marked = [text for attributes, text in page.all("span") if attributes.get("class", "").startswith("mark ")]
    assert marked == ["\u25b2 slower", "\u25cf same", "\u25bc faster"]


def test_modelled_figures_say_so_wherever_they_stand():
    page = Page(html.run_report(runs.modelled_run()))
    heads = [text for _, text in page.all("th") if "us a step" in text or "ratio" in text]
    assert heads
    assert all("modelled" in text for text in heads if text != "us a step")  # that one's caption says it
    assert all("modelled" in text for text in page.text("caption") if text.startswith("Scope"))
    assert "Ratios of step times to the baseline, modelled" in page.text("h2")
    pictures = [attributes["aria-label"] for attributes, _ in page.all("svg")]
    assert pictures
    assert all("modelled" in label for label in pictures)


def test_modelled_times_have_no_distribution_and_the_page_says_why():
    text = " ".join(Page(html.run_report(runs.modelled_run())).text("section"))
    assert text.count("No measured windows: modelled times have one value a side, which the table has.") == 2


def test_the_numbers_of_every_picture_are_in_a_table():
    comparison = compare([("here", [("here", pages.measured(throttled=(5,)))])])
    page = Page(html.comparison_report(comparison))
    view = ComparisonView.of(comparison)
    cells = " ".join(page.text("td"))
    for row in comparison.rows:
        found = row.difference
        assert f"{found.ratio:.4f}" in cells
        assert f"[{found.ratio_low:.4f}, {found.ratio_high:.4f}]" in cells
    for lane in view.lanes:
        quartiles = " ".join(f"{ns / 1e3:,.1f}" for ns in lane.quartiles_ns)
        assert f"39 1 {quartiles}" in cells
        samples = [f"{ns / 1e3:.1f}" for ns in lane.step_ns]
        samples[5] += "*"
        assert " ".join(samples) in cells
    assert "1980\u00d710 1935\u00d75 1980\u00d725" in cells


def test_syncs_have_the_line_of_code_and_what_came_and_went():
    rows = of(pages.measured()).text("tr")
    assert [row for row in rows if "patched.py:40" in row] == [
        "mtp_bench/variants/patched.py:40 in patched if num_tokens > 0: went 32 0 host_lens packed-sft "
        "item, aten::_local_scalar_dense"
    ]
    assert "unchanged 32 32 patched, sync_free packed-sft item, aten::_local_scalar_dense" in rows


def test_how_to_reproduce_it_has_command_versions_seed_and_threshold():
    sides = [("here", [("here", pages.measured())])]
    comparison = compare(sides, threshold=Threshold.parse("20us"), command="mtp-bench compare '<b>'")
    text = Page(html.comparison_report(comparison)).text("section")[-1]
    for part in (
        "mtp-bench run --device sim",
        "mtp-bench compare '<b>'",
        "threshold 20 us",
        "seed 0",
        "torch 2.13.0",
        "driver 575.1",
    ):
        assert part in text


def test_environments_and_cautions_come_before_the_table():
    sides = [(name, [(name, pages.measured(throttled=hot))]) for name, hot in (("a", (1,)), ("b", ()))]
    other = sides[1][1][0][1]
    other.environment = runs.environment(device=runs.GPU.model_copy(update={"driver": "580.2"}))
    text = Page(html.comparison_report(compare(sides))).text("section")[1]
    assert "device.driver: 575.1 (a), 580.2 (b)" in text
    assert "Caution, driver differs:" in text
    assert "Caution, throttling:" in text


def test_a_caution_with_many_places_is_folded():
    assert "12 places" in Page(html.run_report(pages.large(60, windows=20))).text("summary")
    assert "10 places" not in Page(html.run_report(pages.large(50, windows=20))).text("summary")


def test_a_run_of_one_variant_still_has_its_syncs():
    page = Page(html.run_report(runs.run([runs.result("mine", syncs=runs.syncs(runs.site(8)))])))
    assert "There is no second side to compare with." in page.text("p")
    assert [text for text in page.text("tr") if "patched.py:40" in text] == [
        "mtp_bench/variants/patched.py:40 in patched if num_tokens > 0: item, aten::_local_scalar_dense mtp_loss "
        "packed-sft: 8 in mine"
    ]


@pytest.mark.parametrize(
    "results",
    [
        [],
        [runs.result("original")],
        [runs.result("original"), runs.result("patched", status="failed", error="boom", time=None, numerics=None)],
        [runs.result("original", status="skipped", error="no", time=None, syncs=None, numerics=None)] * 1,
        [runs.result(name, time=runs.time(float("nan"), 1.0, modelled=False)) for name in ("original", "patched")],
        [runs.result(name, time=runs.time(5.0, modelled=False)) for name in ("original", "patched")],
        [runs.result(name, time=runs.time(0.0, 0.0, modelled=False)) for name in ("original", "patched")],
        [runs.result("patched"), runs.result("host_lens", "padded-sft")],
        [runs.result(name, numerics=None, syncs=None, graph_capture=None) for name in ("original", "patched")],
    ],
    ids=["empty", "one variant", "failed", "skipped", "nan", "one sample", "zero", "no baseline", "nothing known"],
)
def test_whatever_a_run_lacks_there_is_a_page(results):
    page = Page(html.run_report(runs.run(results)))
    assert len(page.text("h2")) == 9
    if any(result.status == "failed" for result in results):
        assert "patched: failed: boom" in page.text("li")


@pytest.mark.parametrize("module", ["altair", "vl_convert"])
def test_without_pictures_the_page_says_how_to_get_them_and_is_otherwise_whole(monkeypatch, module):
    whole = of(pages.measured())
    monkeypatch.setitem(sys.modules, module, None)
    page = of(pages.measured())
    package = {"altair": "altair", "vl_convert": "vl-convert-python"}[module]
    assert page.text("svg") == []
    assert [text for text in page.text("code") if "pip" in text] == [f"pip install {package}"] * 3
    assert page.text("table") == whole.text("table")
    assert page.text("h2") == whole.text("h2")


def test_one_file_that_refers_to_nothing_outside_itself():
    text = html.run_report(pages.measured())
    page = Page(text)
    names = {element for element, _, _ in page.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use", "a:href"}
    for name, attributes, _ in page.elements:
        assert not {"src", "srcset", "action", "style", "xlink:href", "background", "poster", "data"} & set(attributes)
        assert not [attribute for attribute in attributes if attribute.startswith("on")]
        assert attributes.get("href", "#").startswith("#"), name
    (style,) = page.text("style")
    assert "url(" not in style
    assert "@import" not in style
    assert re.findall(r"https?://[^\"\s<]+", text) == ["http://www.w3.org/2000/svg"] * len(page.text("svg"))
    (policy,) = [a["content"] for a, _ in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_people_s_text_is_shown_and_does_nothing():
    text = html.run_report(pages.hostile())
    page = Page(text)
    harmless = {element for element, _, _ in Page(html.run_report(pages.measured(throttled=(5,)))).elements}
    assert {element for element, _, _ in page.elements} <= harmless
    assert not [name for _, attributes, _ in page.elements for name in attributes if name.startswith("on")]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    shown = page.text("tr")
    for name in pages.HOSTILE[:6]:
        assert [row for row in shown if name in row], name
    assert [row for row in shown if "\\x1b[31mred\\x1b[0m\\x07\\x00" in row]
    assert [row for row in shown if "\\u202egnirts\\u202c \\u2066isolated" in row]
    assert max(map(len, page.text("li", "td", "th", "h1", "h3", "title", "pre"))) <= 1_100
    assert len(text) < 500_000


def test_texts_in_pictures_are_escaped():
    pictures = re.findall(r"<svg.*?</svg>", html.run_report(pages.hostile()), re.DOTALL)
    texts = ["".join(element.itertext()) for svg in pictures for element in ElementTree.fromstring(svg).iter()]
    assert "<script>alert(1)</script>" in texts
    assert "failed javascript:alert(1)" in texts


def test_ten_thousand_samples_in_two_hundred_results_stay_small():
    assert len(html.run_report(pages.large())) < 3_000_000


def test_the_same_run_gives_the_same_page():
    assert html.run_report(pages.measured()) == html.run_report(pages.measured())


def test_headings_landmarks_tables_and_pictures_have_names():
    page = Page(html.run_report(pages.measured()))
    assert page.all("html")[0][0]["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.all(landmark)) == 1
    levels = [int(element[1]) for element, _, _ in page.elements if re.fullmatch("h[1-6]", element)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = Counter(attributes["id"] for _, attributes, _ in page.elements if "id" in attributes)
    assert set(ids.values()) == {1}
    references = [a[name] for _, a, _ in page.elements for name in ("aria-labelledby",) if name in a]
    assert set(references) <= set(ids)
    assert {a["href"][1:] for a, _ in page.all("a")} <= set(ids)
    assert len(page.text("caption")) == len(page.text("table"))
    assert all(page.text("caption"))
    assert all(attributes["scope"] in ("col", "row", "rowgroup") for attributes, _ in page.all("th"))
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes, _ in page.all("svg"))
    assert len(page.text("svg")) == 3


def luminance(colour):
    """As WCAG 2.1 defines it."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", sorted(PALETTE.keys() - {"grid", "band"}))
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_of_text_and_marks_stand_out_from_the_paper(name, scheme):
    light, dark = sorted((luminance(html.PAPER[scheme]), luminance(PALETTE[name][scheme])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_no_colour_stands_for_two_names():
    assert len({light for light, _ in PALETTE.values()}) == len(PALETTE)
