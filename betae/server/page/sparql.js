// SPARQL: the part of a triple at the cursor, and the spelling of names.

const TOKENS = /<[^<>\s]*>|"(?:[^"\\]|\\.)*"|[{}();,.]|[^\s{}();,<>"]+/g;
const UNFINISHED = /(?:<[^<>\s]*|[?$]\w*|[\p{L}\p{N}_][^\s{}();,<>"]*)?$/u;
const KINDS = ["subject", "predicate", "object"];
const TERM = /^(?:<.*>|".*"|[?$]\w+|\S*:\S*|a)$/;
const IRI = /^[A-Za-z][\w+.-]*:[^<>"{}|^`\\\s]*$/;
const LOCAL = /^\w(?:[\w.-]*[\w-])?$/;

export const isSparql = (text) => /^\s*(select|prefix|base)\b/i.test(text);

// The unfinished name before the cursor, and its part of a triple, if any.
export function placeInTriple(before) {
  const typed = UNFINISHED.exec(before)[0];
  const start = before.length - typed.length;
  let [depth, part] = [0, 0];
  for (const token of before.slice(0, start).match(TOKENS) ?? []) {
    if (token === "{") depth += 1;
    else if (token === "}") depth -= 1;
    if (token === ";") part = 1;
    else if (token === ",") part = 2;
    else part = TERM.test(token) && !token.endsWith(".") ? part + 1 : 0;
  }
  const kind = depth > 0 ? (KINDS[part] ?? "none") : "none";
  return { start, typed: decode(typed.replace(/^</, "")), kind };
}

// Spell a name with a prefix, as an IRI, or as a plain name in < >.
export function spellIri(name, prefixes) {
  for (const [prefix, iri] of Object.entries(prefixes)) {
    const local = name.slice(iri.length);
    if (name.startsWith(iri) && LOCAL.test(local)) return `${prefix}:${local}`;
  }
  return `<${IRI.test(name) ? name : encodeURIComponent(name).replaceAll("%2F", "/")}>`;
}

// Expand the prefix of a name.
export function expand(typed, prefixes) {
  const found = Object.entries(prefixes).find(([prefix]) => typed.startsWith(`${prefix}:`));
  return found ? found[1] + typed.slice(found[0].length + 1) : typed;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // an incomplete escape
  }
}
