"""The page's builder in Chromium, as a person uses it: by mouse, by keyboard, on a phone."""

import csv
import json

import pytest

import betae
from betae import KnowledgeGraph
from tests.server.conftest import serving
from tests.server.pages import a_page, faults_of, wait_until

pytestmark = pytest.mark.slow

LONG = "http://x.org/a_very_long_name_of_something_that_has_no_spaces_at_all_but_underscores"
SONGS = f"""@prefix : <http://x.org/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:yesterday a :Song ; :writer :Paul_McCartney ; :length 125 ; :name "Yesterday" .
:jet a :Song ; :writer :Paul_McCartney ; :length 249 .
:ram a :Album ; :writer :Paul_McCartney ; :length 2600 .
<{LONG}> a :Song ; :writer :Paul_McCartney ; :length 90 .
"""


@pytest.fixture(scope="module")
def of_songs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("songs")
    (folder / "songs.ttl").write_text(SONGS)
    betae.read(folder / "songs.ttl").save(folder / "graph")
    with serving(KnowledgeGraph.open(folder / "graph")) as client:
        yield client


def option(page, text):
    return page.locator("[role=option]:visible").filter(has_text=text).first


def words(page):
    return page.locator("#in-words").input_value().removeprefix("everything that ")


def wait_for_words(page, expected):
    page.locator("#in-words").wait_for()
    wait_until(page, lambda: words(page) == expected)


def start(page, name):
    page.get_by_label("Choose a thing to start from").click()
    page.keyboard.type(name)
    option(page, name).click()
    page.locator("#in-words").wait_for()


def choose(page, label, text):
    """Open a field, and choose one of what it offers."""
    page.get_by_label(label, exact=True).last.click()
    option(page, text).click()


def follow(page, words):
    choose(page, "Follow a relation", words)


def add(page, how, kind, place=0):
    """Open the form of a condition, and choose how it joins and what it is about."""
    page.get_by_role("button", name="Add a condition").nth(place).click()
    page.get_by_label("Join", exact=True).select_option(how)
    choose(page, "Condition", kind)


def test_from_home_to_evidence_by_mouse(browser, of_rules):
    with a_page(browser, of_rules) as page:
        start(page, "Europe")
        follow(page, "… is located in it")
        wait_for_words(page, "is located in Europe")
        add(page, "and not", "it has currency")
        option(page, "Euro").click()
        wait_for_words(page, "is located in Europe and does not have currency Euro")
        page.locator("#only").select_option("predicted")
        page.locator(".answer.predicted").first.click()
        page.locator(".why .evidence .chain").first.wait_for()
        assert "is located in Europe" in page.locator(".why h3").first.inner_text()
        page.locator("#filters, #tree svg").last.wait_for()
        assert faults_of(page) == []


def test_from_home_to_evidence_by_keyboard(browser, of_rules):
    with a_page(browser, of_rules) as page:
        press = page.keyboard.press

        def focus(label):
            """Go on with Tab until something with this name has the focus."""
            about = """() => {
                const at = document.activeElement;
                if (at === document.body) return "";
                return at.labels?.[0]?.innerText ?? at.ariaLabel ?? at.innerText;
            }"""
            for _ in range(60):
                press("Tab")
                if label in (page.evaluate(about) or ""):
                    return
            raise AssertionError(label)

        focus("Choose a thing")
        page.keyboard.type("Afric")
        option(page, "Africa").wait_for()
        press("ArrowDown")
        press("Enter")
        wait_for_words(page, "is Africa")
        page.get_by_label("Follow a relation").wait_for()
        focus("Follow a relation")
        page.keyboard.type("located")
        option(page, "… is located in it").wait_for()
        press("Enter")
        wait_for_words(page, "is located in Africa")
        focus("Add a condition")
        press("Enter")
        page.get_by_label("Join", exact=True).wait_for()
        page.keyboard.type("and it must not")
        focus("Condition")
        page.keyboard.type("member")
        option(page, "it is member of …").wait_for()
        press("Enter")
        page.get_by_label("it is member of ___").wait_for()
        option(page, "African Union").wait_for()
        page.keyboard.type("African U")
        wait_until(page, lambda: page.locator("[role=option]:visible").count() == 1)
        press("Enter")
        wait_for_words(page, "is located in Africa and is not member of African Union")
        page.locator(".answer").first.wait_for()
        focused = "document.activeElement.dataset.key"
        wait_until(page, lambda: page.evaluate(focused) == "root add")  # it goes on from there
        focus("predicted")
        press("Enter")
        page.locator(".why .evidence .chain").first.wait_for()


