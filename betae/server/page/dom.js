// Builds elements without HTML: text is inserted as text, so a label may contain markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

// el("a", { href: "…", onclick: f }, "text", otherElement)
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

export function show(node, isShown) {
  node.hidden = !isShown;
}

export function count(number, noun) {
  const plural = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

// Format a probability; 100% is reserved for facts.
export function percent(probability, isFact = false) {
  if (probability === null || probability === undefined) return "–";
  if (!isFact && probability > 0.999) return ">99.9%";
  if (probability < 0.001) return probability === 0 ? "0%" : "<0.1%";
  return `${(100 * probability).toFixed(1)}%`;
}

export function shorten(text, most) {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}
