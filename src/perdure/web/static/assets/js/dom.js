// Builds elements. Children are inserted as text or nodes: the web UI never parses markup.

const SVG = "http://www.w3.org/2000/svg";
const SAFE_LINK = /^(#|https?:\/\/|mailto:)/i;
const SAFE_IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,/i;

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function clear(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

// Replaces only the children that differ: what stays keeps the focus, and a click on it is not lost.
export function update(element, ...children) {
  const fresh = present(children);
  for (const [i, child] of fresh.entries()) {
    const there = element.childNodes[i];
    if (there?.localName === "details" && child.localName === "details") child.open = there.open;
    if (!there) element.append(child);
    else if (there !== child && !there.isEqualNode(child)) there.replaceWith(child);
  }
  while (element.childNodes.length > fresh.length) element.lastChild.remove();
  return element;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined);
}

// Children come first: an element with dir="auto" looks through all of its text for every child it gets.
function fill(element, attributes, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    element.addEventListener(name.slice(2), value);
  } else if (name === "href" && !SAFE_LINK.test(value)) {
    throw new Error("not a link this page opens");
  } else if (name === "src" && !SAFE_IMAGE.test(value)) {
    throw new Error("not a picture this page shows");
  } else if (name === "value" || name === "checked") {
    element[name] = value;
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

export function isSafeImage(url) {
  return SAFE_IMAGE.test(url ?? "");
}

// Text with marked ranges; offsets are [start, end) in code points, as the server counts.
export function marked(text, marks, wrap = (piece) => h("mark", {}, piece)) {
  const points = Array.from(text);
  const pieces = [];
  let at = 0;
  for (const [index, [start, end]] of marks.entries()) {
    if (start < at || end <= start || end > points.length) continue;
    if (start > at) pieces.push(points.slice(at, start).join(""));
    pieces.push(wrap(points.slice(start, end).join(""), index));
    at = end;
  }
  pieces.push(points.slice(at).join(""));
  return pieces;
}
