"""The page in a real Chromium: what a person does on it, with pointer, keyboard, files and links."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.conftest import PAPER
from tests.live_server import LiveServer

from laha.baselines.popular import Popular
from laha.corpus import Corpus, Parts
from laha.prepared import Label
from laha.tagger import LAHA

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
CHROMIUM = Path(os.environ.get("LAHA_CHROMIUM", "/usr/bin/chromium"))
if not CHROMIUM.exists():
    pytest.skip(f"there is no Chromium at {CHROMIUM}: apt-get install chromium", allow_module_level=True)

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TEXT = "An apple and a pear, an owl, and a saw.\nnoise1 noise2 iron 🍎 copper"
EVIL = "<img src=x onerror=window.hacked=1> & \"'</script><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def live(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    train = parts.train_part()
    labels = [record.labels for record in train.records()]
    corpus = Corpus.from_lists([*train.texts, *["script attack"] * 9], [*labels, *[[EVIL]] * 9], "topics")
    model = LAHA(**{**PAPER, "epochs": 25}).fit(Parts(corpus, parts.valid, None, "topics"))
    folder = tmp_path_factory.mktemp("served") / "topics"
    model.save(folder)
    with LiveServer(model, folder) as server:
        yield server


@pytest.fixture
def page(browser: Any, live: LiveServer) -> Iterator[Any]:
    with browser.new_context(accept_downloads=True) as context:  # with no memory of other tests
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        open_page(page, live)
        yield page
        assert page.evaluate("window.hacked") is None
        assert problems == []


def open_page(page: Any, live: LiveServer) -> None:
    page.goto(live.url)
    page.wait_for_selector("body[data-ready]")


def tag(page: Any, text: str = TEXT) -> None:
    page.fill("#text", text)
    page.click("#tag")
    settled(page)


def settled(page: Any) -> None:
    page.wait_for_selector("#detail:not([hidden])")
    page.wait_for_selector("body:not(.busy)")


def until(page: Any, condition: str) -> None:
    """Wait until a script's expression holds; the page's policy forbids Playwright's own way."""
    deadline = time.monotonic() + 20
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)


def labels(page: Any) -> list[str]:
    return [name.inner_text() for name in page.query_selector_all("#label-groups .name")]


def row(page: Any, label: str) -> Any:
    return page.locator(f'[data-label="{label}"]')


def kept(page: Any, action: Any) -> None:
    """Do something and wait until the server has answered that it is on disk."""
    with page.expect_response(lambda answer: answer.url.endswith("/api/feedback")) as answer:
        action()
    assert answer.value.ok


def test_a_text_is_tagged_and_its_words_are_coloured(page: Any, live: LiveServer) -> None:
    tag(page)
    suggested = live.post("/api/tag", {"text": TEXT}).json()["documents"][0]["labels"]
    assert sorted(labels(page)) == sorted(entry["label"] for entry in suggested)
    assert page.inner_text("#detail-title") == suggested[0]["label"]
    assert page.inner_text("#words") == TEXT
    assert page.locator("#label-groups h3").first.inner_text().startswith("Frequent")
    (explained,) = live.post("/api/explain", {"text": TEXT, "labels": [suggested[0]["label"]]}).json()["labels"]
    strongest = max(explained["words"], key=lambda word: word["fused"])
    shares = page.eval_on_selector_all(
        "#words .word", "spans => spans.map(s => [s.textContent, Number(s.style.getPropertyValue('--share'))])"
    )
    assert max(shares, key=lambda pair: pair[1]) == [TEXT_WORDS[strongest["start"]], 1]
    assert "α self-attention" in page.inner_text("#shares")
    assert page.query_selector_all("#neighbours button")


TEXT_WORDS = {place: word for word in TEXT.replace(",", " ").replace(".", " ").split() for place in [TEXT.index(word)]}


def test_the_heat_map_switches_between_its_kinds(page: Any) -> None:
    tag(page)

    def shares() -> list[str]:
        script = "spans => spans.map(s => s.style.getPropertyValue('--share'))"
        return list(page.eval_on_selector_all("#words .word", script))

    fused = shares()
    page.check("input[value=self]", force=True)
    assert page.get_attribute("#words", "data-kind") == "self"
    own = shares()
    page.check("input[value=interaction]", force=True)
    assert len({tuple(fused), tuple(own), tuple(shares())}) == 3


def test_another_label_colours_other_words(page: Any) -> None:
    tag(page)
    before = page.inner_html("#words")
    row(page, "metal").locator(".choose").click()
    until(page, "document.querySelector('#detail-title').textContent === 'metal'")
    assert page.inner_html("#words") != before
    assert row(page, "metal").locator(".choose").get_attribute("aria-pressed") == "true"


def test_a_word_tells_which_labels_it_speaks_for(page: Any) -> None:
    tag(page)
    page.hover("#words .word >> text=iron")
    assert page.inner_text("#word-info").startswith("iron has ")
    page.focus("#words")
    page.hover("#labels-title")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#word-info b") == "apple"
    page.keyboard.press("Escape")
    assert page.inner_text("#word-info") == ""


