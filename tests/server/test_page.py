"""The page, in a real browser: Debian's Chromium, driven by playwright."""

import re
from urllib.parse import urlencode

import pytest
import torch

from betae import KnowledgeGraph
from betae.server.app import PAGE_FOLDER
from tests.server.conftest import ODD, SCRIPT, serving
from tests.server.pages import WAIT, a_page, faults_of, wait_until

pytestmark = pytest.mark.slow

GRANDCHILDREN = "?X . exists ?C : parent(ann, ?C) & parent(?C, ?X)"
WITHOUT = "?X . parent(ann, ?X) & !friend(bob, ?X)"


def ask(page, question):
    page.get_by_label("Question", exact=True).fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#answers-section:not([hidden]) :is(li, td, p)").first.wait_for()


# ---- asking -------------------------------------------------------------------------------------


def test_a_question_gets_its_tree_and_its_answers(browser, of_run):
    with a_page(browser, of_run) as page:
        ask(page, WITHOUT)
        told = of_run.post("/answer", json={"question": WITHOUT, "k": 25}).json()
        assert page.locator("#status").inner_text() == f"{told['summary']}."
        assert page.locator(".answer .label").all_inner_texts() == [
            answer["label"] for answer in told["answers"]
        ]
        statuses = [text.split()[-1] for text in page.locator(".answer .status").all_inner_texts()]
        assert statuses == [answer["status"] for answer in told["answers"]]
        assert {"assumed", "predicted"} <= set(statuses)
        tree = of_run.post("/tree", json={"question": WITHOUT}).json()
        page.locator("#tree svg").wait_for()
        boxes = page.locator("#tree svg .small").evaluate_all("all => all.map(e => e.textContent)")
        numbers = [int(found[1]) for text in boxes if (found := re.search(r"(\d+) answer", text))]
        assert sorted(numbers) == sorted(node["num_answers"] for node in tree["nodes"])
        assert not any("entropy" in text for text in boxes)
        assert page.locator("#embedding svg").is_hidden()
        page.get_by_text("Embedding", exact=True).click()
        page.locator("#embedding svg").wait_for()
        words = page.locator("#embedding svg .small").all_text_contents()
        assert sum("entropy" in text for text in words) == len(tree["nodes"])
        assert page.locator("#embedding svg .density").count() == 3 * len(tree["nodes"])


def test_the_bars_are_as_long_as_the_probabilities(browser, of_run):
    with a_page(browser, of_run, urlencode({"q": WITHOUT})) as page:
        page.locator(".answer").first.wait_for()
        told = of_run.post("/answer", json={"question": WITHOUT, "k": 25}).json()["answers"]
        shares = page.locator(".answer .filled").evaluate_all(
            "all => all.map(e => e.offsetWidth / e.parentElement.clientWidth)"
        )
        assert shares == pytest.approx([answer["probability"] for answer in told], abs=0.02)


def test_an_answer_opens_its_derivation(browser, of_run):
    query = urlencode({"q": GRANDCHILDREN, "k": 25})
    told = of_run.post("/answer", json={"question": GRANDCHILDREN, "k": 25, "explain": True}).json()
    known = next(answer for answer in told["answers"] if answer["status"] == "known")
    predicted = next(answer for answer in told["answers"] if answer["status"] == "predicted")
    with a_page(browser, of_run, query) as page:
        for answer, by_key in [(known, False), (predicted, True)]:
            place = told["answers"].index(answer)
            row = page.locator(".answers > li").nth(place)
            button = row.locator(".answer")
            if by_key:
                button.focus()
                page.keyboard.press("Enter")
            else:
                button.click()
            assert button.get_attribute("aria-expanded") == "true"
            row.locator("svg").wait_for()
            steps = [answer["why"], *answer["why"]["sources"]]
            missing = sum(step["status"] == "missing" for step in steps)
            assert row.locator("svg path.missing").count() == missing
            assert row.locator("svg path.known").count() == len(steps) - missing
            words = " ".join(row.locator("svg text").all_text_contents())
            for step in steps:
                assert all(part.replace("_", " ")[:12] in words for part in step["edge"])
            assert ("%" in words) == (missing > 0)
        button.click()
        assert row.locator("svg").is_hidden()


