// Ranked answers, and rows of facts.

import { drawDerivation } from "./derivation.js";
import { count, el, percent } from "./dom.js";
import { spell } from "./language.js";

export const STATUSES = {
  known: { sign: "●", words: "follows from the facts" },
  assumed: { sign: "◐", words: "known unless a fact is missing" },
  predicted: { sign: "○", words: "needs a missing fact" },
};

export function showAnswers(holder, result, linkTo) {
  const list = el("ol", { class: "answers" });
  result.answers.forEach((answer, place) => list.append(row(answer, place, result.method, linkTo)));
  const nothing = result.answers.length ? null : el("p", {}, "No answers to show.");
  holder.replaceChildren(legend(), list, ...(nothing ? [nothing] : []));
}

function legend() {
  const terms = Object.entries(STATUSES).map(([status, { sign, words }]) =>
    el(
      "li",
      { class: status },
      el("span", { class: "sign", "aria-hidden": "true" }, sign),
      ` ${status}: ${words}`,
    ),
  );
  return el("ul", { class: "legend", "aria-label": "What the signs mean" }, ...terms);
}

function row(answer, place, method, linkTo) {
  const panel = el("div", { id: `why-${place}`, class: "why", hidden: true });
  const { sign } = STATUSES[answer.status];
  const button = el(
    "button",
    {
      type: "button",
      class: `answer ${answer.status}`,
      "aria-expanded": "false",
      "aria-controls": panel.id,
    },
    el("span", { class: "rank" }, answer.rank === null ? "–" : `${answer.rank}`),
    el("span", { class: "label" }, answer.label),
    el(
      "span",
      { class: "status" },
      el("span", { class: "sign", "aria-hidden": "true" }, sign),
      ` ${answer.status}`,
    ),
    bar(answer.probability ?? 0),
    el("span", { class: "percent" }, percent(answer.probability, answer.status === "known")),
  );
  button.addEventListener("click", () => {
    const isOpen = panel.hidden;
    panel.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen && !panel.childElementCount) explain(panel, answer, method, linkTo);
  });
  return el("li", {}, button, panel);
}

export function bar(probability) {
  const filled = el("span", { class: "filled" });
  filled.style.width = `${100 * probability}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, filled);
}

function explain(panel, answer, method, linkTo) {
  const graph = el("div");
  panel.append(graph, el("p", {}, linkTo({ entity: answer.entity }, `Browse ${answer.label}`)));
  if (answer.why) {
    drawDerivation(graph, answer);
  } else if (method === "embedding") {
    const words = `The embedding gives a distance (${(-answer.score).toFixed(2)}) and no derivation: `;
    const instead = linkTo({ method: "completed" }, "ask the completed graph");
    graph.append(el("p", {}, words, instead, "."));
  } else {
    graph.append(el("p", {}, "There is no derivation of this answer."));
  }
}

// ---- facts alone --------------------------------------------------------------------------------

export function showRows(holder, { variables, rows, more }, linkTo) {
  const head = el("tr", {}, ...variables.map((name) => el("th", { scope: "col" }, `?${name}`)));
  const body = rows.map((each) =>
    el(
      "tr",
      {},
      ...variables.map((name) =>
        el("td", {}, linkTo({ entity: each[name] }, each[`${name}_label`] ?? each[name])),
      ),
    ),
  );
  const table = el(
    "table",
    {},
    el("caption", {}, "Exact answers, from the facts alone"),
    el("thead", {}, head),
    el("tbody", {}, ...body),
  );
  const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Exact answers" };
  holder.replaceChildren(el("div", region, table));
  if (more) holder.append(el("p", { class: "note" }, `There are more than these ${rows.length}.`));
}

export const summaryOfRows = ({ rows, more }) =>
  rows.length
    ? `${more ? "More than " : ""}${count(rows.length, "exact answer")}.`
    : "No exact answers.";

// ---- errors -------------------------------------------------------------------------------------

const WIDTH = 40; // characters of the question beside the caret

// Show why a question was refused, with a caret under the place, or with names that are close.
export function showError(holder, error, question, { ask, askFacts }) {
  const parts = [el("p", {}, error.message.split("\n")[0])];
  if (error.line) parts.push(caret(question, error.line, error.column));
  const bad = /(?:entity|relation) (['"])(.*?)\1/.exec(error.message)?.[2];
  if (error.closest.length && bad !== undefined && question.includes(bad)) {
    const quoted = JSON.stringify(bad);
    const written = question.includes(quoted) ? quoted : bad;
    const names = error.closest.map((name) =>
      typeof name === "number" ? `#${name}` : spell(name),
    );
    const buttons = names.map((name) =>
      el(
        "button",
        { type: "button", onclick: () => ask(question.replace(written, () => name)) },
        name,
      ),
    );
    parts.push(el("p", { class: "choices" }, "Ask with ", ...buttons));
  } else if (askFacts && !error.line && error.status === 400) {
    parts.push(el("button", { type: "button", onclick: askFacts }, "Ask the facts alone"));
  }
  holder.replaceChildren(...parts);
}

function caret(question, line, column) {
  const text = Array.from(question.split("\n")[line - 1] ?? "");
  const from = Math.max(0, column - 1 - WIDTH / 2);
  const part = text.slice(from, from + WIDTH).join("");
  const pointer = `${" ".repeat(column - 1 - from + (from ? 1 : 0))}^`;
  return el("pre", { class: "caret" }, `${from ? "…" : ""}${part}\n${pointer}`);
}
