// The form for one condition: a relation and where it leads, a class, or a value that compares.

import { el } from "./dom.js";
import { flip } from "./model.js";
import { plain } from "./names.js";
import { picker } from "./picker.js";

const SIGNS = ["<", "<=", "=", ">=", ">", "!="];
const OF_TEXT = { "~": "contains", "=": "is", "!=": "is not" };
const HOWS = { and: "and it must", "and not": "and it must not", or: "or else it may" };
const NESTED = "something that …";

// `steps` is the server's answer about what is there; `all` are all relations, in both directions.
// `done(item, how)` gets the new item and how it is joined. Without `how` there is nothing to join.
export function conditionForm({ steps, all, hasHow, done, cancel, stepsFrom }) {
  const how = hasHow ? select("Join", Object.entries(HOWS)) : null;
  const rest = el("div", { class: "rest" });
  const finish = (item) => done(item, how?.control.value ?? "and");
  const kind = picker({
    label: "Condition",
    first: kindsOf(steps, all),
    isClosed: true,
    take: (option) => {
      rest.replaceChildren();
      option.go(rest, finish, stepsFrom);
    },
  });
  const leave = el("button", { type: "button", class: "quiet", onclick: cancel }, "Cancel");
  const parts = [how?.node, kind.node, rest, leave].filter(Boolean);
  const form = el("div", { class: "condition", role: "group", "aria-label": "New condition" }, ...parts);
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.stopPropagation();
    cancel();
  });
  return { node: form, focus: () => (how?.control ?? kind.input).focus() };
}

let selects = 0; // each has an id of its own

function select(label, options) {
  const id = `select-${(selects += 1)}`;
  const control = el("select", { id }, ...options.map(([value, text]) => el("option", { value }, text)));
  return { control, node: el("div", {}, el("label", { for: id }, label), " ", control) };
}

// What a condition can be about, and what each choice goes on with.
function kindsOf({ relations, classes, properties, num_sampled: sampled }, all) {
  const share = (number) => `${number.toLocaleString("en")} of ${sampled.toLocaleString("en")}`;
  const linked = new Set(relations.map(({ relation }) => relation));
  const ofRelation = (each, kind) => ({
    text: each.words,
    kind,
    go: (...given) => relationEnd(each, ...given),
  });
  return [
    ...relations.map((each) => ofRelation(each, share(each.answers))),
    ...classes.map(({ name, label, answers }) => ({
      text: `it is of type ${label}`,
      kind: share(answers),
      go: (rest, finish) => finish({ kind: "class", name }),
    })),
    ...properties.map((each) => ({
      text: `its ${each.label} is …`,
      kind: share(each.answers),
      go: (rest, finish) => {
        rest.replaceChildren(valueFields(each, finish));
        rest.querySelector("select").focus();
      },
    })),
    ...all
      .filter(({ relation }) => !linked.has(relation))
      .map((each) => ofRelation(each, "no known answer")),
  ];
}

// Where a relation leads: one of the frequent ends, any entity, or a nested condition.
function relationEnd({ relation, words, ends = [] }, rest, finish, stepsFrom) {
  const step = (of) => finish({ kind: "step", relation: flip(relation), of });
  const first = ends.map(({ entity, label, number }) => ({
    text: plain(label),
    kind: `${number} have it`,
    entity: { name: entity, label },
  }));
  const nested = { text: NESTED, kind: "another condition", isNested: true };
  const choose = picker({
    label: words.replace("…", "___"),
    first: [...first, nested],
    take: async (option) => {
      if (!option.isNested) {
        step({ join: "and", items: [{ not: false, kind: "entity", name: option.entity.name }] });
        return;
      }
      const inner = conditionForm({
        ...(await stepsFrom(relation)),
        hasHow: false,
        done: (item) => step({ join: "and", items: [{ ...item, not: false }] }),
        cancel: () => rest.replaceChildren(),
        stepsFrom: async (next) => stepsFrom(relation, next),
      });
      rest.replaceChildren(el("p", {}, words.replace("…", NESTED)), inner.node);
      inner.focus();
    },
  });
  rest.replaceChildren(choose.node);
  choose.open();
}

// Fields for a comparison with a value.
export function valueFields({ property, label, kind, least, greatest }, finish, verb = "Add") {
  const signs =
    kind === "text"
      ? Object.entries(OF_TEXT)
      : kind === "boolean"
        ? [["=", "is"]]
        : SIGNS.map((sign) => [sign, sign]);
  const sign = select(label, signs);
  const range = least === null || kind === "text" ? "" : ` (from ${least} to ${greatest})`;
  const type = { number: "number", date: "date", time: "time" }[kind] ?? "text";
  const value =
    kind === "boolean"
      ? el("select", {}, el("option", {}, "true"), el("option", {}, "false"))
      : el("input", { type, ...(type === "number" && { step: "any" }), autocomplete: "off" });
  value.setAttribute("aria-label", `Value of ${label}${range}`);
  const add = () => {
    if (!value.value) return value.focus();
    return finish({ kind: "value", property, is: sign.control.value, ...typed(kind, value.value) });
  };
  value.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    add();
  });
  const button = el("button", { type: "button", onclick: add }, verb);
  const note = range ? [el("span", { class: "note" }, range.trim())] : [];
  return el("div", { class: "value" }, sign.node, value, button, ...note);
}

function typed(kind, text) {
  if (kind === "number") return { value: Number(text) };
  if (kind === "boolean") return { value: text === "true" };
  return kind === "text" ? { value: text } : { value: text, type: kind };
}
