// Filters: a type or a value that an answer must have becomes a condition of the question.

import { valueFields } from "./condition.js";
import { el, show } from "./dom.js";

// `add(tree)` gets a condition.
export function showFilters(holder, { classes, properties, num_sampled: sampled }, add) {
  const telling = classes.filter(({ answers }) => answers < sampled);
  show(holder, telling.length + properties.length > 0);
  const types = telling.map(({ name, label, answers }) =>
    el(
      "button",
      { type: "button", onclick: () => add({ class: name }), "aria-label": `Only of type ${label}` },
      `${label} (${answers.toLocaleString("en")})`,
    ),
  );
  const parts = types.length ? [el("span", {}, "Only of type: "), ...types] : [];
  if (properties.length) parts.push(byValue(properties, add));
  holder.replaceChildren(...parts);
}

function byValue(properties, add) {
  const control = el("select", { id: "by-value" }, el("option", { value: "" }, "choose …"));
  control.append(...properties.map(({ label }, place) => el("option", { value: place }, label)));
  const rest = el("span");
  control.addEventListener("change", () => {
    rest.replaceChildren();
    const chosen = properties[Number(control.value)];
    if (!control.value || !chosen) return;
    const finish = ({ property, is, value, type }) => add({ property, is, value, ...(type && { kind: type }) });
    rest.replaceChildren(valueFields(chosen, finish, "Filter"));
  });
  return el("span", { class: "by-value" }, el("label", { for: "by-value" }, "By value"), control, rest);
}
