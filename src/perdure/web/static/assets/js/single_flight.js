// Work that never runs twice at a time: asked for meanwhile, it runs once more, and whoever asked waits for that.

export function singleFlight(work) {
  let current = null;
  let isAskedAgain = false;
  const run = async () => {
    do {
      isAskedAgain = false;
      await work();
    } while (isAskedAgain);
  };
  return () => {
    if (current) isAskedAgain = true;
    else current = run().finally(() => (current = null));
    return current;
  };
}