def test_a_syntax_error_has_its_caret_below_the_place(browser, of_run):
    with a_page(browser, of_run) as page:
        question = "?X . parent(ann, ?X) & & parent(bob, ?X)"
        page.get_by_label("Question", exact=True).fill(question)
        page.keyboard.press("Enter")
        shown = page.locator("#error pre")
        shown.wait_for()
        text, caret = shown.inner_text().split("\n")
        column = of_run.post("/tree", json={"question": question}).json()["column"]
        assert text[caret.index("^") :] == question[column - 1 :] == "& parent(bob, ?X)"
        assert page.get_by_role("alert").is_visible()
        assert page.get_by_label("Question", exact=True).get_attribute("aria-invalid") == "true"
        assert page.locator("#answers-section").is_hidden()
        long = "?X . " + " & ".join(["parent(ann, ?X)"] * 9) + " & )"
        page.get_by_label("Question", exact=True).fill(long)
        page.keyboard.press("Enter")
        wait_until(page, lambda: shown.is_visible() and shown.inner_text().startswith("…"))
        text, caret = shown.inner_text().split("\n")
        assert text[caret.index("^")] == ")"


def test_a_name_that_is_nearly_right_is_put_right_by_a_click(browser, of_run):
    with a_page(browser, of_run, urlencode({"q": "?X . lives_in(bobb, ?X)"})) as page:
        page.get_by_role("button", name="bob", exact=True).click()
        page.locator(".answer").first.wait_for()
        assert page.get_by_label("Question", exact=True).input_value() == "?X . lives_in(bob, ?X)"
        assert page.locator("#error").is_hidden()


def test_what_was_meant_is_asked_by_a_click(browser, of_run):
    with a_page(browser, of_run, urlencode({"q": "?X . lives_in(Bob Lee, ?X)"})) as page:
        assert "stands in quotes" in page.locator("#error").inner_text()
        page.get_by_role("button", name='lives_in("Bob Lee", ?X)').click()
        page.locator(".answer").first.wait_for()
        assert page.locator(".answer .label").first.inner_text() == "Oslo"


def test_a_question_that_is_no_tree_is_asked_of_the_facts_by_a_click(browser, of_run):
    with a_page(browser, of_run, urlencode({"q": "?P, ?X . friend(?P, ?X)"})) as page:
        page.get_by_role("button", name="Ask known facts only").click()
        page.locator("#answers td").first.wait_for()
        assert page.locator("#answers tbody tr").count() == 3
        assert page.locator("#answers th").all_inner_texts() == ["?P", "?X"]
        assert "method=facts" in page.url


def test_sparql_of_several_lines_can_be_pasted(browser, of_run):
    with a_page(browser, of_run) as page:
        page.get_by_label("Question", exact=True).focus()
        page.evaluate(
            """text => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text", text);
            const event = new ClipboardEvent("paste", { clipboardData, cancelable: true });
            document.activeElement.dispatchEvent(event);
        }""",
            "SELECT ?x # who\nWHERE {\n  <ann> <parent> ?x\n}\n",
        )
        assert (
            page.get_by_label("Question", exact=True).input_value()
            == "SELECT ?x WHERE { <ann> <parent> ?x }"
        )
        page.keyboard.press("Enter")
        page.locator(".answer.known").first.wait_for()
        assert page.locator(".answer.known .label").all_inner_texts() == ["Bob Lee", "Sam"]


