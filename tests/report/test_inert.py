"""Hostile names and texts come out inert: shown, not obeyed, in the terminal and in Markdown."""

import re

import pytest
from rich.cells import cell_len

from mtp_bench.compare import compare
from mtp_bench.report import markdown
from mtp_bench.report.inert import inert, shortened
from mtp_bench.report.review import code, fence, length, prose
from mtp_bench.report.terminal import comparison_report, run_report
from mtp_bench.results import Cpu, DeviceInfo, VariantInfo
from tests import runs
from tests.report.reading import HOSTILE, live_text, parsed, shown_text, tables, text_of, unseen

MARKUP = {
    *("paragraph", "bullet_list", "list_item", "heading", "strong"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
TOKENS = {f"{name}_{end}" for name in MARKUP for end in ("open", "close")}
TOKENS |= {"inline", "text", "text_special", "code_inline", "fence", "softbreak", "html_block", "html_inline"}
# What GitHub makes a link or a picture of, after Markdown: mentions, issues, addresses, emoji, formulas, commits.
LIVE = re.compile(r"@\w|#\d|GH-\d|://|www\.|:[a-z]+:|\$\w|\b[0-9a-f]{7,40}\b")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\n  c", "a b c"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\x9b1m", "\\x9b1m"),
        ("abc\u202edcba\u2066", "abc\\u202edcba\\u2066"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("\ue000", "\\ue000"),
        ("\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
    ],
)
def test_what_is_not_for_reading_is_shown_as_an_escape(text, shown):
    assert inert(text) == shown


def test_a_limit_is_kept():
    assert inert("abcdef", 5) == "ab..."
    assert inert("abcde", 5) == "abcde"


def test_a_very_long_word_hides_nothing_after_it_and_says_how_long_it_was():
    assert shortened(f"{'x' * 1_200} failed") == f"{'x' * 160}...(1,040 more characters) failed"
    assert shortened("ab " * 10, 5) == "ab ab...(24 more characters)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("patched (b): 32 > 33, +0.6 %, [-1.5, +20.2]; 1.9x", "patched (b): 32 > 33, +0.6 %, [-1.5, +20.2]; 1.9x"),
        ("sync_free, (host_lens): slower", "`sync_free`, (`host_lens`): slower"),
        ("by @octocat #12", "by `@octocat` `#12`"),
        ("a`b", "<code>a&#96;b</code>"),
        ("- a", "`-` a"),
        ("1. a", "`1.` a"),
        ("1.5 us - a", "1.5 us - a"),
        ("a|b", "`a|b`"),
        ("", ""),
    ],
)
def test_prose_keeps_what_is_plain_and_puts_the_rest_into_code(text, shown):
    assert prose(text) == shown


def test_a_code_span_holds_backticks_too():
    assert code("x[a] = b | c") == "`x[a] = b | c`"
    assert code("`x`") == "<code>&#96;x&#96;</code>"
    assert code("") == ""


def test_no_line_closes_its_fence():
    assert fence(["a"]) == "```"
    assert fence(["a ``` b", "`````"]) == "``````"


def test_github_counts_code_points_and_a_browser_sends_line_ends_as_two():
    assert length("\U0001f600a\n\n") == 6


def hostile_run(text, shift=0, modelled=False):
    """A run whose every name, code and message is ``text``."""

    def times(us):
        if modelled:
            return runs.time(us)
        return runs.time(*[us + window % 5 for window in range(20)], modelled=False, throttled=[True] + [False] * 19)

    sites = [
        runs.site(2, file=text, line=line, function=text, code=text, op=text, range=[text]) for line in (1, 9 + shift)
    ]
    common = {
        "workload": text,
        "scope": "step",
        "harness": text,
        "warnings": [text],
        "variant_info": VariantInfo(version=text, path=text, note=text),
    }
    results = [
        runs.result("original", time=times(100.0), numerics=runs.numerics("differs", detail=text), **common),
        runs.result(text, time=times(300.0 + shift), syncs=runs.syncs(*sites), **common),
        runs.result("megatron", status="failed", error=text, time=None, syncs=None, numerics=None, **common),
    ]
    device = DeviceInfo(kind="cuda", name=text, modelled=modelled, driver=text, cuda=text)
    return runs.run(
        results,
        command=text,
        workloads={text: {"title": text, "stand_in": text, "packed": True}},
        environment=runs.environment(
            torch=f"{text}{shift}",
            cpu=Cpu(model=text, count=1, affinity=1),
            cuda_env={text: text},
            packages={"mtp-bench": text, text: f"{text}{shift}"},
            device=device,
        ),
    )


def hostile_comparison(text):
    """Two sides with hostile labels, the second of two runs."""
    after = hostile_run(text, 1)
    sides = [(text, [(text, hostile_run(text))]), (f"{text}x", [(f"{text}y", after), (f"{text}z", after)])]
    return compare(sides, fail_on=["slower", "syncs", "values"])


def without_blanks(text):
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [40, 100])
def test_a_terminal_shows_hostile_text_and_obeys_none(text, width):
    for report in (
        run_report(hostile_run(text), width),
        run_report(hostile_run(text, modelled=True), width),
        comparison_report(hostile_comparison(text)),
        comparison_report(compare([(text, [(text, hostile_run(text, modelled=True))])])),
    ):
        found = text_of(report, width)
        assert unseen(found) == set()
        assert max(map(cell_len, found.splitlines())) <= width
        assert without_blanks(inert(text))[:150] in without_blanks(found)


def test_an_encoding_without_the_characters_shows_their_escapes():
    found = text_of(comparison_report(hostile_comparison("\u05e9\u05dc \u00e9")), encoding="ascii")
    assert "\\u05e9\\u05dc \\xe9" in found
    latin = text_of(comparison_report(hostile_comparison("\u05e9 \u00e9")), encoding="latin-1")
    assert "\\u05e9 \u00e9" in latin


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_hostile_text_and_gives_it_no_effect(text):
    for found in (markdown.run_report(hostile_run(text)), markdown.comparison_report(hostile_comparison(text))):
        tokens = parsed(found)
        assert {token.type for token in tokens} <= TOKENS
        html = {token.content.strip() for token in tokens if token.type in ("html_block", "html_inline")}
        folds = {part for part in html if re.fullmatch(r"<details><summary>[^<>&`]*</summary>|</details>", part)}
        assert html - folds <= {"<code>", "</code>"}
        assert LIVE.search(live_text(found)) is None
        assert unseen(found) == set()
        assert all(len({line.count("|") for line in table}) == 1 for table in tables(found))
        assert without_blanks(shortened(text, 1_000)) in without_blanks(shown_text(found))
        assert length(found) <= 60_000
