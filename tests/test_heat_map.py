"""The heat map: a page that loads nothing, runs nothing, and shows whatever the text holds as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laha.explain import Explanation, LabelExplanation, WordWeight
from laha.heat_map import heat_map
from laha.vocabulary import Tokenizer

HOSTILE = "<script>alert('x')</script> &amp; \"</p><img src=//evil onerror=x> <!-- ]]> {{7*7}}"


def explain(text: str, label: str = "cats", weights: list[float] | None = None) -> Explanation:
    spans = list(Tokenizer().spans(text))
    weights = weights or [1 / max(1, len(spans))] * len(spans)
    words = [WordWeight(*span, self=w, interaction=w, fused=w) for span, w in zip(spans, weights, strict=True)]
    return Explanation(text, [LabelExplanation(label, 0.5, 0.25, 0.75, words)])


class Page(HTMLParser):
    """The page as a browser sees it: its tags with their attributes, the text of each paragraph and heading."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"p": [], "h2": []}
        self.open = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in self.texts:
            self.open = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        self.open = "" if tag == self.open else self.open

    def handle_data(self, data):
        if self.open:
            self.texts[self.open][-1] += data

    def marks(self) -> list[float]:
        styles = [attributes["style"] or "" for tag, attributes in self.tags if tag == "mark"]
        return [float(style.removeprefix("--w:")) for style in styles]


@given(st.text(st.characters(codec="utf-8")))
def test_the_page_shows_the_text_as_it_is_once_for_each_attention(text):
    page = Page(heat_map(explain(text)))
    assert page.texts["p"] == [text] * 3
    shown = [attributes["class"] for tag, attributes in page.tags if tag == "p"]
    assert shown == ["fused", "self", "interaction"]


def test_hostile_texts_and_labels_stay_text():
    page = heat_map(explain(HOSTILE, label=HOSTILE))
    assert "<script" not in page
    assert "<img" not in page
    assert "<!--" not in page
    parsed = Page(page)
    assert parsed.texts["p"] == [HOSTILE] * 3
    assert parsed.texts["h2"][0].startswith(HOSTILE)


def test_the_page_loads_nothing_and_runs_nothing():
    page = heat_map(explain("the cat sat"))
    parsed = Page(page)
    policies = [attributes["content"] for _, attributes in parsed.tags if "http-equiv" in attributes]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert not re.search(r"https?:|//|url\(|@import", page)
    assert {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe", "object", "form", "a"} == set()
    for _, attributes in parsed.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "srcset")}


def test_the_strongest_word_is_fully_coloured_and_weak_ones_are_not():
    page = Page(heat_map(explain("cat sat on", weights=[0.8, 0.2, 0.01])))
    assert page.marks() == [1.0, 0.25] * 3


@pytest.mark.parametrize("weights", [[0.0, 0.0, 0.0], [1e-320, 0.0, 0.0]])
def test_weights_of_nothing_are_no_trouble(weights):
    page = Page(heat_map(explain("cat sat on", weights=weights)))
    assert page.texts["p"] == ["cat sat on"] * 3
    assert all(0 <= mark <= 1 for mark in page.marks())
    if not any(weights):
        assert page.marks() == []


@pytest.mark.parametrize("text", ["", "…", "12 words, then signs!?"])
def test_texts_without_words_or_labels_make_a_page(text):
    assert Page(heat_map(explain(text))).texts["p"] == [text] * 3
    assert Page(heat_map(Explanation(text, []))).texts["p"] == []


def test_a_heading_tells_score_and_shares():
    heading = Page(heat_map(explain("the cat"))).texts["h2"][0]
    assert heading == "cats score 0.500, self-attention counts 25%, interaction 75%"
