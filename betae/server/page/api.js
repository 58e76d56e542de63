// The server's endpoints. Addresses are relative, so a proxy may put the page anywhere.

const TOKEN = "betae-token";

class Refused extends Error {
  constructor(status, content) {
    super(content.error ?? `The server answered with status ${status}.`);
    this.status = status;
    this.line = content.line;
    this.column = content.column;
    this.closest = content.closest ?? [];
  }
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

async function call(path, { body, signal } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  const method = body ? "POST" : "GET";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { error: "The server cannot be reached. Is it still running?" });
  }
  const content = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error; // while the body was read
    return {};
  });
  if (!response.ok) throw new Refused(response.status, content);
  return content;
}

const search = (kind, text, limit, signal) =>
  call(`${kind}?${new URLSearchParams({ search: text, limit })}`, { signal });

export const model = () => call("model");
export const answer = (body, signal) => call("answer", { body, signal });
export const query = (body, signal) => call("query", { body, signal });
export const tree = (body, signal) => call("tree", { body, signal });
export async function entities(text, limit, signal) {
  const found = await search("entities", text, limit, signal);
  const spaced = text.trim().replace(/\s+/g, "_"); // as names of IRIs are written
  return found.total || spaced === text ? found : search("entities", spaced, limit, signal);
}
export const relations = (text, limit, signal) => search("relations", text, limit, signal);

export const home = () => call("home");
export const examples = () => call("examples");
export const read = (question, signal) => call("read", { body: { question }, signal });

const known = new Map(); // the last answers of POST /steps, which several parts of the page need
const MOST_KNOWN = 20;

export function steps(question) {
  const key = JSON.stringify(question);
  if (!known.has(key)) {
    const found = call("steps", { body: { question } });
    found.catch(() => known.delete(key));
    known.set(key, found);
    if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
  }
  return known.get(key);
}

export const why = (edge) => call(`why?${new URLSearchParams(edge)}`);

export function edges(entity, { offset = 0, limit = 100, missing = 0, signal } = {}) {
  const wanted = new URLSearchParams({ offset, limit, missing });
  return call(`entities/${encodeURIComponent(entity)}/edges?${wanted}`, { signal });
}