def test_a_question_can_be_typed_with_completion_alone(browser, of_run):
    with a_page(browser, of_run) as page:
        field, options = (
            page.get_by_label("Question", exact=True),
            page.locator("#suggestions [role=option]"),
        )

        def choose(text):
            for _ in range(20):
                page.keyboard.press("ArrowDown")
                active = field.get_attribute("aria-activedescendant")
                if active and page.locator(f"#{active} .name").inner_text() == text:
                    return page.keyboard.press("Enter")
                options.first.wait_for()
            raise AssertionError(options.all_inner_texts())

        field.focus()
        choose("?X .")
        options.first.wait_for()
        assert field.get_attribute("aria-expanded") == "true"
        page.keyboard.type("liv")
        wait_until(page, lambda: options.count() == 1)
        choose("lives_in")
        options.first.wait_for()
        page.keyboard.type("Bob L")
        wait_until(page, lambda: options.count() == 1)
        choose("Bob Lee (bob)")
        options.first.wait_for()
        choose("?X")
        assert field.input_value() == "?X . lives_in(bob, ?X)"
        options.first.wait_for()
        assert options.first.inner_text().startswith("&")
        page.keyboard.press("Escape")
        assert options.count() == 0
        assert field.get_attribute("aria-expanded") == "false"
        page.keyboard.press("Enter")
        assert page.locator(".answer .label").first.inner_text() == "Oslo"


def complete(page, typed, text):
    """Type a part of a name, and take the suggestion that has a text."""
    page.keyboard.type(typed)
    page.locator("#suggestions [role=option]").filter(has_text=text).first.click()


def test_names_are_completed_in_sparql(browser, of_run):
    with a_page(browser, of_run) as page:
        field, labels = page.get_by_label("Question", exact=True), page.locator(".answer .label")
        field.focus()
        complete(page, "SELECT ?x { bo", "Bob Lee (bob)")
        complete(page, "liv", "lives_in")
        complete(page, "?", "?x")
        assert field.input_value() == "SELECT ?x { <bob> <lives_in> ?x "
        page.keyboard.type("}")
        page.keyboard.press("Enter")
        assert labels.first.inner_text() == "Oslo"
        field.fill("")
        complete(page, "SELECT ?x { ?x <lives_in> a/", ODD)  # its name needs escapes
        page.keyboard.type("}")
        page.keyboard.press("Enter")
        wait_until(page, lambda: labels.count() and labels.first.inner_text() != "Oslo")
        assert page.locator("#error").is_hidden()


def test_prefixes_are_completed_in_sparql(browser, tmp_path):
    turtle = "@prefix x: <http://x.org/> .\nx:ann x:knows x:bob .\nx:bob x:likes <urn:tea> .\n"
    (tmp_path / "facts.ttl").write_text(turtle)
    KnowledgeGraph.from_triples(tmp_path / "facts.ttl").save(tmp_path / "graph")
    with (
        serving(KnowledgeGraph.open(tmp_path / "graph")) as client,
        a_page(browser, client) as page,
    ):
        field = page.get_by_label("Question", exact=True)
        field.focus()
        complete(page, "SELECT ?y { x", "x:")
        complete(page, "bo", "http://x.org/bob")
        complete(page, "lik", "http://x.org/likes")
        complete(page, "<urn", "urn:tea")
        complete(page, "; x:kn", "http://x.org/knows")
        complete(page, "?", "?y")
        expected = "SELECT ?y { x:bob x:likes <urn:tea> ; x:knows ?y "
        assert field.input_value() == expected


# ---- the address --------------------------------------------------------------------------------


def test_the_address_opens_the_same_answers(browser, of_run):
    with a_page(browser, of_run) as page:
        ask(page, GRANDCHILDREN)
        page.locator("#method").select_option("embedding")
        page.locator("#k").select_option("5")
        wait_until(page, lambda: page.locator(".answer .label").count() == 5)
        labels = page.locator(".answer .label").all_inner_texts()
        assert len(labels) == 5
        ask(page, "?X . lives_in(ann, ?X)")
        wait_until(page, lambda: "lives_in" in page.title())
        page.go_back()
        answers = page.locator(".answer .label")
        wait_until(page, lambda: answers.all_inner_texts() == labels)
        assert "exists" in page.title()
        query = page.url.partition("?")[2]
    with a_page(browser, of_run, query) as page:
        page.locator(".answer").first.wait_for()
        assert page.locator(".answer .label").all_inner_texts() == labels
        assert page.get_by_label("Question", exact=True).input_value() == GRANDCHILDREN
        assert page.locator("#method").input_value() == "embedding"


