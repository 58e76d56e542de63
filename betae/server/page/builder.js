// The builder: a question as a list of conditions on "it", each of which can be changed.

import { el } from "./dom.js";
import { conditionForm } from "./condition.js";
import { added, flip, onlyEntity, replaced, toGroup, toTree } from "./model.js";
import { named, plain } from "./names.js";
import { picker } from "./picker.js";

const NOTHING = { relations: [], classes: [], properties: [], num_sampled: 0 };
const JOINS = { and: "all of these", or: "any of these" };

export class Builder {
  // `stepsOf(tree)` asks the server what can come next; `change(tree, text)` gets a new question.
  constructor(holder, { stepsOf, change }) {
    Object.assign(this, { holder, stepsOf, change, all: [], classes: [] });
  }

  // What the graph has: `relations` in both directions, and classes.
  know({ relations, classes }) {
    this.all = relations;
    this.classes = classes.map(({ name, label, entities }) => ({
      text: label,
      kind: `type, ${entities.toLocaleString("en")} entities`,
      tree: { class: name },
    }));
  }

  // Show a question as `said` by the server; an empty one begins with a thing.
  show(said) {
    const key = document.activeElement?.dataset?.key;
    const isHere = this.holder.contains(document.activeElement);
    this.said = said;
    if (said?.tree) this.holder.replaceChildren(...this.question(said.tree));
    else this.holder.replaceChildren(...(said ? [this.reason(said)] : []), this.begin());
    if (isHere) this.refocus(this.after ?? key);
    this.after = undefined;
  }

  refocus(key) {
    this.isWaiting = key === "follow"; // its options are on their way
    const found = key && this.holder.querySelector(`[data-key="${CSS.escape(key)}"]`);
    const first = this.holder.querySelector("button, select, input");
    (found || first)?.focus();
  }

  reason({ problem }) {
    return el("p", { class: "note" }, `The builder cannot show this question. ${problem}`);
  }

  begin(label = "Choose a thing to start from") {
    const take = ({ entity, tree }) => {
      this.after = "follow";
      this.change(tree ?? { entity: entity.name });
    };
    return picker({ label, later: this.classes, take }).node;
  }

  question(tree) {
    const group = toGroup(tree);
    this.root = group;
    const thing = onlyEntity(group);
    const set = (next) => this.change(next && toTree(next));
    if (thing) return [this.thing(thing), this.follow(tree), this.restart()];
    const conditions = this.conditions(group, set, "root", "Everything that fits");
    return [conditions, el("div", { class: "more" }, this.follow(tree), this.restart())];
  }

  thing({ name }) {
    return el("p", { class: "thing" }, "Start: ", this.label(name));
  }

  label(name) {
    return named(this.said.labels[name] ?? name, name, { class: "name-of-entity" });
  }

  restart() {
    const again = () => this.change(null);
    return el("button", { type: "button", class: "quiet", onclick: again }, "Start again");
  }

  // ---- conditions -------------------------------------------------------------------------------

  conditions(group, set, key, title) {
    const items = group.items.map((item, place) => {
      const put = (next) => set(replaced(group, place, next));
      return el("li", {}, ...this.item(item, put, `${key}.${place}`));
    });
    const list = el("ul", { class: "conditions", "aria-label": title }, ...items);
    const head = el("div", { class: "head" }, el("span", {}, title), this.joining(group, set, key));
    return el("div", { class: "group" }, head, list, this.adding(group, set, key));
  }

  joining(group, set, key) {
    if (group.items.length < 2) return "";
    const control = el("select", { "data-key": `${key} join`, "aria-label": "How conditions join" });
    control.append(...Object.entries(JOINS).map(([value, text]) => el("option", { value }, text)));
    control.value = group.join;
    control.addEventListener("change", () => set({ ...group, join: control.value }));
    return control;
  }

