// The question in words, as logic text and as SPARQL; each can be edited.

import { el } from "./dom.js";

const FIELDS = [
  { key: "words", label: "Words", id: "in-words" },
  { key: "question", label: "Logic text", id: "in-logic" },
  { key: "sparql", label: "SPARQL", id: "in-sparql" },
];

// `ask(text)` gets an edited text.
export function showNotations(holder, said, ask) {
  const fields = FIELDS.map(({ key, label, id }) => {
    const text = said[key] ?? "";
    const why = key === "sparql" ? said.no_sparql : "";
    const field = el("textarea", { id, rows: rowsFor(text), spellcheck: "false", maxlength: "8000" });
    field.value = text;
    const use = el("button", { type: "submit", hidden: true }, `Use these ${key === "words" ? "words" : "changes"}`);
    field.addEventListener("input", () => (use.hidden = field.value === text));
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      form.requestSubmit();
    });
    const note = why ? [el("p", { class: "note" }, why)] : [];
    const form = el("form", {}, el("label", { for: id }, label), field, use, ...note);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim() && field.value !== text) ask(field.value.trim());
    });
    return form;
  });
  holder.replaceChildren(...fields);
}

const rowsFor = (text) =>
  Math.max(1, text.split("\n").reduce((rows, line) => rows + 1 + Math.floor(line.length / 40), 0));