def test_decisions_survive_a_reload(page: Any, live: LiveServer) -> None:
    text = TEXT + " reload"
    tag(page, text)
    first, second = labels(page)[:2]
    kept(page, lambda: row(page, first).locator(".accepted.decide").click())
    kept(page, lambda: row(page, second).locator(".rejected.decide").click())
    page.reload()
    page.wait_for_selector("body[data-ready]")
    settled(page)
    assert page.inner_text("#words") == text
    assert row(page, first).locator(".accepted.decide").get_attribute("aria-pressed") == "true"
    assert "rejected" in (row(page, second).get_attribute("class") or "")
    kept(page, lambda: row(page, second).locator(".rejected.decide").click())
    rows = [json.loads(line) for line in live.get("/api/feedback/export").text.splitlines()]
    decisions = [(row["label"], row["decision"]) for row in rows if row["text"] == text]
    assert decisions == [(first, "accepted"), (second, "rejected"), (second, "withdrawn")]


def test_a_label_is_added_by_type_ahead_with_the_keyboard_alone(page: Any) -> None:
    page.select_option("#top", "5")
    tag(page, TEXT + " keys")
    missing = next(
        label for label in ("river", "colour", "bird", "tool", "metal", "fruit") if label not in labels(page)
    )
    page.focus("#add-label")
    page.keyboard.type(missing[:3])
    page.wait_for_selector("#add-options [role=option]")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#add-label", "aria-activedescendant") == "option-0"
    kept(page, lambda: page.keyboard.press("Enter"))
    until(page, f"document.querySelector('#detail-title').textContent === '{missing}'")
    assert page.inner_text("#label-groups section:first-child h3").startswith("Added")
    row(page, labels(page)[1]).locator(".choose").focus()
    kept(page, lambda: page.keyboard.press("r"))
    assert row(page, labels(page)[1]).locator(".rejected.decide").get_attribute("aria-pressed") == "true"
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.closest('[data-label]').dataset.label")
    assert focused == labels(page)[2]


