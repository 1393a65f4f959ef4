"""`python -m benchmarks [--strict] [name …]`: runs `bench_<name>.py` for each name, or all, and prints their tables.

A bench module has a `TITLE` and `rows() -> Iterable[Row]`; it raises `Skip` with a plain word where its data is absent.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks
from benchmarks.data import Skip
from benchmarks.table import render


def main(names: list[str]) -> int:
    found = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name.startswith("bench_")]
    is_strict = "--strict" in names
    chosen = [f"bench_{n}" for n in names if n != "--strict"] or found
    if unknown := sorted(set(chosen) - set(found)):
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    missed = 0
    for name in chosen:
        module = importlib.import_module(f"benchmarks.{name}")
        try:
            rows = list(module.rows())
        except Skip as why:
            print(f"{module.TITLE}\n  skipped: {why}\n")
            continue
        missed += sum(r.holds is False for r in rows)
        print(render(module.TITLE, rows), end="\n\n", flush=True)
    # A report, not a gate: what is missed is told, and `--strict` makes it an error.
    print(f"{missed} bar(s) missed" if missed else "every bar holds")
    return 1 if missed and is_strict else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
