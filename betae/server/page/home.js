// The start: questions that have good answers, and what the graph holds.

import { count, el, percent } from "./dom.js";
import { spell } from "./language.js";
import { breakable, plain } from "./names.js";

const SHOWN = 3; // answers of an example

export function showExamples(holder, examples, linkTo) {
  const items = examples.map((each) =>
    el(
      "li",
      {},
      linkTo({ q: each.question }, ...breakable(each.words)),
      el("span", { class: "note" }, taste(each)),
    ),
  );
  holder.replaceChildren(...items);
}

function taste({ known, answers, predicted }) {
  const some = answers.slice(0, SHOWN).map(plain).join(", ");
  const facts = `${count(known, "known answer")}: ${some}${known > SHOWN ? ", …" : ""}`;
  if (!predicted) return facts;
  return `${facts}; perhaps also ${plain(predicted.label)} (${percent(predicted.probability)})`;
}

export function showGraph(holder, home, linkTo) {
  const { entities, edges, values, relations, frequent, classes, properties } = home;
  const sizes = [count(entities, "entity"), count(edges, "edge"), count(relations, "relation")];
  if (values) sizes.push(count(values, "value"));
  const types = classes.map(({ name, label, entities: number }) =>
    el("li", {}, linkTo({ q: `?X . ${spell(name)}(?X)` }, label), ` ${number.toLocaleString("en")}`),
  );
  const parts = [el("p", { class: "figures" }, sizes.join(", "))];
  if (types.length) parts.push(el("h3", {}, "Types"), el("ul", { class: "ends" }, ...types));
  if (properties.length) {
    parts.push(el("h3", {}, "Values"), el("p", {}, properties.join(", ")));
  }
  const less = relations - frequent.length;
  parts.push(
    relationTable(frequent),
    ...(less > 0 ? [el("p", { class: "note" }, `And ${count(less, "less frequent relation")}.`)] : []),
  );
  holder.replaceChildren(...parts);
}

function relationTable(relations) {
  const titles = ["Relation", "Edges", "For example"].map((text) => el("th", { scope: "col" }, text));
  const rows = relations.map(({ name, words, heads, tails, edges, examples }) => {
    const ends = heads.length || tails.length ? [heads, tails].map(ofClasses) : null;
    const said = ends ? words.replace("…", ends[0]).replace(/…$/, ends[1]) : words;
    return el(
      "tr",
      {},
      el("th", { scope: "row", title: name }, ...breakable(said)),
      el("td", { class: "number" }, edges.toLocaleString("en")),
      el("td", {}, ...breakable(examples.map((pair) => pair.split(" → ").map(plain).join(" → ")).join("; "))),
    );
  });
  const table = el("table", {}, el("caption", {}, "Relations"), el("thead", {}, el("tr", {}, ...titles)), el("tbody", {}, ...rows));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Relations" }, table);
}

const ofClasses = (names) => names.map(plain).join(" or ") || "anything";
