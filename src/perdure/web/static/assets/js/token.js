// The token comes once, in the address's fragment; it is kept for this tab only and taken out of the address bar.

const KEY = "perdure-token";

export function takeToken() {
  const given = /^#token=([^&]*)(?:&to=(.*))?$/.exec(location.hash);
  if (!given) return;
  keepToken(decodeURIComponent(given[1]));
  const to = given[2] ? decodeURIComponent(given[2]) : "/";
  history.replaceState(null, "", `${location.pathname}#${to.startsWith("/") ? to : "/"}`);
}

export function keepToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

export function withToken(headers = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
}
