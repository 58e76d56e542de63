// What speaks for a predicted edge: paths as chains of boxes and arrows, in words, with bars.

import { bar } from "./answers.js";
import { count, el, percent } from "./dom.js";
import { breakable, plain, sentence, verb } from "./names.js";

export function showEvidence(evidence) {
  const [head, relation, tail] = evidence.edge;
  const { is_known: isKnown, probability } = evidence;
  const kind = isKnown ? "known" : "missing";
  const label = isKnown ? verb(relation) : `${verb(relation)} · ${percent(probability)}`;
  const predicted = chain([{ name: head }, { name: tail, label, kind, isForward: true }]);
  const parts = isKnown ? evidence.reasons.map(ofReason) : partsOf(evidence);
  const largest = Math.max(...parts.map(({ amount }) => Math.abs(amount)), 1e-9);
  const items = parts.map((part) => item(part, largest, isKnown));
  const total = `All parts add up to log-odds of ${signed(evidence.log_odds)}: ${percent(probability)}.`;
  const known = items.length ? "A known edge. Others that speak for it:" : "A known edge.";
  return el(
    "div",
    { class: "evidence" },
    predicted,
    el("ul", { class: "parts", "aria-label": `What speaks for ${sentence(evidence.edge)}` }, ...items),
    el("p", { class: "note" }, isKnown ? known : total),
  );

  function ofReason({ text, rule, paths, log_odds: amount }) {
    return { text, rule, amount, picture: paths.length ? chain(along(paths[0], head)) : null };
  }

  function partsOf({ reasons, models, others, num_others: more, base_rate: base }) {
    const rest = more ? [{ text: `${count(more, "weaker reason")}`, amount: others }] : [];
    const scores = Object.entries(models).map(([name, amount]) => ({ text: `model ${name}`, amount }));
    return [
      ...reasons.map(ofReason),
      ...rest,
      ...scores,
      { text: "base rate of such edges", amount: base },
    ];
  }
}

const signed = (number) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(2)}`;

function item({ text, rule, picture, amount }, largest, isKnown) {
  const size = el(
    "span",
    { class: `amount ${amount < 0 ? "against" : "for"}` },
    bar(Math.abs(amount) / largest),
    el("span", { class: "percent" }, signed(amount)),
  );
  const words = el("p", {}, text, ...(rule ? [" ", asRule(rule)] : []));
  return el("li", {}, ...(picture ? [picture] : []), words, ...(isKnown ? [] : [size]));
}

function asRule(rule) {
  return el("details", { class: "rule" }, el("summary", {}, "rule"), el("code", {}, rule));
}

// The entities along a path, from the head of the predicted edge, each with the edge before it.
function along(path, head) {
  const has = (edge, name) => edge[0] === name || edge[2] === name;
  const isFromHead = has(path[0], head) && (path.length === 1 || !has(path.at(-1), head));
  let name = head;
  const steps = (isFromHead ? path : [...path].reverse()).map(([from, label, to]) => {
    const isForward = from === name;
    name = isForward ? to : from;
    return { name, label: verb(label), kind: "known", isForward };
  });
  return [{ name: head }, ...steps];
}

// Boxes and arrows, from left to right, or downwards where there is no room; the words follow.
function chain(steps) {
  const parts = steps.flatMap(({ name, label, kind, isForward }) => {
    const box = el("span", { class: "node" }, ...breakable(plain(name)));
    if (!label) return [box];
    return [el("span", { class: `link ${kind} ${isForward ? "" : "back"}` }, ...breakable(label)), box];
  });
  return el("div", { class: "chain", "aria-hidden": "true" }, ...parts);
}
