// An entity: its edges by relation, and its most probable missing edges.

import * as api from "./api.js";
import { bar } from "./answers.js";
import { count, el, percent } from "./dom.js";
import { showEvidence } from "./evidence.js";
import { pathQuestion } from "./language.js";
import { breakable, named, plain, sentence, verb } from "./names.js";

const PAGE = 200; // edges
const FEW = 12; // edges of a relation that are shown at first
const MISSING = 8;

export async function showEntity(holder, name, { hasModel, linkTo, signal }) {
  const found = await api.edges(name, { limit: PAGE, signal });
  const edges = found.edges;
  const groups = el("div", { class: "groups" });
  const more = el("button", { type: "button" }, "More edges");
  const draw = () => {
    groups.replaceChildren(...byRelation(edges).map((each) => group(found.entity, each, linkTo)));
    more.hidden = edges.length >= found.total;
  };
  more.addEventListener("click", async () => {
    more.disabled = true;
    edges.push(...(await api.edges(name, { offset: edges.length, limit: PAGE })).edges);
    more.disabled = false;
    draw();
  });
  draw();
  const absent = el("div");
  if (hasModel) addMissing(absent, found.entity, linkTo, signal);
  holder.replaceChildren(
    el("h3", { tabindex: "-1" }, named(found.label, found.entity)),
    ...(found.label === found.entity ? [] : [el("p", { class: "note" }, ...breakable(found.entity))]),
    el("p", { class: "note" }, `${count(found.total, "known edge")}. Click a relation to follow it.`),
    valueList(found.values),
    groups,
    more,
    absent,
  );
}

// What the entity has besides edges: a line for each property.
function valueList(values) {
  const lines = new Map();
  for (const { property, text, language } of values) {
    const shown = language ? `${text} (${language})` : text;
    lines.set(property, [...(lines.get(property) ?? []), shown]);
  }
  const cells = [...lines].flatMap(([property, texts]) => [
    el("dt", { title: property }, plain(property)),
    el("dd", {}, texts.join(", ")),
  ]);
  return el("dl", { class: "values" }, ...cells);
}

// Lists of edges with the same relation and direction, in order.
function byRelation(edges) {
  const groups = new Map();
  for (const edge of edges) {
    const key = `${edge.direction} ${edge.relation}`;
    groups.set(key, [...(groups.get(key) ?? []), edge]);
  }
  return [...groups.values()];
}

const stepOf = (edge) => ({ relation: edge.relation, inverse: edge.direction === "in" });
const written = ({ relation, inverse }) =>
  inverse ? `← ${verb(relation)}` : `${verb(relation)} →`;

function otherEnd(edge, linkTo) {
  const [name, label] =
    edge.direction === "out" ? [edge.tail, edge.tail_label] : [edge.head, edge.head_label];
  return linkTo({ entity: name }, named(label, name));
}

function group(entity, edges, linkTo) {
  const step = stepOf(edges[0]);
  const items = edges.map((edge, place) =>
    el("li", { hidden: place >= FEW }, otherEnd(edge, linkTo)),
  );
  const list = el("ul", { class: "ends" }, ...items);
  if (edges.length > FEW) {
    const all = el("button", { type: "button" }, `${edges.length - FEW} more`);
    all.addEventListener("click", () => {
      items.forEach((item) => (item.hidden = false));
      all.parentElement.remove();
      items[FEW].querySelector("a").focus();
    });
    list.append(el("li", {}, all));
  }
  const title = el("h4", {}, linkTo({ q: pathQuestion(entity, [step]) }, ...breakable(written(step))));
  return el("section", {}, title, list);
}

// Predictions are slower than facts, so they are loaded after them.
async function addMissing(holder, name, linkTo, signal) {
  const title = el("h4", {}, "Most probable missing edges");
  holder.replaceChildren(title, el("p", { class: "note" }, "Loading…"));
  let missing;
  try {
    ({ missing } = await api.edges(name, { limit: 1, missing: MISSING, signal }));
  } catch (error) {
    if (error.name !== "AbortError") holder.lastChild.textContent = error.message;
    return;
  }
  if (!missing?.length) {
    holder.lastChild.textContent = "None found.";
    return;
  }
  const items = missing.map((edge, place) => {
    const panel = el("div", { id: `because-${place}`, class: "why", hidden: true });
    const words = `Why ${sentence([edge.head_label, edge.relation, edge.tail_label])}?`;
    const button = el(
      "button",
      { type: "button", "aria-expanded": "false", "aria-controls": panel.id, "aria-label": words },
      "Why?",
    );
    button.addEventListener("click", () => toggleReasons(button, panel, edge));
    return el(
      "li",
      {},
      el("span", { class: "label" }, `${written(stepOf(edge))} `, otherEnd(edge, linkTo)),
      bar(edge.probability),
      el("span", { class: "percent" }, percent(edge.probability)),
      button,
      panel,
    );
  });
  holder.replaceChildren(title, el("ul", { class: "absent" }, ...items));
}

async function toggleReasons(button, panel, { head, relation, tail }) {
  panel.hidden = !panel.hidden;
  button.setAttribute("aria-expanded", String(!panel.hidden));
  if (panel.hidden || panel.childElementCount) return;
  try {
    panel.replaceChildren(showEvidence(await api.why({ head, relation, tail })));
  } catch (error) {
    panel.replaceChildren(el("p", { role: "alert" }, error.message));
  }
}
