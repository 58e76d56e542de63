// A field to choose from suggestions: one of a few options, or any entity of the graph.

import * as api from "./api.js";
import { Completion } from "./completion.js";
import { count, el } from "./dom.js";
import { plain } from "./names.js";

const MOST = 8;
let pickers = 0; // each has ids of its own

// `first` are options { text, kind } to offer before anything is typed, `later` only once something
// is; with `isClosed` there are no others. `take(option)` gets the chosen one; that of an entity
// has an `entity` { name, label }.
export function picker({ label, first = [], later = [], isClosed = false, take }) {
  const id = `pick-${(pickers += 1)}`;
  const list = el("ul", { id: `${id}-list`, class: "suggestions", role: "listbox", hidden: true });
  list.setAttribute("aria-label", "Suggestions");
  const input = el("input", {
    id,
    type: "text",
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    autocomplete: "off",
    spellcheck: "false",
  });
  const note = el("span", { class: "note", "aria-live": "polite" });
  const suggest = async (text, _cursor, signal) => {
    const typed = text.trim().toLowerCase();
    const own = [...first, ...(typed ? later : [])].filter(({ text: shown }) =>
      shown.toLowerCase().includes(typed),
    );
    if (isClosed || (!typed && first.length)) return { options: own };
    const { entities } = await api.entities(text.trim(), MOST, signal);
    const isAlone = ({ label: shown }) => entities.filter((each) => each.label === shown).length < 2;
    const found = entities.map(({ name, label: shown, edges }) => ({
      text: isAlone({ label: shown }) ? plain(shown) : `${plain(shown)} (${name})`,
      kind: count(edges, "edge"),
      entity: { name, label: shown },
    }));
    const given = new Set(found.map(({ entity }) => entity.name));
    const rest = own.filter(({ entity }) => !entity || !given.has(entity.name));
    const exact = ({ text: shown }) => shown.toLowerCase() === typed;
    const all = [...found, ...rest];
    return { options: [...all.filter(exact), ...all.filter((each) => !exact(each))].slice(0, MOST + 4) };
  };
  const choose = (option) => {
    input.value = option.text;
    take(option);
  };
  const completion = new Completion(input, list, { suggest, choose });
  input.addEventListener("pointerdown", () => completion.later(true));
  input.addEventListener("keydown", async (event) => {
    if (event.key !== "Enter" || event.defaultPrevented) return;
    event.preventDefault(); // takes the first suggestion
    if (!input.value.trim()) return;
    const { options } = await suggest(input.value, 0).catch(() => ({ options: [] }));
    completion.close();
    if (options.length) choose(options[0]);
    else note.textContent = "Nothing is called that.";
  });
  input.addEventListener("input", () => (note.textContent = ""));
  const field = el("div", { class: "field" }, input, list);
  const node = el("div", { class: "picker" }, el("label", { for: id }, label), field, note);
  const open = () => {
    input.focus();
    completion.look(true);
  };
  return { node, input, open };
}
