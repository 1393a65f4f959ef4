// The token arrives in the address's fragment and is removed from the address bar. The server splits it: one half in a
// cookie that scripts cannot read, the other half, a key, in this origin's storage. Further tabs need both halves.

const TOKEN = "perdure-token";
const KEY = "perdure-key";
const SESSION = "/api/session";
let pending = null;

export function takeToken() {
  const given = /^#token=([^&]*)(?:&to=(.*))?$/.exec(location.hash);
  if (!given) return;
  storeToken(decodeURIComponent(given[1]));
  const to = given[2] ? decodeURIComponent(given[2]) : "/";
  history.replaceState(null, "", `${location.pathname}#${to.startsWith("/") ? to : "/"}`);
}

export function storeToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

export function withToken(headers = {}) {
  const token = sessionStorage.getItem(TOKEN);
  if (token) return { ...headers, Authorization: `Bearer ${token}` };
  const key = localStorage.getItem(KEY);
  return key ? { ...headers, "X-Perdure-Key": key } : headers;
}

// Until the session works, and where the browser stores no cookies, the token stays with the tab.
export async function startSession() {
  const token = sessionStorage.getItem(TOKEN);
  if (!token || token === pending) return;
  pending = token;
  try {
    const headers = { Authorization: `Bearer ${token}` };
    const answer = await fetch(SESSION, { method: "POST", headers, credentials: "same-origin" });
    if (!answer.ok) return;
    const { key } = await answer.json();
    const check = await fetch(SESSION, { headers: { "X-Perdure-Key": key }, credentials: "same-origin" });
    if (!check.ok || sessionStorage.getItem(TOKEN) !== token) return;
    localStorage.setItem(KEY, key);
    storeToken("");
  } catch {
    // The server is away: the next visit tries again.
  }
}

// Forgets a key that no longer works; returns whether there was one in use.
export function forgetSession() {
  if (sessionStorage.getItem(TOKEN) || !localStorage.getItem(KEY)) return false;
  localStorage.removeItem(KEY);
  return true;
}

export async function endSession() {
  await fetch(SESSION, { method: "DELETE", headers: withToken(), credentials: "same-origin" }).catch(() => {});
  localStorage.removeItem(KEY);
  storeToken("");
}
