// The question as the builder shows it: groups of conditions on "it". A group is
// { join: "and" | "or", items }, an item { not, kind } with
//   kind "entity": name;  "class": name;  "value": property, sign, value, type, language;
//   kind "step": relation, which leads from `of` (a group) to it;  "group": group.
// Trees are those of the server, in JSON.

export const flip = (relation) => (relation.startsWith("~") ? relation.slice(1) : `~${relation}`);

export function toGroup(tree) {
  const join = tree.or ? "or" : "and";
  return { join, items: (tree.and ?? tree.or ?? [tree]).map(toItem) };
}

function toItem(tree) {
  if (tree.not) {
    const inner = toItem(tree.not);
    return { ...inner, not: !inner.not };
  }
  if (tree.and || tree.or) return { not: false, kind: "group", group: toGroup(tree) };
  if ("entity" in tree) return { not: false, kind: "entity", name: tree.entity };
  if ("class" in tree) return { not: false, kind: "class", name: tree.class };
  if ("property" in tree) return { ...tree, type: tree.kind, not: false, kind: "value" };
  return { not: false, kind: "step", relation: tree.relation, of: toGroup(tree.of) };
}

export function toTree({ join, items }) {
  const trees = items.map(itemTree);
  return trees.length === 1 ? trees[0] : { [join]: trees };
}

function itemTree(item) {
  const tree = positive(item);
  return item.not ? { not: tree } : tree;
}

function positive(item) {
  if (item.kind === "entity") return { entity: item.name };
  if (item.kind === "class") return { class: item.name };
  if (item.kind === "group") return toTree(item.group);
  if (item.kind === "step") return { relation: item.relation, of: toTree(item.of) };
  const { property, is, value, type: kind, language } = item;
  return { property, is, value, ...(kind && { kind }), ...(language !== undefined && { language }) };
}

// The one entity that a group is, if it is no more than that.
export function onlyEntity({ items }) {
  return items.length === 1 && items[0].kind === "entity" && !items[0].not ? items[0] : null;
}

// Add an item to a group: "and", "and not" and "or" apply to all that is there.
export function added({ join, items }, item, how) {
  const wanted = how === "or" ? "or" : "and";
  const next = { ...item, not: how === "and not" };
  if (items.length < 2 || join === wanted) return { join: wanted, items: [...items, next] };
  const before = { not: false, kind: "group", group: { join, items } };
  return { join: wanted, items: [before, next] };
}

// Put another item in the place of one, or remove it (null). Returns null for an empty group.
export function replaced({ join, items }, place, item) {
  const next = items.flatMap((each, at) => (at === place ? (item ? [item] : []) : [each]));
  if (!next.length) return null;
  if (next.length === 1 && next[0].kind === "group" && !next[0].not) return next[0].group;
  return { join, items: next };
}
