// Asking the server. Reading goes to /api/page; whatever changes something goes to the gateway (gateway.js).

import { withToken } from "./token.js";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(path, {
      method,
      signal,
      headers: withToken({ ...sent, ...headers }),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, "The server cannot be reached. Is Perdure still running?");
  }
  if (!answer.ok) throw new Refused(answer.status, await reason(answer));
  return answer;
}

export async function read(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const tail = query.size ? `?${query}` : "";
  return (await ask(`/api/page${path}${tail}`, { signal })).json();
}

export function conversationPath(id) {
  return `/conversations/${encodeURIComponent(id)}`;
}

async function reason(answer) {
  try {
    const { detail, error, message } = await answer.json();
    const said = [message, error?.message ?? error, detail].find((word) => typeof word === "string" && word);
    if (said) return said;
  } catch {
    // Not JSON: the status says what there is to say.
  }
  return `The server said ${answer.status}${answer.statusText ? ` (${answer.statusText})` : ""}.`;
}
