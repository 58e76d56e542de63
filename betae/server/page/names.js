// Names as people read them; what the graph calls a thing is in its tooltip.

import { el } from "./dom.js";

const verbs = new Map(); // relation -> as a verb, such as "is located in"
const PREFIXED = /^\w*:(?=[^:\s]+$)/;
const BREAKS = /(?<=[_/:.#\-])(?=.)|(?<=\p{Ll})(?=\p{Lu})/u;

// Of an IRI the last part, decoded; any other name as it is.
export function plain(label) {
  if (!label.includes("://") && !PREFIXED.test(label)) return label;
  const local = label.split(/[/#]/).filter(Boolean).pop().replace(PREFIXED, "");
  try {
    return decodeURIComponent(local).replaceAll("_", " ") || label;
  } catch {
    return local.replaceAll("_", " ");
  }
}

// Remember how a relation is said: "… treats …", or "it treats …".
export function learn(relation, words) {
  verbs.set(relation, words.replace(/^(?:…|it) | (?:…|it)$/g, ""));
}

export const verb = (relation) => verbs.get(relation) ?? plain(relation);

// An edge in words.
export const sentence = ([head, relation, tail]) => `${plain(head)} ${verb(relation)} ${plain(tail)}`;

// Text that may break where a part of a name ends, and elsewhere only if it must.
export function breakable(text) {
  return text.split(BREAKS).flatMap((part, place) => (place ? [el("wbr"), part] : [part]));
}

export function named(label, name, attributes = {}) {
  const title = name === undefined || name === plain(label) ? {} : { title: name };
  return el("span", { ...title, ...attributes }, ...breakable(plain(label)));
}