def test_an_entity_is_browsed(browser, of_run):
    with a_page(browser, of_run) as page:
        page.get_by_label("Entity", exact=True).fill("Bob")
        page.locator("#found [role=option]").first.wait_for()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.locator("#entity h3").wait_for()
        told = of_run.get("/entities/bob/edges?missing=8").json()
        assert "Bob Lee" in page.locator("#entity h3").inner_text()
        assert page.locator("#entity .ends a").count() == told["total"]
        page.locator("#entity .absent").wait_for()
        assert page.locator("#entity .absent li").count() == len(told["missing"]) > 0
        assert "entity=bob" in page.url


def test_examples_lead_to_answers(browser, of_run):
    with a_page(browser, of_run) as page:
        page.locator("#examples a").first.wait_for()
        told = of_run.get("/examples").json()
        assert page.locator("#examples a").all_inner_texts() == [each["words"] for each in told]
        page.locator("#examples a").first.click()
        page.locator(".answer:not(.predicted)").first.wait_for()
        assert page.get_by_label("Question", exact=True).input_value() == told[0]["question"]
        assert page.locator(".answer:not(.predicted)").count() == told[0]["known"]
        page.go_back()
        page.locator("#examples a").first.wait_for()


# ---- reasons ------------------------------------------------------------------------------------

EUROPEAN = urlencode({"q": "?X . located_in(?X, Europe)", "only": "predicted", "entity": "Austria"})


def test_the_reasons_for_an_edge_are_drawn(browser, of_rules):
    with a_page(browser, of_rules, EUROPEAN) as page:
        assert "Predictions by rules" in page.locator("#about").inner_text()
        assert page.locator("#method option").count() == 2  # there is no embedding
        page.locator(".answer").first.click()
        evidence = page.locator(".why .evidence").first
        evidence.wait_for()
        label = page.locator(".answer .label").first.inner_text()
        predicted = evidence.locator(".chain").first
        assert predicted.locator(".node").all_inner_texts() == [label, "Europe"]
        assert predicted.locator(".link.missing").count() == 1
        path = evidence.locator(".parts .chain").first
        assert {label, "Europe"} == {*path.locator(".node").all_inner_texts()} & {label, "Europe"}
        assert path.locator(".node").first.inner_text() == label  # from head to tail
        assert " of " in evidence.locator(".parts p").first.inner_text()
        amounts = [
            float(text.replace("−", "-"))
            for text in evidence.locator(".parts .percent").all_inner_texts()
        ]
        total = float(
            re.search(r"log-odds of ([+−][0-9.]+)", evidence.inner_text())[1].replace("−", "-")
        )
        assert sum(amounts) == pytest.approx(total, abs=0.06)
        page.locator("#entity .absent button").first.click()
        page.locator("#entity .absent .evidence").wait_for()
        assert faults_of(page) == []


def test_reasons_fit_a_phone(browser, of_rules):
    view = {"width": 375, "height": 700}
    with a_page(browser, of_rules, EUROPEAN, viewport=view, color_scheme="dark") as page:
        page.locator(".answer").first.click()
        page.locator(".why .evidence").first.wait_for()
        page.locator("#entity .absent button").first.click()
        page.locator("#entity .absent .evidence").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert faults_of(page, "color-contrast") == []


# ---- what it must put up with -------------------------------------------------------------------


def test_markup_in_a_label_is_shown_as_text(browser, of_run):
    state = {"q": "?X . parent(cat, ?X)", "entity": "fay"}
    with a_page(browser, of_run, urlencode(state)) as page:
        page.locator(".answer").first.click()
        page.locator(".why svg").first.wait_for()
        assert page.locator(".answer .label").first.inner_text() == SCRIPT
        assert SCRIPT in page.locator("#entity h3").inner_text()
        assert page.locator("body script").count() == 0


