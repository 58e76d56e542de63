// The state of the page is in its address: a link reopens the question.

import { el } from "./dom.js";

export const DEFAULTS = {
  q: "",
  k: "25",
  method: "completed",
  only: "",
  view: "",
  entity: "",
};

export function stateOf(search) {
  const given = new URLSearchParams(search);
  return Object.fromEntries(
    Object.entries(DEFAULTS).map(([name, usual]) => [name, given.get(name) ?? usual]),
  );
}

export const current = () => stateOf(location.search);

export function addressOf(state) {
  const kept = Object.entries(state).filter(([name, value]) => value && value !== DEFAULTS[name]);
  return `?${new URLSearchParams(kept)}`;
}

// A link to the page with some changes; a plain click stays on the page, by `go(changes)`.
export const linker =
  (go) =>
  (changes, ...content) => {
    const link = el("a", { href: addressOf({ ...current(), ...changes }) }, ...content);
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      go(changes);
    });
    return link;
  };
