// The best derivation of an answer, drawn as a small graph.

import { el, percent } from "./dom.js";
import { drawTree, frame, line } from "./draw.js";
import { showEvidence } from "./evidence.js";

export function drawDerivation(holder, answer) {
  const picture = el("div", { class: "picture" });
  const words = sentences(answer.why);
  const text = el("ul", { class: "steps" }, ...words.map((each) => el("li", {}, each)));
  const key =
    "Solid: known edge. Dashed: missing edge with its probability. Dotted: condition.";
  const reasons = missing(answer.why).flatMap(({ edge, evidence }) => [
    el("h3", {}, `Why ${edge.join(" ")}?`),
    showEvidence(evidence),
  ]);
  holder.replaceChildren(picture, el("p", { class: "note" }, key), text, ...reasons);
  const label = `Derivation of ${answer.label}: ${words.join("; ")}`;
  const make = () => entity(answer.label, [answer.why], "root");
  drawTree(picture, make, { label, boxWidth: 170, gap: 140 });
}

function entity(name, steps, kind = "entity") {
  const height = 34;
  return {
    height,
    children: steps.flatMap((step) => reasons(step, name)),
    draw: (width) => [frame(width, height, kind), line(name, 10, 22, width, "title")],
  };
}

// The steps behind an entity: edges from other entities, and conditions.
function reasons(step, name) {
  if (step.status === "and") return step.sources.flatMap((source) => reasons(source, name));
  if (step.edge) {
    const [head, relation, tail] = step.edge;
    const isToIt = tail === name;
    const kind = step.status;
    const label = kind === "missing" ? `${relation}\n${percent(step.probability)}` : relation;
    const link = { label, kind, arrow: isToIt ? "parent" : "child" };
    return [{ ...entity(isToIt ? head : tail, step.sources), link }];
  }
  return step.text === name ? [] : [condition(step, name)];
}

function condition(step, name) {
  const text = step.text.startsWith(`${name} is `) ? step.text.slice(name.length + 1) : step.text;
  const height = 34;
  const link = { label: percent(step.probability), kind: "condition" };
  const draw = (width) => [frame(width, height, "condition"), line(text, 10, 22, width)];
  return { height, children: [], draw, link };
}

// The missing edges of a derivation that have evidence.
const missing = (step) => [
  ...(step.edge && step.evidence ? [step] : []),
  ...step.sources.flatMap(missing),
];

function sentences(step) {
  const below = step.sources.flatMap(sentences);
  if (step.status === "and") return below;
  const sure = step.status === "known" ? "" : `, ${percent(step.probability)}`;
  const status = { known: "known", missing: "missing", not: "no such edge is known" }[step.status];
  return [`${step.text} (${status}${sure})`, ...below];
}
