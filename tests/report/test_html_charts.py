"""The pictures of the HTML report: what they draw, and that nobody's text gets out of its place."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mtp_bench.report import charts
from mtp_bench.report.comparison_view import ForestEntry, SampleLane
from mtp_bench.report.lanes import PALETTE, chunks
from mtp_bench.report.svg import redrawn

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "</text></svg><script>alert(1)</script>",
    '" onload="alert(1)" x=\'',
    "&lt;b&gt; & <![CDATA[ ]]> <!-- --> <?xml?>",
    "datum.y; alert(1)",
    "red\x1b[31m\x00",
    "abc\u202edcba\u2066",
    "\u05e9\u05dc\u05d5\u05dd",
    "\ud800",
]


def ratio(label="patched", verdict="slower", at=1.02, group="packed-sft", modelled=False, **changes):
    ends = (None, None) if modelled or at is None else (at - 0.01, at + 0.01)
    values = {"group": group, "label": label, "verdict": verdict, "modelled": modelled, "ratio": at, "threshold": 0.005}
    return ForestEntry(**{**values, "low": ends[0], "high": ends[1], **changes})


def samples(label="patched", baseline=False, us=(100.0, 101.0, 102.0, 103.0), group="packed-sft", **changes):
    values = {"throttled": (False,) * len(us), "clock_mhz": (1980,) * len(us), "reference_ns": 100_000.0, **changes}
    return SampleLane(group, label, baseline, tuple(u * 1e3 for u in us), **values)


def texts(svg):
    """Every text of a picture, from top to bottom."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def drawn(svg, name, value):
    """The elements of a picture with that fill or stroke."""
    return [element for element in ElementTree.fromstring(svg).iter() if element.get(name) == value]


def colour(name):
    return PALETTE[name][0]


def test_a_forest_plot_has_a_point_an_interval_and_a_band_a_row():
    rows = [ratio(), ratio("sync_free", "same", 1.001), ratio("host_lens", "faster", 0.95), ratio("mine", "unclear")]
    (svg,) = charts.forest(rows)
    for row in rows:
        assert len(drawn(svg, "fill", colour(row.verdict))) == 1
        assert len(drawn(svg, "stroke", colour(row.verdict))) == 1
    assert len(drawn(svg, "fill", colour("band"))) == 4
    names = ["patched", "sync_free", "host_lens", "mine"]
    assert [text for text in texts(svg) if text in names] == names
    assert [text for text in texts(svg) if text in charts._SHAPES] == ["slower", "same", "faster", "unclear"]


def test_a_modelled_ratio_is_a_hollow_point_and_says_so():
    (svg,) = charts.forest([ratio(modelled=True)])
    assert "slower, modelled" in texts(svg)
    assert drawn(svg, "fill", colour("slower")) == []
    assert "modelled" in ElementTree.fromstring(svg).get("aria-label")


def test_what_cannot_be_compared_has_a_name_and_no_mark():
    (svg,) = charts.forest([ratio(), ratio("verl", "incomparable", None)])
    assert {"verl", "incomparable"} <= set(texts(svg))
    assert len(drawn(svg, "fill", colour("band"))) == 1


def test_nothing_is_drawn_of_nothing():
    assert charts.forest([ratio(verdict="incomparable", at=None)]) == []
    assert charts.forest([]) == charts.distribution([]) == charts.run_order([]) == []
    assert charts.distribution([samples(reference_ns=0.0)]) == charts.run_order([samples(us=(0.0, 0.0))]) == []


def test_a_ratio_of_exactly_1_is_drawn():
    (svg,) = charts.forest([ratio(verdict="same", at=1.0, modelled=True, threshold=0.0)])
    assert drawn(svg, "stroke", colour("same"))


def test_the_samples_of_a_lane_are_one_path():
    (svg,) = charts.distribution([samples("original", True), samples(us=[100 + i / 10 for i in range(200)])])
    strokes = [path.get("d").count("M") for path in ElementTree.fromstring(svg).iter(f"{SVG}path")]
    assert [count for count in strokes if count > 1] == [4, 200]


