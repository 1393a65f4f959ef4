// Server-sent events read from a fetch, which can send headers.

export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = linesOf(block, "data").join("\n");
        if (data) yield { event: linesOf(block, "event")[0] ?? "", ...JSON.parse(data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function linesOf(block, name) {
  const lines = block.split(/\r?\n/).filter((line) => line.startsWith(`${name}:`));
  return lines.map((line) => line.slice(name.length + 1).replace(/^ /, ""));
}
