// The page. Its state is in its address, and is rendered from there.

import { DEFAULTS, addressOf, current, linker } from "./address.js";
import { showAnswers, showError, showRows, summaryOfRows } from "./answers.js";
import * as api from "./api.js";
import { showEntity } from "./browse.js";
import { Builder } from "./builder.js";
import { Completion, nameOption } from "./completion.js";
import { byId, count, el, show } from "./dom.js";
import { makeEditor, oneLine } from "./editor.js";
import { showFilters } from "./filters.js";
import { showExamples, showGraph } from "./home.js";
import { learn, plain } from "./names.js";
import { showNotations } from "./notations.js";
import { showTake } from "./take.js";
import { drawComputation, drawEmbedding } from "./tree.js";

const DIMS = 3; // dimensions of the embeddings to draw
const SETTINGS = ["k", "method", "only", "view"];
const SECTIONS = ["error", "tree-section", "answers-section", "filters", "notations"];
let served = null; // the response of GET /model
let asking = new AbortController();
let browsing = new AbortController();

function go(changes, isReplaced = false) {
  const address = addressOf({ ...current(), ...changes });
  if (isReplaced) history.replaceState(null, "", address);
  else if (address !== location.search) history.pushState(null, "", address);
  return render(changes, true);
}

const linkTo = linker(go);

const builder = new Builder(byId("builder"), {
  stepsOf: (tree) => api.steps(tree),
  change: askTree,
});

// Ask a tree that the builder made; nothing is the start.
async function askTree(tree) {
  if (!tree) return go({ q: "" });
  try {
    const said = await api.read(tree);
    return await go({ q: said.question });
  } catch (error) {
    return refuse(error, current());
  }
}

// ---- showing it ---------------------------------------------------------------------------------

// Render the state in the address, or the part that a click changed.
async function render(changes = DEFAULTS, isClicked = false) {
  const state = settled(current());
  byId("question").value = oneLine(state.q);
  for (const name of SETTINGS) byId(name).value = state[name];
  show(byId("only-field"), state.method !== "facts");
  show(byId("view-field"), state.method !== "facts");
  document.title = state.q ? `${oneLine(state.q)} – betae` : "betae";
  const isOnlyEntity = Object.keys(changes).join() === "entity";
  const parts = [];
  if (!isOnlyEntity) parts.push(ask(state));
  if ("entity" in changes) parts.push(browse(state.entity, isOnlyEntity));
  await Promise.all(parts);
  document.body.dataset.shown = location.search; // for tests: all of it is there
  const isLost = document.activeElement === document.body; // the focused link is gone
  if (isClicked && isLost) byId(state.q ? "answers-title" : "builder-title").focus({ preventScroll: true });
}

function settled(state) {
  const known = (name) => [...byId(name).options].map(({ value }) => value);
  const fixed = Object.fromEntries(
    SETTINGS.map((name) => [name, known(name).includes(state[name]) ? state[name] : DEFAULTS[name]]),
  );
  if (served.model === null) fixed.method = "facts";
  return { ...state, ...fixed };
}

function say(text) {
  byId("status").textContent = text;
}

async function ask(state) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  for (const id of SECTIONS) show(byId(id), false);
  for (const id of ["examples-section", "graph-section"]) show(byId(id), !state.q);
  byId("question").removeAttribute("aria-invalid");
  if (!state.q) {
    builder.show(null);
    return say("");
  }
  say("Asking…");
  try {
    const said = await api.read(state.q, signal);
    if (said.near) return await goOn(said, state);
    for (const [name, words] of Object.entries(said.spoken)) {
      if (!name.startsWith("~")) learn(name, words);
    }
    builder.show(said);
    if (said.tree) showNotations(byId("notations"), said, (q) => go({ q }));
    show(byId("notations"), Boolean(said.tree));
    return await answer(said, state, signal);
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    return refuse(error, state);
  }
}

// A text was read by the names in it: ask what was guessed, and offer other names.
async function goOn({ question, problem, near }, state) {
  if (question) await go({ q: question }, true);
  else builder.show(null);
  const choices = near.entities.map(({ entity, label }) =>
    el("button", { type: "button", title: entity, onclick: () => askTree({ entity }) }, plain(label)),
  );
  const words = choices.length ? [" Or start from ", ...choices] : [];
  const typed = el("q", {}, state.q);
  byId("status").append(el("span", { class: "guess choices" }, typed, ` ${problem}`, ...words));
}

async function answer(said, state, signal) {
  const found = await answersOf(state, signal);
  if (signal.aborted) return;
  showResult(found, state);
  if (!said.tree) return; // an exact question need not be a tree
  const [tree, steps] = await Promise.allSettled([
    api.tree({ question: state.q, dims: DIMS }, signal),
    api.steps(said.tree),
  ]);
  if (signal.aborted) return;
  if (steps.status === "fulfilled") {
    const add = (condition) => askTree({ and: [...(said.tree.and ?? [said.tree]), condition] });
    showFilters(byId("filters"), steps.value, add);
  }
  if (tree.status === "rejected") return;
  show(byId("tree-section"), true);
  drawComputation(byId("tree"), tree.value, linkTo);
  show(byId("embedding"), drawEmbedding(byId("embedding-tree"), tree.value));
}

