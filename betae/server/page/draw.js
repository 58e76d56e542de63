// Trees as SVG: side by side where there is room, else indented, one node below the other.

import { shorten, svg } from "./dom.js";

const NARROW = 620; // pixels
const INDENT = 20;
const CHARACTER = 7.4; // average width in pixels

// Draw the tree that make(isNarrow) returns into a holder, again when its width changes. A node is
// { height, children, draw(width), link }, a link { label, kind, arrow }: its kind is "known",
// "missing" or "condition", and the arrow points to the "parent" or to the "child".
export function drawTree(holder, make, { label, boxWidth, gap }) {
  let drawnFor = 0;
  const redraw = () => {
    const width = Math.floor(holder.clientWidth);
    if (!width || width === drawnFor) return;
    drawnFor = width;
    const depth = depthOf(make(false));
    const wide = Math.floor((width - 2 - (depth - 1) * gap) / depth);
    const isNarrow = width < Math.max(NARROW, depth * boxWidth + (depth - 1) * gap);
    const { parts, ...size } = isNarrow
      ? indented(make(true), width)
      : sideBySide(make(false), Math.min(wide, 1.5 * boxWidth), gap);
    holder.replaceChildren(svg("svg", { role: "img", "aria-label": label, ...size }, ...parts));
  };
  new ResizeObserver(redraw).observe(holder);
  redraw();
}

function depthOf(node) {
  return 1 + Math.max(0, ...node.children.map(depthOf));
}

function box(node, x, y, width) {
  return svg("g", { transform: `translate(${x} ${y})` }, ...node.draw(width));
}

// ---- wide: the root on the right ----------------------------------------------------------------

function sideBySide(root, boxWidth, gap) {
  const parts = [];
  const depth = depthOf(root);
  let bottom = 2;
  function place(node, level) {
    const x = 1 + (depth - 1 - level) * (boxWidth + gap);
    const below = node.children.map((child) => place(child, level + 1));
    const top = below.length
      ? Math.max(2, (below[0].y + below.at(-1).y - node.height) / 2)
      : bottom;
    bottom = Math.max(bottom, top + node.height + 12);
    node.children.forEach((child, place) => {
      const from = { x: below[place].x + boxWidth, y: below[place].y };
      parts.push(...curve(from, { x, y: top + node.height / 2 }, child.link, gap));
    });
    parts.push(box(node, x, top, boxWidth));
    return { x, y: top + node.height / 2 };
  }
  place(root, 0);
  return { parts, width: depth * boxWidth + (depth - 1) * gap + 2, height: bottom - 8 };
}

function curve(from, to, link, gap) {
  const middle = (from.x + to.x) / 2;
  const d = `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  const parts = [svg("path", { d, class: `line ${link.kind ?? ""}` })];
  if (link.arrow) {
    const [tip, towards] = link.arrow === "parent" ? [to, 1] : [from, -1];
    parts.push(arrowHead(tip.x, tip.y, towards));
  }
  if (link.label) {
    const most = Math.floor((gap - 16) / CHARACTER);
    link.label.split("\n").forEach((words, row) => {
      parts.push(text(words, from.x + 12, from.y + (row ? 15 : -6), most, "link-label"));
    });
  }
  return parts;
}

function arrowHead(x, y, towards) {
  const points = `${x},${y} ${x - 8 * towards},${y - 4} ${x - 8 * towards},${y + 4}`;
  return svg("polygon", { points, class: "arrow" });
}

function text(content, x, y, most, kind) {
  return svg("text", { x, y, class: kind }, svg("title", {}, content), shorten(content, most));
}

// ---- narrow: the root on top --------------------------------------------------------------------

function indented(root, width) {
  const parts = [];
  let bottom = 2;
  function place(node, level) {
    const x = 1 + level * INDENT;
    const label = node.link?.label?.replace("\n", " · ");
    if (label) {
      const sign = { parent: "↑ ", child: "↓ " }[node.link.arrow] ?? "";
      const most = Math.floor((width - x) / CHARACTER);
      parts.push(text(sign + label, x, bottom + 12, most, "link-label"));
      bottom += 20;
    }
    const top = bottom;
    parts.push(box(node, x, top, width - x - 2));
    bottom += node.height + 10;
    for (const child of node.children) {
      const middle = place(child, level + 1);
      const d = `M${x + INDENT / 2} ${top + node.height}V${middle}H${x + INDENT}`;
      parts.unshift(svg("path", { d, class: `line ${child.link.kind ?? ""}` }));
    }
    return top + node.height / 2;
  }
  place(root, 0);
  return { parts, width, height: bottom - 6 };
}

// ---- parts of boxes ---------------------------------------------------------------------

export function frame(width, height, kind) {
  return svg("rect", { width, height, rx: 6, class: `box ${kind}` });
}

export function line(content, x, y, width, kind = "") {
  return text(content, x, y, Math.max(4, Math.floor((width - 2 * x) / CHARACTER)), kind);
}
