"""Take the pictures of the page in docs/images: of `world` without its test edges.

    python -c 'import betae; w = betae.world(); w.without(w.to_polars("test")).save("world")'
    betae serve world &
    python scripts/screenshots.py http://127.0.0.1:8000

It needs playwright (`pip install -e '.[dev]'`) and Chromium (Debian: `apt-get install chromium`).
"""

import argparse
import shutil
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CAPITALS = (
    '?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)'
)
ANSWERS = {"q": CAPITALS, "only": "predicted", "k": 5}
WIDE, PHONE = 1280, 375  # pixels


def open_page(browser: Browser, address: str, state: dict, width: int, height: int, scheme: str):
    """Open the page at a question, and wait until everything is there."""
    view = {"width": width, "height": height}
    page = browser.new_page(viewport=view, color_scheme=scheme)
    page.goto(f"{address}/?{urlencode(state)}")
    page.locator("body[data-shown]").wait_for()
    if "q" in state:
        page.locator("#tree svg").wait_for()
    elif "entity" in state:
        page.locator("#entity .absent").wait_for()
    else:
        page.locator("#examples a").first.wait_for()
    return page


def save(page: Page, name: str) -> None:
    """Save what is in view, in few colours: the files are small."""
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(128)
    picture.save(IMAGES / f"page-{name}.png", optimize=True)
    page.close()


def take(browser: Browser, address: str) -> None:
    """Take every picture."""
    save(open_page(browser, address, {}, WIDE, 1000, "light"), "home")
    save(open_page(browser, address, {}, PHONE, 800, "light"), "phone-home")

    page = open_page(browser, address, ANSWERS, WIDE, 1250, "light")
    page.locator(".answer").first.click()
    save(page, "answers")

    page = open_page(browser, address, ANSWERS, PHONE, 800, "dark")
    page.locator(".answer").first.click()
    page.locator("#answers").evaluate("section => section.scrollIntoView()")
    save(page, "phone")

    graph = {**ANSWERS, "k": 10, "view": "graph"}
    page = open_page(browser, address, graph, WIDE, 700, "light")
    page.locator("#answers svg").wait_for()
    page.locator("#answers-section").evaluate("section => section.scrollIntoView()")
    save(page, "graph")

    page = open_page(browser, address, {"entity": "Belgium"}, WIDE, 800, "dark")
    page.locator("#browse").evaluate("section => section.scrollIntoView()")
    save(page, "entity")


def main() -> None:
    """Read the arguments; take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="of the server, such as http://127.0.0.1:8000")
    address = parser.parse_args().address.rstrip("/")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