function answersOf({ q: question, k, method, only }, signal) {
  if (method === "facts") return api.query({ question, limit: Number(k) }, signal);
  const body = { question, k: Number(k), method, explain: true, only: only || null };
  return api.answer(body, signal);
}

function showResult(result, state) {
  const isFacts = state.method === "facts";
  const summary = isFacts ? summaryOfRows(result) : `${result.summary}.`;
  show(byId("answers-section"), true);
  (isFacts ? showRows : showAnswers)(byId("answers"), result, linkTo, state.view);
  showTake(byId("take"), result, state);
  const notes = (result.notes ?? []).map((note) => `${note}.`);
  say([summary, ...notes, result.note].filter(Boolean).join(" "));
}

function refuse(error, state) {
  if (error.status === 401) return askForToken();
  show(byId("error"), true);
  const field = byId("question");
  field.setAttribute("aria-invalid", "true");
  if (error.column) field.setSelectionRange(error.column - 1, error.column);
  say("");
  const askFacts = state.method === "facts" ? null : () => go({ method: "facts" });
  return showError(byId("error"), error, state.q, { ask: (q) => go({ q }), askFacts });
}

async function browse(name, isFocused) {
  browsing.abort();
  browsing = new AbortController();
  const { signal } = browsing;
  const holder = byId("entity");
  holder.replaceChildren();
  byId("find").value = name;
  if (!name) return;
  try {
    await showEntity(holder, name, { hasModel: served.model !== null, linkTo, signal });
    if (isFocused) holder.querySelector("h3").focus();
  } catch (error) {
    if (error.name === "AbortError") return;
    holder.replaceChildren(el("p", { role: "alert" }, error.message));
  }
}

// ---- the start ----------------------------------------------------------------------------------

async function showHome() {
  const home = await api.home();
  const directed = home.frequent.flatMap(({ name, words }) => [
    { relation: name, words: `it ${words.slice(1)}`.replace("  ", " ") },
    { relation: `~${name}`, words: words.replace(/…$/, "it") },
  ]);
  for (const { name, words } of home.frequent) learn(name, words);
  builder.know({ relations: directed, classes: home.classes });
  showGraph(byId("graph"), home, linkTo);
  show(byId("graph-section"), !current().q);
}

async function showFirstQuestions() {
  byId("examples").replaceChildren(el("li", { class: "note" }, "Looking for some …"));
  try {
    showExamples(byId("examples"), await api.examples(), linkTo);
  } catch (error) {
    byId("examples").replaceChildren(el("li", { class: "note" }, error.message));
  }
}

function askForToken() {
  for (const id of ["ask", "builder-section", "browse"]) show(byId(id), false);
  show(byId("token-form"), true);
  say("Enter the token of this server.");
  byId("token").focus();
}

async function start() {
  const home = showHome(); // before the model, which may be busy
  try {
    [served] = await Promise.all([api.model(), home]);
  } catch (error) {
    if (error.status === 401) return askForToken();
    return say(error.message);
  }
  show(byId("token-form"), false);
  const { graph, model } = served;
  const sizes = [count(graph.entities, "entity"), count(graph.relations, "relation")].join(", ");
  const words = model
    ? `Predictions by ${model.predictors.join(", ").replace(/, (?=[^,]*$)/, " and ")}.`
    : "Predictions are off: exact answers only.";
  byId("about").textContent = `A graph of ${sizes}. ${words}`;
  if (!model) show(byId("method-field"), false);
  if (model?.name === "rules") byId("method").querySelector("[value=embedding]").remove();
  for (const id of ["ask", "builder-section", "browse"]) show(byId(id), true);
  await render();
  return showFirstQuestions();
}

const editor = makeEditor();
new Completion(byId("find"), byId("found"), {
  suggest: async (text, _cursor, signal) => {
    const { entities } = await api.entities(text, 8, signal);
    return { options: entities.map((each) => nameOption(each, "", each.name)) };
  },
  choose: ({ insert }) => {
    go({ entity: insert });
  },
});
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  editor.close();
  go({ q: byId("question").value.trim() });
});
for (const id of SETTINGS) {
  byId(id).addEventListener("change", () => go({ [id]: byId(id).value }));
}
byId("start").addEventListener("click", (event) => {
  event.preventDefault();
  go({ q: "", entity: "" });
});
byId("find-form").addEventListener("submit", (event) => {
  event.preventDefault();
  go({ entity: byId("find").value.trim() });
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.keepToken(byId("token").value);
  start();
});
addEventListener("popstate", () => render());
start();
