// The answers and the edges behind them as one graph: sources on the left, answers on the right.

import { percent, shorten, svg } from "./dom.js";
import { plain, sentence } from "./names.js";

const ROW = 34;
const BOX = 26;
const CHARACTER = 7.4; // average width in pixels
const NARROW = 130; // least width of a column

export function drawMap(holder, answers) {
  const graph = gather(answers);
  let drawnFor = 0;
  const redraw = () => {
    const width = Math.floor(holder.clientWidth);
    if (!width || width === drawnFor) return;
    drawnFor = width;
    holder.replaceChildren(picture(graph, width));
  };
  new ResizeObserver(redraw).observe(holder);
  redraw();
}

// Nodes by name with their column, counted from the answers, and distinct edges.
function gather(answers) {
  const nodes = new Map();
  const edges = new Map();
  const meet = (name, column, status) => {
    const node = nodes.get(name) ?? { name, column, status };
    nodes.set(name, { ...node, column: Math.max(node.column, column), status: node.status ?? status });
  };
  const visit = (step, column) => {
    if (step.edge) {
      const [head, relation, tail] = step.edge;
      const near = step.target ?? tail;
      edges.set(step.edge.join("\t"), { head, relation, tail, status: step.status, probability: step.probability });
      const far = near === tail ? head : tail;
      meet(far, column + 1);
      for (const source of step.sources) visit({ ...source, target: far }, column + 1);
      return;
    }
    for (const source of step.sources) visit({ ...source, target: step.target }, column);
  };
  for (const { label, status, why } of answers) {
    meet(label, 0, status);
    if (why) visit({ ...why, target: label }, 0);
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

function picture({ nodes, edges }, width) {
  const depth = 1 + Math.max(...nodes.map(({ column }) => column));
  const space = Math.max(NARROW, width / depth);
  const gap = depth > 1 ? Math.min(160, space * (width < 600 ? 0.25 : 0.4)) : 0;
  const box = Math.min(280, space - gap);
  const places = new Map();
  const columns = Array.from({ length: depth }, (_, column) => nodes.filter((node) => node.column === column));
  const tallest = Math.max(...columns.map((column) => column.length)) * ROW;
  columns.forEach((column, number) => {
    const step = tallest / column.length;
    column.forEach((node, row) => {
      const x = (depth - 1 - number) * (box + gap) + 1;
      places.set(node.name, { x, y: step * (row + 0.5) });
    });
  });
  const size = { width: Math.ceil(depth * box + (depth - 1) * gap + 2), height: Math.ceil(tallest + 8) };
  const label = `${nodes.length} entities and ${edges.length} edges behind the answers; the list has them in words.`;
  return svg(
    "svg",
    { role: "img", "aria-label": label, ...size },
    ...edges.flatMap((edge) => line(edge, places, box)),
    ...nodes.map((node) => boxOf(node, places.get(node.name), box)),
  );
}

function line({ head, relation, tail, status, probability }, places, box) {
  const [one, two] = [places.get(head), places.get(tail)];
  const isRight = one.x < two.x;
  const from = { x: one.x + (isRight ? box : 0), y: one.y };
  const to = { x: two.x + (isRight ? 0 : box), y: two.y };
  const same = one.x === two.x;
  if (same) to.x = from.x;
  const middle = same ? from.x - 20 : (from.x + to.x) / 2;
  const d = `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  const way = isRight ? 1 : -1;
  const points = `${to.x},${to.y} ${to.x - 8 * way},${to.y - 4} ${to.x - 8 * way},${to.y + 4}`;
  const sure = status === "missing" ? ` (missing, ${percent(probability)})` : "";
  const title = svg("title", {}, sentence([head, relation, tail]) + sure);
  return [
    svg("path", { d, class: `line ${status}` }, title),
    ...(same ? [] : [svg("polygon", { points, class: "arrow" })]),
  ];
}

function boxOf({ name, status }, { x, y }, width) {
  const text = shorten(plain(name), Math.max(4, Math.floor((width - 16) / CHARACTER)));
  return svg(
    "g",
    { transform: `translate(${x} ${y - BOX / 2})` },
    svg("rect", { width, height: BOX, rx: 6, class: `box ${status ? `root ${status}` : "entity"}` }),
    svg("text", { x: 8, y: 18 }, svg("title", {}, plain(name)), text),
  );
}