@pytest.mark.parametrize("question", [WITHOUT, "?X . parent(ann, ?X) & & parent(bob, ?X)"])
def test_nothing_scrolls_sideways_on_a_phone(browser, of_run, question):
    view = {"width": 360, "height": 700}
    query = urlencode({"q": question, "entity": "ann"})
    with a_page(browser, of_run, query, viewport=view) as page:
        page.locator("#entity h3").wait_for()
        page.locator(".answer, #error pre").first.wait_for()
        for button in page.locator(".answer").all():
            button.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.set_viewport_size({"width": 320, "height": 700})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))])
def test_axe_finds_no_fault(browser, of_run, scheme, rules):
    query = urlencode({"q": WITHOUT, "entity": "ann"})
    with a_page(browser, of_run, query, color_scheme=scheme) as page:
        page.locator(".answer").first.click()
        page.locator("#entity h3").wait_for()
        page.locator("#tree summary").click()
        page.locator(".why svg").wait_for()
        page.get_by_label("Question", exact=True).press("ArrowDown")
        assert faults_of(page, *rules) == []
        page.get_by_label("Question", exact=True).fill("?X . parent(")
        page.locator("#suggestions li").first.wait_for()
        assert faults_of(page, *rules) == []
        page.keyboard.press("Enter")
        page.locator("#error pre").wait_for()
        assert faults_of(page, *rules) == []


def test_densities_are_those_of_the_beta_distribution(browser, of_graph):
    alphas, betas = torch.tensor([[0.05, 0.7, 1.0, 3.5, 40.0], [2.0, 0.3, 1.0, 9.0, 60.0]])
    places = torch.tensor([[0.01], [0.3], [0.5], [0.97]])
    expected = torch.distributions.Beta(alphas, betas).log_prob(places).exp()
    with a_page(browser, of_graph) as page:
        script = """async ([alphas, betas, places]) => {
            const { density } = await import("/beta.js");
            return places.map((x) => alphas.map((alpha, i) => density(alpha, betas[i], x)));
        }"""
        given = [alphas.tolist(), betas.tolist(), places.flatten().tolist()]
        found = page.evaluate(script, given)
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-4, atol=1e-6)


def test_a_graph_alone_offers_exact_answers_only(browser, of_graph):
    with a_page(browser, of_graph) as page:
        assert page.locator("#method").is_hidden()
        assert "exact answers only" in page.locator("#about").inner_text()
        ask(page, "?P, ?X . parent(?P, ?X) & lives_in(?P, Oslo)")
        rows = page.locator("#answers tbody tr").all_inner_texts()
        assert len(rows) == 4
        assert rows[0].split("\t") == ["Ann Lee", "Bob Lee"]
        assert page.locator("#tree-section").is_hidden()
        ask(page, GRANDCHILDREN)
        page.locator("#tree svg").wait_for()
        assert page.locator("#embedding").is_hidden()
        assert faults_of(page) == []


def test_a_server_with_a_token_asks_for_it(browser, graph):
    with serving(graph, token="secret") as client:
        context = browser.new_context()
        page = context.new_page()
        page.goto(str(client.base_url))
        page.get_by_label("Token of this server").fill("secret")
        page.keyboard.press("Enter")
        page.locator("#examples a").first.wait_for(timeout=WAIT)
        page.locator("#examples a").first.click()
        page.get_by_text("The same question in").click()
        assert '-H "authorization: Bearer $BETAE_TOKEN"' in page.locator("#take").inner_text()
        assert page.get_by_label("Token of this server").is_hidden()
        context.close()


def test_the_files_load_nothing_from_elsewhere():
    for path in PAGE_FOLDER.rglob("*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?:src|href|url\(|from|import\()\W*(?:https?:)?//", text), path.name
    assert "<style" not in (PAGE_FOLDER / "index.html").read_text(encoding="utf-8")
