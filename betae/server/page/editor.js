// The question field: completes entities, relations, variables and operators.

import * as api from "./api.js";
import { Completion, nameOption } from "./completion.js";
import { byId } from "./dom.js";
import { placeIn, spell, variablesIn } from "./language.js";
import { expand, isSparql, placeInTriple, spellIri } from "./sparql.js";

const MOST = 8;
const OPERATORS = [
  { text: "&", kind: "and", insert: " & " },
  { text: "|", kind: "or", insert: " | " },
  { text: "& !", kind: "and not", insert: " & !" },
];
const PREFIXES = [
  { text: "!", kind: "not", insert: "!" },
  { text: "exists ?V :", kind: "there is a ?V", insert: "exists ?V : " },
  { text: "(", kind: "a group", insert: "(" },
];

export function makeEditor() {
  const input = byId("question");
  input.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text");
    if (!/[\r\n]/.test(text)) return; // a one-line field would join words across lines
    event.preventDefault();
    insert(input, input.selectionStart, input.selectionEnd, oneLine(text));
  });
  return new Completion(input, byId("suggestions"), {
    suggest,
    choose: (option, place) => {
      const [start, end] = [place.start, input.selectionStart];
      const isSpaced = option.insert.startsWith(" ") && /\s$/.test(input.value.slice(0, start));
      insert(input, start, end, isSpaced ? option.insert.trimStart() : option.insert);
      return true;
    },
  });
}

// Join lines by spaces; drop comments.
export function oneLine(text) {
  if (!/[\r\n]/.test(text)) return text.trim();
  return text
    .replace(/(^|\s)#(?!\d).*$/gm, "$1")
    .replace(/\s*[\r\n]+\s*/g, " ")
    .trim();
}

function insert(input, start, end, text) {
  input.setRangeText(text, start, end, "end");
  input.focus();
}

// Suggest what fits at the cursor; without a word there, only on request.
async function suggest(text, cursor, signal, isAsked) {
  const before = text.slice(0, cursor);
  const place = isSparql(text) ? placeInTriple(before) : placeIn(before);
  const { kind, typed } = place;
  if (kind === "none" || (!typed && !isAsked)) return { options: [], place };
  const options = await (isSparql(text) ? ofTriple : of)(kind, place, text, signal);
  return { options: options.slice(0, MOST + PREFIXES.length), place };
}

async function of(kind, { typed, argument }, text, signal) {
  if (kind === "start") return begins([{ text: "?X .", kind: "which ?X", insert: "?X . " }], typed);
  if (kind === "operator") return begins(OPERATORS, typed);
  if (kind === "formula") {
    const found = typed.startsWith("?")
      ? { relations: [] }
      : await api.relations(typed, MOST, signal);
    const named = found.relations.map((each) =>
      nameOption(each, "relation, ", `${spell(each.name)}(`),
    );
    return [...named, ...begins(PREFIXES, typed)];
  }
  const end = kind === "entity" ? "" : argument === 1 ? ", " : ")";
  const variables =
    kind === "entity" ? [] : variablesIn(`?X ${text}`).filter((name) => name !== typed);
  const own = variables.map((name) => ({ text: name, kind: "variable", insert: name + end }));
  if (typed.startsWith("?")) return begins(own, typed);
  const found = await api.entities(typed, MOST, signal);
  const entities = found.entities.map((each) =>
    nameOption(each, "entity, ", spell(each.name) + end),
  );
  return [...begins(own, typed), ...entities];
}

let prefixes; // of the graph

async function ofTriple(kind, { typed }, text, signal) {
  const variables = variablesIn(text).filter((name) => name !== typed);
  const own = variables.map((name) => ({ text: name, kind: "variable", insert: `${name} ` }));
  if (typed.startsWith("?")) return begins(own, typed);
  prefixes ??= (await api.model()).graph.prefixes;
  const short = Object.entries(prefixes).map(([prefix, iri]) => ({
    text: `${prefix}:`,
    kind: iri,
    insert: `${prefix}:`,
  }));
  const name = expand(typed, prefixes);
  const found =
    kind === "predicate"
      ? (await api.relations(name, MOST, signal)).relations
      : (await api.entities(name, MOST, signal)).entities;
  const names = found.map((each) =>
    nameOption(each, `${kind}, `, `${spellIri(each.name, prefixes)} `),
  );
  return [...begins([...own, ...short], typed), ...names];
}

function begins(options, typed) {
  return options.filter(({ text }) => text.startsWith(typed));
}
