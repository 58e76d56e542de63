// The page. Its state is in its address, and is rendered from there.

import * as api from "./api.js";
import { showAnswers, showError, showRows, summaryOfRows } from "./answers.js";
import { showEntity, showPath } from "./browse.js";
import { Completion, nameOption } from "./completion.js";
import { byId, count, el, show } from "./dom.js";
import { makeEditor, oneLine } from "./editor.js";
import { examplesFrom } from "./language.js";
import { drawComputation, pathOf } from "./tree.js";

const DEFAULTS = { q: "", k: "10", method: "completed", only: "", entity: "" };
const DIMS = 3; // dimensions of the embeddings to draw
const HUBS = 60; // entities with the most edges, used for examples
let served = null; // the response of GET /model
let asking = new AbortController();
let browsing = new AbortController();

// ---- the address --------------------------------------------------------------------------------

function stateOf(address) {
  const given = new URLSearchParams(address);
  const state = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
  for (const name of ["k", "method", "only"]) {
    const known = [...byId(name).options].map((option) => option.value);
    if (!known.includes(state[name])) state[name] = DEFAULTS[name];
  }
  return { ...state, q: oneLine(state.q) };
}

function addressOf(state) {
  const kept = Object.entries(state).filter(([name, value]) => value && value !== DEFAULTS[name]);
  return `?${new URLSearchParams(kept)}`;
}

const current = () => stateOf(location.search);

function go(changes) {
  const address = addressOf({ ...current(), ...changes });
  if (address !== location.search) history.pushState(null, "", address);
  return render(changes, true);
}

// A link to the page with some changes; a plain click stays on the page.
function linkTo(changes, text) {
  const link = el("a", { href: addressOf({ ...current(), ...changes }) }, text);
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(changes);
  });
  return link;
}

// ---- showing it ---------------------------------------------------------------------------------

// Render the state in the address, or the part that a click changed.
async function render(changes = DEFAULTS, isClicked = false) {
  const state = current();
  if (served.model === null) state.method = "facts";
  byId("question").value = state.q;
  for (const name of ["k", "method", "only"]) byId(name).value = state[name];
  show(byId("only-field"), state.method !== "facts");
  document.title = state.q ? `${state.q} – betae` : "betae";
  const isOnlyEntity = Object.keys(changes).join() === "entity";
  const parts = [];
  if (!isOnlyEntity) parts.push(ask(state));
  if ("entity" in changes) parts.push(browse(state.entity, isOnlyEntity));
  await Promise.all(parts);
  const isLost = document.activeElement === document.body; // the focused link is gone
  if (isClicked && isLost) byId("answers-title").focus({ preventScroll: true });
}

function say(text) {
  byId("status").textContent = text;
}

async function ask(state) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  for (const id of ["error", "tree-section", "answers-section", "path"]) show(byId(id), false);
  byId("question").removeAttribute("aria-invalid");
  if (!state.q) return say("");
  say("Asking…");
  const [tree, answers] = await Promise.allSettled([
    api.tree({ question: state.q, dims: DIMS }, signal),
    answersOf(state, signal),
  ]);
  if (signal.aborted) return undefined;
  if (answers.status === "rejected") return refuse(answers.reason, state);
  showResult(answers.value, state);
  if (tree.status === "rejected") return undefined; // an exact question need not be a tree
  show(byId("tree-section"), true);
  byId("asked").textContent = tree.value.query;
  drawComputation(byId("tree"), tree.value, linkTo);
  return offerSteps(tree.value, signal);
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
  (isFacts ? showRows : showAnswers)(byId("answers"), result, linkTo);
  say([summary, result.note].filter(Boolean).join(" "));
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

async function offerSteps(tree, signal) {
  const path = pathOf(tree);
  if (!path) return;
  const ends = tree.nodes[tree.root].examples;
  await showPath(byId("path"), path, ends, { linkTo, signal }).catch(ignoreAborted);
  show(byId("path"), !signal.aborted);
}

function ignoreAborted(error) {
  if (error.name !== "AbortError") throw error;
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

async function offerExamples() {
  const { entities } = await api.entities("", HUBS);
  const heads = new Set(entities.flatMap(({ examples }) => examples.map(([head]) => head)));
  const pages = [...heads].slice(0, 2).map((name) => api.edges(name, { limit: 100 }));
  const sizes = new Map(entities.map(({ name, edges }) => [name, edges]));
  const questions = (await Promise.all(pages)).map(({ edges }) => examplesFrom(edges, sizes));
  const links = [...new Set(questions.flat())].map((q) => el("li", {}, linkTo({ q }, q)));
  byId("examples").replaceChildren(...links);
  show(byId("examples-section"), links.length > 0);
}

function askForToken() {
  show(byId("token-form"), true);
  say("Enter the token of this server.");
  byId("token").focus();
}

async function start() {
  try {
    served = await api.model();
  } catch (error) {
    if (error.status === 401) return askForToken();
    return say(error.message);
  }
  show(byId("token-form"), false);
  const { graph, model } = served;
  const sizes = [count(graph.entities, "entity"), count(graph.relations, "relation")].join(", ");
  const words = model
    ? `Predictions by ${model.predictors.join(" and ")}.`
    : "Predictions are off: exact answers only.";
  byId("about").textContent = `A graph of ${sizes}. ${words}`;
  if (!model) show(byId("method-field"), false);
  if (model?.name === "rules") byId("method").querySelector("[value=embedding]").remove();
  show(byId("ask"), true);
  show(byId("browse"), true);
  await Promise.all([render(), offerExamples()]);
  return undefined;
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
  const [q, k, method, only] = ["question", "k", "method", "only"].map((id) => byId(id).value);
  go({ q: q.trim(), k, method, only });
});
for (const id of ["k", "method", "only"]) {
  byId(id).addEventListener("change", () => byId("ask").requestSubmit());
}
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
