// The best derivations of an answer, each drawn as a small graph, and what speaks for them.

import { count, el, percent } from "./dom.js";
import { drawTree, frame, line } from "./draw.js";
import { showEvidence } from "./evidence.js";
import { plain, sentence, verb } from "./names.js";

const KEY = "Solid: known edge. Dashed: missing edge with its probability. Dotted: condition.";

export function drawDerivations(holder, answer) {
  const steps = [answer.why, ...answer.further];
  const parts = steps.flatMap((step, place) => {
    const part = el("div");
    drawDerivation(part, answer.label, step);
    const title = `Derivation ${place + 1} of ${answer.num_derivations ?? steps.length}`;
    return steps.length > 1 ? [el("h3", {}, title), part] : [part];
  });
  const more = (answer.num_derivations ?? 0) - steps.length;
  const added = answer.others > 0.001 ? `; they add ${percent(answer.others)}` : "";
  const rest = more > 0 ? `And ${count(more, "derivation")} more${added}. ` : "";
  const reasons = steps.flatMap(missing).map(({ edge, evidence }) => [sentence(edge), evidence]);
  const once = [...new Map(reasons)].flatMap(([edge, evidence]) => [
    el("h3", {}, `Why ${edge}?`),
    showEvidence(evidence),
  ]);
  holder.replaceChildren(...parts, el("p", { class: "note" }, rest + KEY), ...once);
}

function drawDerivation(holder, name, why) {
  const picture = el("div", { class: "picture" });
  const words = sentences(why);
  const text = el("ul", { class: "steps" }, ...words.map((each) => el("li", {}, each)));
  holder.replaceChildren(picture, text);
  const label = `Derivation of ${name}: ${words.join("; ")}`;
  const make = () => entity(name, [why], "root");
  drawTree(picture, make, { label, boxWidth: 170, gap: 140 });
}

function entity(name, steps, kind = "entity") {
  const height = 34;
  return {
    height,
    children: steps.flatMap((step) => reasons(step, name)),
    draw: (width) => [frame(width, height, kind), line(plain(name), 10, 22, width, "title")],
  };
}

// The steps behind an entity: edges from other entities, and conditions.
function reasons(step, name) {
  if (step.status === "and") return step.sources.flatMap((source) => reasons(source, name));
  if (step.edge) {
    const [head, relation, tail] = step.edge;
    const isToIt = tail === name;
    const kind = step.status;
    const label = kind === "missing" ? `${verb(relation)}\n${percent(step.probability)}` : verb(relation);
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
  const said = step.edge ? sentence(step.edge) : step.text;
  return [`${said} (${status}${sure})`, ...below];
}
