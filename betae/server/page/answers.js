// Ranked answers as a list, a table or a graph, and rows of exact answers.

import { drawDerivations } from "./derivation.js";
import { count, el, percent } from "./dom.js";
import { spell } from "./language.js";
import { drawMap } from "./map.js";
import { named, plain, sentence } from "./names.js";

const STATUSES = {
  known: { sign: "●", words: "follows from known facts" },
  assumed: { sign: "◐", words: "known, unless a missing fact rules it out" },
  predicted: { sign: "○", words: "requires a missing fact" },
};

export function showAnswers(holder, result, linkTo, view) {
  const { answers } = result;
  if (!answers.length) return holder.replaceChildren(el("p", {}, "No answers to show."));
  if (view === "table") return holder.replaceChildren(answerTable(answers, linkTo));
  if (view === "graph") return showMap(holder, answers);
  const rows = answers.map((answer, place) => row(answer, place, result.method, linkTo));
  return holder.replaceChildren(legend(), el("ol", { class: "answers" }, ...rows));
}

function answerTable(answers, linkTo) {
  const titles = ["Answer", "Probability", "Status", "Rests on"];
  const head = el("tr", {}, ...titles.map((text) => el("th", { scope: "col" }, text)));
  const body = answers.map(({ entity, label, probability, status, why }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, linkTo({ entity }, named(label, entity))),
      el("td", { class: "number" }, percent(probability, status === "known")),
      el("td", { class: status }, signOf(status), ` ${status}`),
      el("td", {}, why ? leaves(why).join("; ") : ""),
    ),
  );
  return scrolling("Table of the answers", el("thead", {}, head), el("tbody", {}, ...body));
}

// The edges and conditions of a derivation, in words.
const leaves = (step) => [
  ...(step.status === "and" ? [] : [step.edge ? sentence(step.edge) : step.text]),
  ...step.sources.flatMap(leaves),
];

function scrolling(label, ...parts) {
  const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
  return el("div", region, el("table", {}, ...parts));
}

function showMap(holder, answers) {
  const label = "Graph of the answers";
  const picture = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label });
  const key = "Answers are on the right. Dashed: missing edges, and answers that need one.";
  holder.replaceChildren(picture, el("p", { class: "note" }, key));
  drawMap(picture, answers);
}

function legend() {
  const terms = Object.entries(STATUSES).map(([status, { words }]) =>
    el("li", { class: status }, signOf(status), ` ${status}: ${words}`),
  );
  return el("ul", { class: "legend", "aria-label": "What the signs mean" }, ...terms);
}

const signOf = (status) =>
  el("span", { class: "sign", "aria-hidden": "true" }, STATUSES[status].sign);

function row(answer, place, method, linkTo) {
  const panel = el("div", { id: `why-${place}`, class: "why", hidden: true });
  const button = el(
    "button",
    {
      type: "button",
      class: `answer ${answer.status}`,
      "aria-expanded": "false",
      "aria-controls": panel.id,
    },
    el("span", { class: "rank" }, answer.rank === null ? "–" : `${answer.rank}`),
    named(answer.label, answer.entity, { class: "label" }),
    el("span", { class: "status" }, signOf(answer.status), ` ${answer.status}`),
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
  if (answer.unusual) panel.append(el("p", {}, `Unusual: ${answer.unusual}.`));
  panel.append(graph, el("p", {}, linkTo({ entity: answer.entity }, `Browse ${plain(answer.label)}`)));
  if (answer.why) {
    drawDerivations(graph, answer);
  } else if (method === "embedding") {
    const words = `The embedding gives a distance (${(-answer.score).toFixed(2)}) and no derivation: `;
    const instead = linkTo({ method: "completed" }, "ask the completed graph");
    graph.append(el("p", {}, words, instead, "."));
  } else {
    graph.append(el("p", {}, "No derivation for this answer."));
  }
}

// ---- exact answers --------------------------------------------------------------------------------

export function showRows(holder, { variables, rows, more }, linkTo) {
  const head = el("tr", {}, ...variables.map((name) => el("th", { scope: "col" }, `?${name}`)));
  const cell = (row, name) => el("td", {}, linkTo({ entity: row[name] }, named(row[`${name}_label`], row[name])));
  const body = rows.map((row) => el("tr", {}, ...variables.map((name) => cell(row, name))));
  const caption = el("caption", {}, "Exact answers, from known facts only");
  const parts = [caption, el("thead", {}, head), el("tbody", {}, ...body)];
  holder.replaceChildren(scrolling("Exact answers", ...parts));
  if (more) holder.append(el("p", { class: "note" }, `Only the first ${rows.length} are shown.`));
}

export const summaryOfRows = ({ rows, more }) =>
  rows.length
    ? `${more ? "More than " : ""}${count(rows.length, "exact answer")}.`
    : "No exact answers.";

// ---- errors -------------------------------------------------------------------------------------

const WIDTH = 40; // characters of the question beside the caret

// Show an error, with a caret under its position or with similar names.
export function showError(holder, error, question, { ask, askFacts }) {
  const lines = error.message.split("\n");
  const fix = /Write: (.+)$/m.exec(error.message)?.[1];
  const plainly = (text) => text.replace(/\s*Write: .*/, "");
  const parts = [el("p", {}, plainly(lines[0]))];
  if (error.line) parts.push(caret(question, error.line, error.column));
  const rest = lines.slice(1).filter((each) => each.trim() && !each.startsWith(" ")).map(plainly);
  parts.push(...rest.filter(Boolean).map((each) => el("p", {}, each)));
  const bad = /(?:entity|relation) (['"])(.*?)\1/.exec(error.message)?.[2];
  if (fix && fix !== question) {
    const asFixed = el("button", { type: "button", onclick: () => ask(fix) }, el("code", {}, fix));
    parts.push(el("p", { class: "choices" }, "Ask instead: ", asFixed));
  } else if (error.closest.length && bad !== undefined && question.includes(bad)) {
    const quoted = JSON.stringify(bad);
    const written = question.includes(quoted) ? quoted : bad;
    const buttons = error.closest.map(spell).map((name) => {
      const onclick = () => ask(question.replace(written, () => name));
      return el("button", { type: "button", onclick }, name);
    });
    parts.push(el("p", { class: "choices" }, "Did you mean ", ...buttons));
  } else if (askFacts && !error.line && error.status === 400) {
    parts.push(el("button", { type: "button", onclick: askFacts }, "Ask known facts only"));
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
