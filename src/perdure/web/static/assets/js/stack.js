// The calls of a conversation as layers: figures in, heights and paths out. No elements here.

// The parts of a call's prompt. They are estimates, scaled to the provider's count if there is one,
// so that the top of the stack is comparable with the threshold.
export function layersOf(call, parts) {
  const given = parts.map((part) => call.composition[part] ?? 0);
  const sum = given.reduce((a, b) => a + b, 0);
  const total = totalOf(call);
  const stretch = sum > 0 ? total / sum : 0;
  return given.map((n) => n * stretch);
}

export function totalOf(call) {
  const sum = Object.values(call.composition).reduce((a, b) => a + b, 0);
  return call.prompt_tokens ?? call.estimate_tokens ?? sum;
}

// One column per call, or, where there are more calls than pixels, per few calls: the fullest of them represents all.
export function columns(calls, from, to, maxColumns) {
  const step = Math.max(1, Math.ceil((to - from) / maxColumns));
  const made = [];
  for (let at = from; at < to; at += step) {
    const end = Math.min(to, at + step);
    let fullest = at;
    for (let i = at; i < end; i += 1) if (totalOf(calls[i]) > totalOf(calls[fullest])) fullest = i;
    made.push({ from: at, to: end, call: calls[fullest] });
  }
  return made;
}

// A path per part, bottom to top, each a staircase closed along the one below it.
export function areas(made, parts, x, y) {
  const floor = made.map(() => 0);
  const heights = made.map(({ call }) => layersOf(call, parts));
  return parts.map((part, p) => {
    const under = [...floor];
    for (const [i, layers] of heights.entries()) floor[i] += layers[p];
    const isEmpty = heights.every((layers) => layers[p] === 0);
    return { part, path: isEmpty ? "" : closed(made, [...floor], under, x, y) };
  });
}

function closed(made, over, under, x, y) {
  const there = made.map((c, i) => `L${x(c.from).toFixed(1)} ${y(over[i]).toFixed(1)}H${x(c.to).toFixed(1)}`);
  const back = made.map((c, i) => `L${x(c.to).toFixed(1)} ${y(under[i]).toFixed(1)}H${x(c.from).toFixed(1)}`).reverse();
  return `M${[...there, ...back].join("").slice(1)}Z`;
}

// A line at a figure that may change from call to call, or be unknown for some.
export function steps(made, figure, x, y) {
  let path = "";
  let isDown = false;
  for (const { from, to, call } of made) {
    const value = figure(call);
    if (!value) isDown = false;
    else path += `${isDown ? "L" : "M"}${x(from).toFixed(1)} ${y(value).toFixed(1)}H${x(to).toFixed(1)}`;
    isDown = Boolean(value);
  }
  return path;
}
