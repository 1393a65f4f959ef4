// Addresses within the page: #/, #/c/<id>, #/c/<id>/m/<seq>, #/c/<id>/context, #/c/<id>/handoff/<seq>, #/usage, #/new, #/approvals.

export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const [first, id, view, seq] = path.split("/").filter(Boolean).map(decoded);
  const parameters = Object.fromEntries(new URLSearchParams(query));
  if (first === undefined) return { name: "conversations", parameters };
  if (["usage", "new", "approvals"].includes(first)) return { name: first, parameters };
  if (first === "c" && id) return conversationRoute(id, view, seq, parameters);
  return { name: "lost", parameters };
}

function conversationRoute(id, view, seq, parameters) {
  if (view === "context") return { name: "context", id, parameters };
  if (view === "handoff") return { name: "handoff", id, seq: whole(seq), parameters };
  if (view !== undefined && view !== "m") return { name: "lost", parameters };
  // `asked` is the text of the address, which may name no message.
  return { name: "conversation", id, seq: whole(seq), asked: view === "m" ? (seq ?? "") : null, parameters };
}

function whole(text) {
  return /^\d+$/.test(text ?? "") ? Number(text) : null;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function linkTo(id, rest = "") {
  return `#/c/${encodeURIComponent(id)}${rest}`;
}

// Any session's id opens its conversation; the address bar then names the conversation itself.
export function nameProperly(route, id) {
  if (route.id === id) return;
  history.replaceState(null, "", location.hash.replace(encodeURIComponent(route.id), encodeURIComponent(id)));
  route.id = id;
}

export function messageLink(id, seq) {
  return linkTo(id, `/m/${seq}`);
}