def test_a_shared_link_holds_the_view_and_sends_the_text_nowhere(page: Any, live: LiveServer) -> None:
    tag(page)
    row(page, "metal").locator(".choose").click()
    page.check("input[value=self]", force=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.click("#share")
    until(page, "location.hash.startsWith('#view=')")
    assert [address for address in asked if not address.endswith("/icon.svg")] == []  # Chromium draws the tab anew
    address = page.evaluate("location.href")
    other = page.context.browser.new_context().new_page()
    sent: list[str] = []
    other.on("request", lambda request: sent.append(request.url))
    other.goto(address)
    other.wait_for_selector("body[data-ready]")
    settled(other)
    assert other.inner_text("#words") == TEXT
    assert other.inner_text("#detail-title") == "metal"
    assert other.is_checked("input[value=self]")
    assert sent[0] == live.url + "/"
    other.context.close()


def test_a_file_of_documents_is_tagged_and_downloaded(page: Any, live: LiveServer, tmp_path: Path) -> None:
    rows = [
        {"id": f"d{number}", "text": text} for number, text in enumerate(["apple pear", "iron tin", "owl crane"] * 20)
    ]
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.set_input_files("#file", str(file))
    until(page, "document.querySelector('#live').textContent === '60 documents tagged'")
    assert page.inner_text("#documents-title") == "60 documents"
    page.locator(".document").nth(1).click()
    settled(page)
    until(page, "document.querySelector('#words').textContent === 'iron tin'")
    with page.expect_download() as download:
        page.click("#download")
    lines = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    expected = live.post("/api/tag", {"text": [row["text"] for row in rows]}).json()["documents"]
    assert [line["id"] for line in lines] == [row["id"] for row in rows]
    first = [(entry["label"], entry["score"]) for entry in expected[0]["labels"]]
    assert [(entry["label"], pytest.approx(entry["score"], abs=1e-4)) for entry in lines[0]["labels"]] == first


def test_a_text_file_is_a_document_a_line_or_one(page: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("apple pear\n\niron tin\n")
    page.set_input_files("#file", str(tmp_path / "a.txt"))
    until(page, "document.querySelector('#live').textContent === '2 documents tagged'")
    page.check("input[value=whole]", force=True)
    until(page, "document.querySelector('#words').textContent.startsWith('apple pear\\n\\niron')")
    assert page.inner_text("#documents-title") == "1 documents"


def test_a_broken_file_names_its_line(page: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "apple"}\n{"text"\n')
    page.set_input_files("#file", str(tmp_path / "a.jsonl"))
    page.wait_for_selector("#problem:not([hidden])")
    assert page.inner_text("#problem span") == "a.jsonl, line 2: broken JSON"


def test_script_in_texts_and_in_label_names_is_shown_and_never_run(page: Any) -> None:
    tag(page, f"script attack {EVIL} <b>bold</b>")
    assert page.inner_text("#words") == f"script attack {EVIL} <b>bold</b>"
    page.get_by_role("button", name=EVIL, exact=False).first.click()
    until(page, "document.querySelector('#detail-title').textContent.startsWith('<img')")
    page.fill("#add-label", "<img")
    page.wait_for_selector("#add-options [role=option]")
    assert page.inner_text("#add-options .name") == EVIL
    assert page.query_selector_all("main img, main script, main b:not(#word-info b)") == []
    page.wait_for_timeout(200)


def test_the_model_card_opens_and_closes(page: Any) -> None:
    page.click("#show-card")
    assert page.is_visible("#card")
    assert "Quality on validation documents" in page.inner_text("#card-content")
    assert len(page.query_selector_all(".frequencies tbody tr")) == 7
    page.keyboard.press("Escape")
    assert not page.is_visible("#card")


def test_nothing_is_fetched_from_elsewhere_and_nothing_overflows_a_phone(browser: Any, live: LiveServer) -> None:
    with browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark") as context:
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        open_page(page, live)
        tag(page, TEXT + " " + "long" * 60)
        assert all(address.startswith(live.url) for address in asked)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        sizes = page.eval_on_selector_all(".decide", "all => all.map(b => b.getBoundingClientRect().height)")
        assert min(sizes) >= 40  # for a thumb
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 26)"


def test_every_control_has_a_name(page: Any) -> None:
    tag(page)
    script = """all => all.filter(e => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim()
        || e.labels?.length || e.title || e.placeholder)).map(e => e.outerHTML)"""
    assert page.eval_on_selector_all("button, input, select, textarea, summary", script) == []
    assert page.get_attribute("html", "lang") == "en"


def test_a_label_may_be_made_up_where_the_server_allows_it(browser: Any, tmp_path: Path) -> None:
    model = Popular()
    model.labels_, model.train_documents_, model.trained_ = [Label("law", 3)], 3, {"corpus": "laws"}
    model.save(tmp_path / "laws")
    with (
        LiveServer(model, tmp_path / "laws", new_labels=True, keep_texts=False) as server,
        browser.new_context() as context,
    ):
        page = context.new_page()
        open_page(page, server)
        assert "without the text" in page.text_content("#decide-note")
        tag(page, "a law")
        page.fill("#who", "Łukasz")
        page.fill("#add-label", "brand new")
        page.wait_for_selector("#add-options [role=option]")
        kept(page, lambda: page.press("#add-label", "Enter"))
        assert labels(page) == ["brand new", "law"]
        page.reload()
        page.wait_for_selector("body[data-ready]")
        until(page, "document.querySelectorAll('#label-groups .name').length === 2")
        (row,) = [json.loads(line) for line in server.get("/api/feedback/export").text.splitlines()]
        assert (row["label"], row["decision"], row["who"], row["text"]) == ("brand new", "added", "Łukasz", None)


def test_a_key_is_asked_for_where_the_server_wants_one(browser: Any, live: LiveServer, tmp_path: Path) -> None:
    model = Popular()
    model.labels_, model.train_documents_, model.trained_ = [Label("law", 3)], 3, {"corpus": "laws"}
    model.save(tmp_path / "laws")
    with (
        LiveServer(model, tmp_path / "laws", api_key="sesame") as server,
        browser.new_context() as context,
    ):
        page = context.new_page()
        page.goto(server.url)
        page.fill("#key", "sesame")
        page.press("#key", "Enter")
        page.wait_for_selector("body[data-ready]")
        page.fill("#text", "a law")
        page.click("#tag")
        settled(page)
        assert labels(page) == ["law"]  # of a model without attention: tagged all the same, without colours
        assert not page.is_visible("#kinds")
        assert page.inner_text("#words") == "a law"


def test_100_000_labels_answer_type_ahead_within_100_milliseconds(browser: Any, tmp_path: Path) -> None:
    model = Popular()
    words = ["river", "theory", "history", "chemical", "law", "music", "tax", "ocean", "insect", "trade"]
    model.labels_ = [
        Label(f"{words[number % 10]} {words[number // 10 % 10]} of kind {number}", 1 + number % 60)
        for number in range(100_000)
    ]
    model.train_documents_, model.trained_ = 100_000, {"corpus": "large"}
    model.save(tmp_path / "large")
    script = """async (query) => {
        const input = document.getElementById("add-label"), list = document.getElementById("add-options");
        input.focus();
        const began = performance.now();
        input.value = query;
        input.dispatchEvent(new InputEvent("input"));
        await new Promise((done) => {
            const observer = new MutationObserver(() => list.dataset.query === query && !list.hidden
                && (observer.disconnect(), done()));
            observer.observe(list, { attributes: true, childList: true });
        });
        return [performance.now() - began, list.children.length];
    }"""
    with LiveServer(model, tmp_path / "large") as server, browser.new_context() as context:
        page = context.new_page()
        page.goto(server.url)
        page.wait_for_selector("body[data-ready]")
        page.fill("#text", "a text")
        page.click("#tag")
        settled(page)
        for query in ("r", "ri", "ocean", "ocean tax", "99999", "kind 4", "zzz"):
            page.evaluate(script, query + "x")
            times = []
            for _ in range(5):
                milliseconds, options = page.evaluate(script, query)
                times.append(milliseconds)
                page.evaluate(script, query + "y")
                assert options >= 1
            assert median(times) < 100, query
