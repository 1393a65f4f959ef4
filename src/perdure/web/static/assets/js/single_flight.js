// Runs work once at a time; a call during a run schedules one more run and waits for it.

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
