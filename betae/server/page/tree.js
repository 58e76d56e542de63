// The computation tree of a question: how many exact answers each node has, and its embedding.

import { densities } from "./beta.js";
import { count, el } from "./dom.js";
import { drawTree, frame, line } from "./draw.js";

const SIGNS = { and: "∧ and", or: "∨ or", not: "¬ not" };
const CURVES = 40; // the height of the field of densities

export function drawComputation(holder, tree, linkTo) {
  const picture = el("div", { class: "picture" });
  holder.replaceChildren(picture, note(tree), asText(tree, linkTo));
  const label = `Computation tree of ${tree.query}; the same follows as text.`;
  const make = (isNarrow) => item(tree, tree.root, isNarrow);
  drawTree(picture, make, { label, boxWidth: 158, gap: 34 });
}

// A question that only follows relations from one entity is a path: its start and its steps.
export function pathOf(tree) {
  const steps = [];
  let node = tree.nodes[tree.root];
  while (node.operator === "project") {
    steps.unshift({ relation: node.relation, inverse: node.inverse });
    node = tree.nodes[node.operands[0]];
  }
  return node.operator === "entity" && steps.length ? { entity: node.entity, steps } : null;
}

function title(node) {
  if (node.operator !== "project") return SIGNS[node.operator] ?? node.label;
  return node.inverse ? `← ${node.label.replace(/^~/, "")}` : `→ ${node.label}`;
}

// Branches of a union have an embedding each; the first is drawn.
function item(tree, id, isNarrow) {
  const node = tree.nodes[id];
  const embedding = node.embeddings?.[0];
  const isDrawn = Boolean(embedding?.alpha?.length);
  const entropy = embedding?.entropy;
  const height = 46 + (isDrawn && !isNarrow ? CURVES + 6 : 0) + (entropy === undefined ? 0 : 18);
  const curves = (width) =>
    isNarrow
      ? densities(embedding, width - 96, 9, 86, height - 18)
      : densities(embedding, 10, 46, width - 20, CURVES);
  return {
    height,
    children: node.operands.map((operand) => ({ ...item(tree, operand, isNarrow), link: {} })),
    draw: (width) => [
      frame(width, height, id === tree.root ? "root" : node.operator),
      line(title(node), 10, 19, width - (isDrawn && isNarrow ? 96 : 0), "title"),
      line(count(node.num_answers, "answer"), 10, 37, width, "small"),
      ...(isDrawn ? curves(width) : []),
      ...(entropy === undefined ? [] : [line(entropyOf(node), 10, height - 9, width, "small")]),
    ],
  };
}

function entropyOf({ embeddings }) {
  const shown = embeddings.map((each) => each.entropy.toFixed(1).replace("-", "−"));
  return `entropy ${shown.join(", ")}`;
}

function note(tree) {
  const numbers = "Each node shows its number of exact answers.";
  const dims = tree.nodes.flatMap((node) => node.embeddings ?? [])[0]?.alpha?.length;
  const curves =
    ` Curves: the Beta densities of the first ${dims} dimensions of each embedding, from 0 to 1. ` +
    "Lower entropy: the model is more certain of the set.";
  return el("p", { class: "note" }, numbers, dims ? curves : "");
}

function asText(tree, linkTo) {
  const rows = tree.nodes.map((node) => {
    const more = node.num_answers > node.examples.length ? ", …" : "";
    const some = node.examples.map((example) => example.label).join(", ");
    const entropy = node.embeddings?.[0]?.entropy === undefined ? "" : `, ${entropyOf(node)}`;
    return el(
      "li",
      {},
      linkTo({ q: node.text }, node.text),
      ` ${count(node.num_answers, "exact answer")}${entropy}${some && ": "}${some}${more}`,
    );
  });
  return el("details", {}, el("summary", {}, "The tree as text"), el("ol", {}, ...rows));
}
