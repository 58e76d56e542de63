"""Pages in Chromium: opening one, waiting for it, and what axe-core finds wrong with it."""

import time
from contextlib import contextmanager
from pathlib import Path

AXE = Path(__file__).parent / "axe" / "axe-core-4.14.0.min.js"
WAIT = 10_000  # milliseconds


@contextmanager
def a_page(browser, client, query="", **settings):
    """Open the page; at its end there must have been no error of a script, nor of the policy."""
    context = browser.new_context(**{"viewport": {"width": 1000, "height": 900}, **settings})
    context.set_default_timeout(WAIT)
    page = context.new_page()
    faults, elsewhere = [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: elsewhere.append(request.url))
    page.goto(f"{client.base_url}/?{query}")
    page.locator("body[data-shown]").wait_for()
    yield page
    context.close()
    refused = "Failed to load resource: the server responded with a status of 400"
    assert [fault for fault in faults if refused not in fault] == []
    assert [url for url in elsewhere if not url.startswith(str(client.base_url))] == []


def wait_until(page, condition):
    """Wait in Python: the page's policy lets no text be run as a script."""
    end = time.monotonic() + WAIT / 1000
    while not condition():
        assert time.monotonic() < end, page.locator("main").inner_text()
        page.wait_for_timeout(20)


def faults_of(page, *rules):
    """Return what axe-core finds."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in found]
