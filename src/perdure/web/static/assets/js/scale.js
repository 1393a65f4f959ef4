// Scales and axis ticks of charts.

export function scale(from, to, start_px, end_px) {
  const span = to - from || 1;
  return (value) => start_px + ((value - from) / span) * (end_px - start_px);
}

// Round figures from 0 to at most `max`, about `wanted` of them.
export function ticks(max, wanted = 5) {
  if (!(max > 0)) return [0];
  const rough = max / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  return Array.from({ length: Math.floor(max / step + 1e-9) + 1 }, (_, i) => i * step);
}

// Integer ticks between two ends.
export function places(from, to, wanted) {
  const step = Math.max(1, Math.ceil((to - from) / wanted));
  return Array.from({ length: Math.ceil((to - from) / step) }, (_, i) => from + i * step);
}
