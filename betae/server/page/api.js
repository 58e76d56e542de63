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
export const entities = (text, limit, signal) => search("entities", text, limit, signal);
export const relations = (text, limit, signal) => search("relations", text, limit, signal);

export const why = (edge) => call(`why?${new URLSearchParams(edge)}`);

export function edges(entity, { offset = 0, limit = 100, missing = 0, signal } = {}) {
  const wanted = new URLSearchParams({ offset, limit, missing });
  return call(`entities/${encodeURIComponent(entity)}/edges?${wanted}`, { signal });
}