def test_every_notation_changes_the_others(browser, of_rules):
    with a_page(browser, of_rules) as page:
        start(page, "France")
        logic, sparql = page.get_by_label("Logic text"), page.get_by_label("SPARQL")
        logic.fill("?X . borders(France, ?X) | borders(Spain, ?X)")
        page.get_by_role("button", name="Use these changes").click()
        wait_for_words(page, "France borders or Spain borders")
        assert page.get_by_label("How conditions join").input_value() == "or"
        assert "UNION" in sparql.input_value()
        sparql.fill("SELECT ?x { <France> <borders> ?x . ?x <borders> <Germany> }")
        sparql.press("Enter")
        wait_for_words(page, "France borders and borders Germany")
        assert logic.input_value() == "?X . borders(France, ?X) & borders(?X, Germany)"
        page.get_by_label("Words").fill("countries that border Italy and do not border France")
        page.get_by_label("Words").press("Enter")
        wait_for_words(page, "borders Italy and does not border France")
        assert page.locator(".not").nth(1).get_attribute("aria-pressed") == "true"
        page.get_by_role("button", name="not: it borders France").click()
        wait_for_words(page, "borders Italy and borders France")
        page.get_by_role("button", name="Remove: it borders Italy").click()
        wait_for_words(page, "borders France")
        page.get_by_role("button", name="Change France").click()
        page.keyboard.type("Port")
        option(page, "Portugal").click()
        wait_for_words(page, "borders Portugal")
        assert page.get_by_label("Question", exact=True).input_value() == logic.input_value()


def test_what_is_no_tree_is_said_to_be_none(browser, of_rules):
    with a_page(
        browser, of_rules, "method=facts&q=%3FX,%20%3FY%20.%20capital(%3FX,%20%3FY)"
    ) as page:
        page.locator("#answers td").first.wait_for()
        assert "cannot show this question" in page.locator("#builder").inner_text()
        assert page.locator("#notations").is_hidden()
        page.get_by_label("Question", exact=True).fill("?X . !capital(France, ?X)")
        page.keyboard.press("Enter")
        wait_for_words(page, "France does not have as capital")
        assert page.get_by_label("SPARQL").input_value() == ""
        assert "what the answers are" in page.locator("#notations").inner_text()


def test_conditions_nest_and_combine(browser, of_rules):
    with a_page(browser, of_rules) as page:
        start(page, "China")
        follow(page, "… borders it")
        wait_for_words(page, "borders China")
        add(page, "or", "it has official language")
        option(page, "something that").click()
        wait_until(page, lambda: page.get_by_label("Condition", exact=True).count() == 2)
        choose(page, "Condition", "it has language family")
        page.keyboard.type("Turkic")
        option(page, "Turkic languages").click()
        nested = "has official language (something that has language family Turkic languages)"
        wait_for_words(page, f"borders China or {nested}")
        add(page, "and", "it has currency", -1)
        page.keyboard.type("Turkish lira")
        option(page, "Turkish lira").click()
        wait_for_words(page, f"(borders China or {nested}) and has currency Turkish lira")


def test_english_is_a_start(browser, of_rules):
    with a_page(browser, of_rules) as page:
        page.get_by_label("Question", exact=True).fill("what is the capital of France?")
        page.get_by_role("button", name="Ask", exact=True).click()
        wait_for_words(page, "France has as capital")
        wait_until(page, lambda: "please check it" in page.get_by_role("status").inner_text())
        page.get_by_role("status").get_by_role("button", name="Frankfurt").click()
        wait_for_words(page, "is Frankfurt")
        page.get_by_label("Question", exact=True).fill("what is love")
        page.keyboard.press("Enter")
        wait_until(page, lambda: "choose a thing" in page.get_by_role("status").inner_text())
        assert page.locator("#notations").is_hidden()


