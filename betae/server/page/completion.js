// A combobox: a text field with suggestions, for keyboard, pointer and screen reader.

import { el, show } from "./dom.js";
import { plain } from "./names.js";

const PAUSE = 120; // milliseconds after a key before suggestions are loaded

// suggest(text, cursor, signal, isAsked) returns a promise of { options, place }; an option has a
// text and a kind to show. choose(option, place) takes one, and says whether to suggest again.
export class Completion {
  constructor(input, list, { suggest, choose }) {
    Object.assign(this, { input, list, suggest, choose });
    this.options = [];
    this.active = -1;
    input.addEventListener("input", () => this.later(false));
    input.addEventListener("keydown", (event) => this.key(event));
    input.addEventListener("blur", () => this.close());
    list.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.take(Number(option.dataset.place));
    });
  }

  later(isAsked) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(isAsked), PAUSE);
  }

  async look(isAsked) {
    this.request?.abort();
    const request = (this.request = new AbortController());
    const { value, selectionStart } = this.input;
    try {
      const found = await this.suggest(value, selectionStart, request.signal, isAsked);
      if (!request.signal.aborted && document.activeElement === this.input) this.open(found);
    } catch (error) {
      if (error.name !== "AbortError") this.close(); // suggestions are optional
    }
  }

  open({ options, place }) {
    Object.assign(this, { options, place, active: -1 });
    const items = options.map((option, number) =>
      el(
        "li",
        {
          role: "option",
          id: `${this.list.id}-${number}`,
          "data-place": number,
          "aria-selected": "false",
        },
        el("span", { class: "name" }, option.text),
        el("span", { class: "kind" }, option.kind),
      ),
    );
    this.list.replaceChildren(...items);
    show(this.list, options.length > 0);
    this.input.setAttribute("aria-expanded", String(options.length > 0));
    this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    clearTimeout(this.timer);
    this.request?.abort();
    this.open({ options: [], place: null });
  }

  get isOpen() {
    return !this.list.hidden;
  }

  move(by) {
    const number = this.options.length + 1; // including the field itself
    this.active = ((this.active + 1 + by + number) % number) - 1;
    [...this.list.children].forEach((item, place) =>
      item.setAttribute("aria-selected", String(place === this.active)),
    );
    if (this.active < 0) return this.input.removeAttribute("aria-activedescendant");
    const item = this.list.children[this.active];
    item.scrollIntoView({ block: "nearest" });
    return this.input.setAttribute("aria-activedescendant", item.id);
  }

  key(event) {
    if (event.isComposing) return;
    if (event.key === "Escape" && this.isOpen) this.close();
    else if (event.key === "ArrowDown" && !this.isOpen) this.look(true);
    else if (event.key === "ArrowDown") this.move(1);
    else if (event.key === "ArrowUp" && this.isOpen) this.move(-1);
    else if (event.key === "Enter" && this.active >= 0) this.take(this.active);
    else {
      if (event.key === "Enter") this.close();
      return;
    }
    event.preventDefault();
  }

  take(number) {
    const option = this.options[number];
    const { place } = this;
    this.close();
    if (this.choose(option, place)) this.later(true);
  }
}

// The option of a name that the server has found, and what choosing it inserts.
export const nameOption = ({ name, label, edges }, kind, insert) => ({
  text: plain(label) === name ? name : `${plain(label)} (${name})`,
  kind: `${kind}${edges} edges`,
  insert,
});
