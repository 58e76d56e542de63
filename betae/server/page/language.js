// Logic text: spelling of names, and what may come next.

const BARE = /^[\p{L}\p{N}_/][\p{L}\p{N}_/:.+-]*$/u;
const TOKENS =
  /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|<[^>\s]*>|\?\w+|#\d+|!=|[\p{L}\p{N}_/][\p{L}\p{N}_/:.+-]*|\S/gu;
const UNFINISHED = /(?:\?\w*|[\p{L}\p{N}_/][\p{L}\p{N}_/:.+-]*)?$/u;
const ARGUMENT = /[(,]\s*([^(),"'&|!<>]*)$/;

export function spell(name) {
  return BARE.test(name) && name !== "exists" && name !== "_" ? name : JSON.stringify(name);
}

// An atom that goes from one end to another: with `inverse`, against the relation's direction.
export function atom({ relation, inverse }, from, to) {
  return inverse ? `${spell(relation)}(${to}, ${from})` : `${spell(relation)}(${from}, ${to})`;
}

// The question that follows steps, each { relation, inverse }, from an entity.
export function pathQuestion(entity, steps) {
  const inner = steps.slice(1).map((_, place) => `?V${place + 1}`);
  const ends = [spell(entity), ...inner, "?X"];
  const atoms = steps.map((step, place) => atom(step, ends[place], ends[place + 1]));
  const exists = inner.length ? `exists ${inner.join(", ")} : ` : "";
  return `?X . ${exists}${atoms.join(" & ")}`;
}

// The unfinished words before the cursor, and what kind of thing they are. An argument may be
// several words, since labels are searched too.
export function placeIn(before) {
  const isQuoted = (before.replace(/\\./g, "").match(/"/g) ?? []).length % 2 === 1;
  const argument = isQuoted ? null : ARGUMENT.exec(before);
  if (argument) {
    const place = placeAt(before, argument[1]);
    if (place.kind === "argument") return place;
  }
  return placeAt(
    before,
    isQuoted ? before.slice(before.lastIndexOf('"')) : UNFINISHED.exec(before)[0],
  );
}

function placeAt(before, words) {
  const start = before.length - words.length;
  const tokens = before.slice(0, start).match(TOKENS) ?? [];
  return { start, typed: words.replace(/^"/, ""), ...expected(tokens) };
}

function expected(tokens) {
  const last = tokens.at(-1);
  if (last === undefined) return { kind: "start" };
  const atoms = []; // for each open bracket: is it that of an atom, and which argument is it
  tokens.forEach((token, place) => {
    const previous = tokens[place - 1] ?? "";
    if (token === "(") atoms.push({ isAtom: /[\p{L}\p{N}"'>_]$/u.test(previous), argument: 1 });
    else if (token === ")") atoms.pop();
    else if (token === "," && atoms.length) atoms.at(-1).argument = 2;
  });
  const inside = atoms.at(-1);
  if (inside?.isAtom) {
    if (last === "(" || last === ",") return { kind: "argument", argument: inside.argument };
    return { kind: "none" };
  }
  if (last === "=" || last === "!=") return { kind: "entity" };
  if (last === ")") return { kind: "operator" };
  if (/^[.:&|!(~∧∨¬-]$/u.test(last)) return { kind: "formula" };
  const before = tokens.at(-2);
  if (before === "=" || before === "!=") return { kind: "operator" };
  return { kind: "none" };
}

export const variablesIn = (text) => [...new Set(text.match(/\?\w+/g) ?? [])];