def test_answers_are_filtered_by_type_and_value(browser, of_songs):
    with a_page(browser, of_songs) as page:
        assert page.locator("#graph").inner_text().startswith("7 entities")
        start(page, "Paul McCartney")
        follow(page, "… has writer it")
        wait_for_words(page, "has writer Paul McCartney")
        page.get_by_role("button", name="Only of type Song").click()
        wait_for_words(page, "has writer Paul McCartney and is a Song")
        page.get_by_label("By value").select_option("length")
        page.get_by_label("Value of length").fill("130")
        page.get_by_role("button", name="Filter").click()
        wait_for_words(page, "has writer Paul McCartney and is a Song and has length < 130")
        wait_until(page, lambda: page.locator("#answers tbody tr").count() == 2)
        shown = {*page.locator("#answers tbody td").all_inner_texts()}
        assert shown == {"yesterday", LONG.rpartition("/")[2].replace("_", " ")}
        page.get_by_role("button", name="Remove: it is of type Song").click()
        wait_for_words(page, "has writer Paul McCartney and has length < 130")


def test_answers_are_taken_along(browser, of_rules):
    with a_page(browser, of_rules, "q=%3FX%20.%20located_in(%3FX,%20Europe)&k=5") as page:
        page.locator(".answer").first.wait_for()

        def saved(name):
            with page.expect_download() as found:
                page.get_by_role("button", name=name, exact=True).click()
            return found.value.path().read_text(encoding="utf-8")

        told = json.loads(saved("JSON"))["answers"]
        rows = [*csv.DictReader(saved("CSV").splitlines())]
        assert [row["label"] for row in rows] == [each["label"] for each in told]
        assert len(saved("N-Triples").splitlines()) == 15
        page.get_by_text("The same question in").click()
        programs = dict(
            zip(
                ("python", "curl", "shell"),
                page.locator("#take pre").all_inner_texts(),
                strict=True,
            )
        )
        answers = {"run": type("Run", (), {"answer": lambda *_, **given: given})}
        exec(
            programs["python"].replace("betae.Run.open", "open_run"),
            {"open_run": lambda _: answers["run"]()},
        )
        assert programs["curl"].startswith(f"curl -s '{of_rules.base_url}/answer' --json '")
        body = json.loads(programs["curl"].partition("--json '")[2].rstrip("'"))
        assert of_rules.post("/answer", json=body).json()["answers"] == told
        assert programs["shell"] == "betae answer RUN '?X . located_in(?X, Europe)' -k 5 --explain"
        page.locator("#view").select_option("table")
        page.locator("#answers tbody tr").first.wait_for()
        labels = page.locator("#answers tbody th").all_inner_texts()
        assert labels == [each["label"] for each in told]
        page.locator("#view").select_option("graph")
        page.locator("#answers svg").wait_for()
        assert page.locator("#answers svg .box.root").count() == 5
        assert page.locator("#answers svg path.known").count() == 5
        assert "view=graph" in page.url


@pytest.mark.parametrize("view", ["", "table", "graph"])
def test_nothing_is_wider_than_a_phone(browser, of_songs, of_rules, view):
    size = {"width": 375, "height": 800}
    question = "?X . exists ?V : located_in(?V, Europe) %26 capital(?V, ?X)"
    with a_page(browser, of_rules, f"view={view}&q={question}", viewport=size) as page:
        page.locator("#answers :is(svg, .answer, td)").first.wait_for()
        page.get_by_role("button", name="Add a condition").first.click()
        choose(page, "Condition", "it")
        page.get_by_text("The same question in").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert faults_of(page) == []
    with a_page(browser, of_songs, f"q=?X . ?X = <{LONG}>", viewport=size) as page:
        page.locator("#answers td").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_a_name_that_is_not_there_is_said_to_be_none(browser, of_songs):
    with a_page(browser, of_songs) as page:
        page.get_by_label("Choose a thing to start from").fill("Beethoven")
        page.keyboard.press("Enter")
        page.get_by_text("Nothing is called that.").wait_for()


def test_home_on_a_phone(browser, of_rules):
    size = {"width": 375, "height": 800}
    with a_page(browser, of_rules, viewport=size, color_scheme="dark") as page:
        page.locator("#examples a").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert faults_of(page) == []
        page.get_by_label("Choose a thing to start from").click()
        page.keyboard.type("Fr")
        option(page, "France").wait_for()
        assert faults_of(page) == []
