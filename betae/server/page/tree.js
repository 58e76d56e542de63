// The computation tree of a question: how many exact answers each node has, and its embedding.

import { densities } from "./beta.js";
import { count, el } from "./dom.js";
import { drawTree, frame, line } from "./draw.js";
import { plain, verb } from "./names.js";

const SIGNS = { and: "∧ and", or: "∨ or", not: "¬ not" };
const CURVES = 40; // the height of the field of densities

export function drawComputation(holder, tree, linkTo) {
  const plainTree = { ...tree, nodes: tree.nodes.map((node) => ({ ...node, embeddings: [] })) };
  draw(holder, plainTree, "Computation tree; the same follows as text.");
  const note = "Each part of the question with its number of exact answers.";
  holder.append(el("p", { class: "note" }, note), asText(tree, linkTo));
}

// The same tree with the embedding of each node; false if it has none.
export function drawEmbedding(holder, tree) {
  const has = tree.nodes.some((node) => node.embeddings?.length);
  if (has) {
    draw(holder, tree, "Embeddings of the computation tree.");
    holder.append(noteOn(tree));
  }
  return has;
}

function draw(holder, tree, label) {
  const picture = el("div", { class: "picture" });
  holder.replaceChildren(picture);
  const make = (isNarrow) => item(tree, tree.root, isNarrow);
  drawTree(picture, make, { label, boxWidth: 158, gap: 34 });
}

function title(node) {
  if (node.operator !== "project") return SIGNS[node.operator] ?? plain(node.label);
  return `${node.inverse ? "←" : "→"} ${verb(node.relation)}`;
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

function noteOn(tree) {
  const dims = tree.nodes.flatMap((node) => node.embeddings ?? [])[0]?.alpha?.length;
  const curves = `Curves: the Beta densities of the first ${dims} dimensions of each embedding, from 0 to 1. `;
  const entropy = "Lower entropy: the model is more certain of the set.";
  return el("p", { class: "note" }, dims ? curves : "", entropy);
}

function asText(tree, linkTo) {
  const rows = tree.nodes.map((node) => {
    const more = node.num_answers > node.examples.length ? ", …" : "";
    const some = node.examples.map((example) => plain(example.label)).join(", ");
    return el(
      "li",
      {},
      linkTo({ q: node.text }, node.text),
      ` ${count(node.num_answers, "exact answer")}${some && ": "}${some}${more}`,
    );
  });
  return el("details", {}, el("summary", {}, "The tree as text"), el("ol", {}, ...rows));
}
