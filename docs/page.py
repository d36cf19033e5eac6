"""Take the pictures of the page that stand in the docs: python docs/page.py http://127.0.0.1:8000"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TEXT = (
    "Fit a random forest classifier on the training data X with the class labels y and return the fitted estimator. "
    "Samples may be weighted; a sparse matrix is converted to compressed rows first. If the number of features differs "
    "from that seen during fit, a ValueError is raised. The random state controls the bootstrap of the samples."
)
LOOKS: dict[str, dict[str, Any]] = {
    "page": {"viewport": {"width": 1180, "height": 800}},
    "page-dark": {"viewport": {"width": 1180, "height": 800}, "color_scheme": "dark"},
    "page-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


def take(page: Any, path: Path, phone: bool) -> None:
    """Tag a text, decide on two labels, point at a word, and take the picture."""
    page.fill("#text", TEXT)
    page.click("#tag")
    page.wait_for_selector("#detail:not([hidden])")
    page.wait_for_selector("body:not(.busy)")
    rows = page.locator("#label-groups .label")
    for number, decision in ((0, "accepted"), (3, "rejected")):
        button = rows.nth(number).locator(f".{decision}.decide")
        if button.get_attribute("aria-pressed") == "false":
            with page.expect_response(lambda answer: answer.url.endswith("/api/feedback")):
                button.click()
    if not phone:
        page.hover("#words .word >> text=features")
    page.evaluate("scrollTo(0, 0)")
    picture(page, path)


def picture(page: Any, path: Path) -> None:
    """Take a picture, in few colours: a third of the bytes."""
    taken = Image.open(BytesIO(page.screenshot()))
    taken.quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Take every picture."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for name, look in LOOKS.items():
            page = browser.new_page(**look)
            page.goto(sys.argv[1])
            page.wait_for_selector("body[data-ready]")
            take(page, Path(__file__).parent / f"{name}.png", name.endswith("phone"))
            if name == "page":
                page.click("#show-card")
                picture(page, Path(__file__).parent / "page-card.png")
        browser.close()


if __name__ == "__main__":
    main()
