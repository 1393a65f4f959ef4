// Requests to the server: reads of /api/page; changes go through gateway.js.

import { forgetSession, withToken } from "./token.js";

const PACED_TRIES = 5;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// A rate-limited GET is repeated after the delay that the server names.
export async function ask(path, options = {}) {
  for (let tries = 0; ; tries += 1) {
    const answer = await once(path, options);
    if (answer.ok) return answer;
    // A session of an earlier server: try once without it.
    if (answer.status === 401 && forgetSession()) continue;
    const isPaced = answer.status === 429 && (options.method ?? "GET") === "GET" && tries < PACED_TRIES;
    if (!isPaced) throw new Refused(answer.status, await reason(answer));
    const wait_s = Number(answer.headers.get("Retry-After")) || 1;
    await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(wait_s, 5)));
  }
}

async function once(path, { method = "GET", body, headers = {}, signal }) {
  const sent = body === undefined ? {} : { "Content-Type": "application/json" };
  try {
    return await fetch(path, {
      method,
      signal,
      headers: withToken({ ...sent, ...headers }),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, "The server cannot be reached. Is Perdure still running?");
  }
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
    const text = [message, error?.message ?? error, detail].find((word) => typeof word === "string" && word);
    if (text) return text;
  } catch {
    // Not JSON: the status has to do.
  }
  return `The server answered ${answer.status}${answer.statusText ? ` (${answer.statusText})` : ""}.`;
}