  item(item, put, key) {
    const words = this.words(item, put, key);
    const about = this.spoken(item);
    const not = el(
      "button",
      {
        type: "button",
        class: "not",
        "data-key": `${key} not`,
        "aria-pressed": String(item.not),
        "aria-label": `not: ${about}`,
        onclick: () => put({ ...item, not: !item.not }),
      },
      "not",
    );
    const remove = el(
      "button",
      { type: "button", class: "quiet", "aria-label": `Remove: ${about}`, onclick: () => put(null) },
      "✕",
    );
    const isLong = item.kind === "group" || (item.kind === "step" && !onlyEntity(item.of));
    return [el("div", { class: isLong ? "item long" : "item" }, not, words, remove)];
  }

  spoken(item) {
    if (item.kind === "entity") return `it is ${plain(this.said.labels[item.name] ?? item.name)}`;
    if (item.kind === "class") return `it is of type ${plain(item.name)}`;
    if (item.kind === "value") return `${plain(item.property)} ${item.is} ${item.value}`;
    if (item.kind === "group") return "these conditions";
    const thing = onlyEntity(item.of);
    const end = thing ? plain(this.said.labels[thing.name] ?? thing.name) : "something";
    return (this.said.spoken[flip(item.relation)] ?? "it … …").replace("…", end);
  }

  words(item, put, key) {
    if (item.kind === "group") return this.conditions(item.group, (next) => put(next && { ...item, group: next }), key, "It fits");
    if (item.kind !== "step") return el("span", { class: "words" }, this.spoken(item));
    const [before, after] = (this.said.spoken[flip(item.relation)] ?? "it … …").split("…");
    const thing = onlyEntity(item.of);
    const title = { title: item.relation.replace(/^~/, "") };
    if (!thing) {
      const set = (next) => put(next && { ...item, of: next });
      const inner = this.conditions(item.of, set, `${key} of`, "Where that something fits");
      return el("div", { class: "words" }, el("span", title, `${before}something${after}`), inner);
    }
    const chip = el("button", { type: "button", class: "chip", "data-key": `${key} end` }, this.label(thing.name));
    const holder = el("span", { class: "end" }, chip);
    chip.setAttribute("aria-label", `Change ${plain(this.said.labels[thing.name] ?? thing.name)}`);
    chip.addEventListener("click", () => {
      const take = ({ entity }) =>
        put({ ...item, of: { join: "and", items: [{ ...thing, name: entity.name }] } });
      const field = picker({ label: `Instead of ${chip.innerText}`, take });
      holder.replaceChildren(field.node);
      field.open();
    });
    return el("span", { class: "words" }, el("span", title, before), holder, el("span", title, after));
  }

  adding(group, set, key) {
    const button = el("button", { type: "button", "data-key": `${key} add` }, "Add a condition");
    const holder = el("div", { class: "adding" }, button);
    button.addEventListener("click", async () => {
      const close = () => {
        holder.replaceChildren(button);
        button.focus();
      };
      const tree = toTree(group);
      const form = conditionForm({
        ...(await this.known(tree)),
        hasHow: true,
        done: (item, how) => {
          this.after = `${key} add`;
          set(added(group, item, how));
        },
        cancel: close,
        stepsFrom: (...relations) =>
          this.known(relations.reduce((of, relation) => ({ relation, of }), tree)),
      });
      holder.replaceChildren(form.node);
      form.focus();
    });
    return holder;
  }

  async known(tree) {
    const steps = await this.stepsOf(tree).catch(() => NOTHING);
    return { steps, all: this.all };
  }

  // ---- going on from the answers ----------------------------------------------------------------

  follow(tree) {
    const holder = el("div", { class: "follow" });
    this.stepsOf(tree)
      .then(({ relations }) => {
        const first = relations.map(({ relation, words, leads_to: number }) => ({
          text: words,
          kind: `to ${number.toLocaleString("en")}`,
          relation,
        }));
        const take = ({ relation }) => {
          this.after = "follow";
          this.change({ relation, of: tree });
        };
        if (!first.length) return;
        const { node, input } = picker({ label: "Follow a relation", first, isClosed: true, take });
        input.dataset.key = "follow";
        holder.append(node);
        if (this.isWaiting) input.focus();
        this.isWaiting = false;
      })
      .catch(() => {}); // without them there is nothing to follow
    return holder;
  }
}