def test_what_lies_outside_an_axis_is_drawn_at_its_end():
    (svg,) = charts.distribution([samples(us=[100.0] * 300 + [101.0] * 299 + [900.0])])
    paths = [path.get("d") for path in ElementTree.fromstring(svg).iter(f"{SVG}path")]
    (strokes,) = [d for d in paths if d.count("M") > 2]
    assert max(float(x) for x in re.findall(r"M([\d.]+)", strokes)) == 420
    assert not [text for text in texts(svg) if text.startswith("9")]


def test_throttled_windows_are_marked_and_do_not_count():
    lane = samples(us=(100, 100, 100, 900), throttled=(False, False, False, True))
    (distribution,) = charts.distribution([lane])
    (order,) = charts.run_order([lane])
    assert "100.0 us" in texts(distribution)
    assert len(drawn(distribution, "stroke", colour("throttled"))) == 1
    assert len(drawn(order, "stroke", colour("throttled"))) == 1


def test_the_clock_stands_below_the_samples_where_it_is_known():
    known, unknown = samples(clock_mhz=(1980, 1755, 1980, 1980)), samples(clock_mhz=(None,) * 4)
    (svg,) = charts.run_order([known])
    assert "1,755 to 1,980 MHz" in texts(svg)
    assert len(drawn(svg, "stroke", colour("clock"))) == 1
    (svg,) = charts.run_order([unknown])
    assert "MHz" not in " ".join(texts(svg))
    assert drawn(svg, "stroke", colour("clock")) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_stay_texts_and_do_nothing(text):
    for (svg,) in (
        charts.forest([ratio(text, group=text)]),
        charts.distribution([samples(text, group=text)]),
        charts.run_order([samples(text, group=text)]),
    ):
        tree = ElementTree.fromstring(svg)
        assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= {
            *("svg", "g", "path", "line", "rect", "text", "tspan")
        }
        attributes = {name for element in tree.iter() for name in element.attrib}
        assert not [name for name in attributes if name.startswith("on") or "href" in name or name in ("style", "id")]
        assert not re.search("[\x00-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", svg)


def test_a_very_long_name_is_cut():
    (svg,) = charts.forest([ratio("x" * 100_000, group="\u6f22" * 100_000)])
    assert len(svg) < 6_000
    assert "x" * 29 + "..." in texts(svg)


def test_nothing_but_a_drawing_gets_through():
    svg = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9" height="9"
      viewBox="0 0 9 9" onload="alert(1)"><script>alert(2)</script><style>*{}</style><image href="http://x/y.png"/>
      <a xlink:href="javascript:alert(3)"><path d="M0,0L1.26,-0.04"/></a><foreignObject><p/></foreignObject>
      <g id="a" style="x" onclick="alert(4)" transform="translate(0.5,20.000000000000014)"><rect x="1" fill="#fff"
      stroke="url(http://x/y)"/></g>
      <text class="z" font-size="11">&lt;i&gt; &amp;</text></svg>"""
    found = redrawn(svg, 'a "label" <b>')
    assert re.sub(r"\s+<", "<", found) == (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="a &quot;label&quot; &lt;b&gt;" width="9" '
        'height="9" viewBox="0 0 9 9"><g transform="translate(0.5,20)"><rect x="1" fill="#fff" /></g>'
        '<text font-size="11">&lt;i&gt; &amp;</text></svg>'
    )


def test_the_same_picture_comes_out_every_time():
    rows = [ratio(), ratio("sync_free", "same", 1.0)]
    assert charts.forest(rows) == charts.forest(rows)


def test_groups_are_charts_of_their_own_where_they_are_few():
    rows = [ratio(group=name) for name in "aaabbc"]
    assert [[row.group for row in chunk] for chunk in chunks(rows)] == [["a", "a", "a"], ["b", "b"], ["c"]]


def test_many_groups_share_a_chart_and_a_large_one_is_split():
    assert [len(chunk) for chunk in chunks([ratio(group=str(index // 3)) for index in range(90)])] == [39, 39, 12]
    assert [len(chunk) for chunk in chunks([ratio()] * 90)] == [40, 40, 10]
    assert chunks([]) == []
