// Take the answers along: a link, files, and the same question in code.

import { hasToken } from "./api.js";
import { el } from "./dom.js";

const XSD = "http://www.w3.org/2001/XMLSchema#";
const LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>";
const COLUMNS = ["entity", "label", "probability", "status", "rank"];

// `result` is the server's response, of ranked answers or of rows.
export function showTake(holder, result, state) {
  const rows = tableOf(result);
  const file = (kind, type, content) => {
    const save = () => download(`answers.${kind}`, type, content());
    return el("button", { type: "button", onclick: save }, { csv: "CSV", json: "JSON", nt: "N-Triples" }[kind]);
  };
  const link = el("button", { type: "button" }, "Copy link");
  link.addEventListener("click", () => copy(link, location.href));
  const buttons = el(
    "p",
    { class: "take" },
    "These answers: ",
    file("csv", "text/csv", () => csv(rows)),
    file("json", "application/json", () => JSON.stringify(result, null, 2)),
    file("nt", "application/n-triples", () => triples(result)),
    link,
  );
  holder.replaceChildren(buttons, code(state));
}

function tableOf({ answers, variables, rows }) {
  if (answers) return [COLUMNS, ...answers.map((each) => COLUMNS.map((name) => each[name]))];
  const names = variables.flatMap((name) => [name, `${name}_label`]);
  return [names, ...rows.map((row) => names.map((name) => row[name]))];
}

export const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// What is said of each answer; no predicted edge is among them, since those are no facts.
export function triples({ answers, variables, rows }) {
  const lines = (answers ?? []).flatMap(({ entity, label, probability, status }) => [
    `${iri(entity)} ${LABEL} ${text(label)} .`,
    `${iri(entity)} <urn:betae:status> ${text(status)} .`,
    ...(probability === null
      ? []
      : [`${iri(entity)} <urn:betae:probability> "${probability}"^^<${XSD}double> .`]),
  ]);
  for (const row of rows ?? []) {
    for (const name of variables) lines.push(`${iri(row[name])} ${LABEL} ${text(row[`${name}_label`])} .`);
  }
  return [...new Set(lines)].map((each) => `${each}\n`).join("");
}

// A name that is an IRI stands for itself; any other is percent-encoded, as in an export.
function iri(name) {
  const isIri = /^[A-Za-z][A-Za-z0-9+.-]*:[^<>"{}|^`\\\s]*$/.test(name) && !name.startsWith("urn:betae:");
  return `<${isIri ? name : `urn:betae:${encodeURIComponent(name).replace(/[!'()*]/g, escaped)}`}>`;
}

const escaped = (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`;

function text(value) {
  const signs = { "\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r" };
  return `"${value.replace(/[\\"\n\r]/g, (sign) => signs[sign])}"`;
}

function download(name, type, content) {
  const link = el("a", { download: name });
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy(button, content) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(content);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed here";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

// ---- code ---------------------------------------------------------------------------------------

function code(state) {
  const parts = Object.entries(programs(state, location)).map(([title, program]) => {
    const button = el("button", { type: "button", "aria-label": `Copy ${title}` }, "Copy");
    button.addEventListener("click", () => copy(button, program));
    const shown = el("pre", { tabindex: "0", "aria-label": title, role: "region" }, el("code", {}, program));
    return el("div", { class: "code" }, el("h3", {}, title, " ", button), shown);
  });
  return el("details", {}, el("summary", {}, "The same question in Python, curl and the shell"), ...parts);
}

// RUN is the folder that is served.
export function programs({ q, k, method, only }, { href }) {
  const isFacts = method === "facts";
  const asked = JSON.stringify(q);
  const python = isFacts
    ? ["import betae", "", 'graph = betae.KnowledgeGraph.open("GRAPH")', `for row in graph.select(${asked}, limit=${k}):`, "    print(row)"]
    : [
        "import betae",
        "",
        'run = betae.Run.open("RUN")',
        `answers = run.answer(${asked}, k=${k}${only && `, status="${only}"`}${method === "embedding" ? ', method="embedding"' : ""})`,
        "print(answers)",
      ];
  const body = isFacts
    ? { question: q, limit: Number(k) }
    : { question: q, k: Number(k), method, ...(only && { only }), explain: true };
  const address = new URL(isFacts ? "query" : "answer", href);
  const token = hasToken() ? ' -H "authorization: Bearer $BETAE_TOKEN"' : "";
  const flags = `${only && ` --only ${only}`}${method === "embedding" ? " --method embedding" : ""}`;
  return {
    Python: python.join("\n"),
    curl: `curl -s ${quoted(`${address.origin}${address.pathname}`)}${token} --json ${quoted(JSON.stringify(body))}`,
    "Command line": isFacts
      ? `betae query GRAPH ${quoted(q)} --limit ${k}`
      : `betae answer RUN ${quoted(q)} -k ${k}${flags} --explain`,
  };
}

const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;
