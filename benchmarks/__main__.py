"""`python -m benchmarks [--strict] [--json FILE] [--compare FILE] [name …]`: runs `bench_<name>.py` for each name.

Without a name all of them run.

A bench module has a `TITLE` and `rows() -> Iterable[Row]`; it raises `Skip` with a plain word where its data is absent.
`--json` writes the figures with the facts of the machine; `--compare` shows each figure as a ratio to such a file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks.data import Skip
from benchmarks.table import render


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and print one table per topic.")
    parser.add_argument("names", nargs="*", metavar="name", help="what to measure; by default everything")
    parser.add_argument("--strict", action="store_true", help="end with an error if a bar is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="show ratios to the figures of an earlier file")
    given = parser.parse_args(arguments)
    found = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name.startswith("bench_")]
    chosen = [f"bench_{n}" for n in given.names] or found
    if unknown := sorted(set(chosen) - set(found)):
        known = ", ".join(name.removeprefix("bench_") for name in found)
        print(f"no such benchmark: {', '.join(unknown)}; there are: {known}", file=sys.stderr)
        return 2
    earlier = _read(given.compare) if given.compare else {}
    facts = machine()
    print(" · ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    missed = 0
    figures: dict[str, dict[str, Any]] = {}
    for name in chosen:
        module = importlib.import_module(f"benchmarks.{name}")
        try:
            rows = list(module.rows())
        except Skip as why:
            print(f"{module.TITLE}\n  skipped: {why}\n")
            continue
        missed += sum(r.holds is False for r in rows)
        figures[module.TITLE] = {r.name: {"value": r.value, "unit": r.unit, "bar": r.bar} for r in rows}
        print(render(module.TITLE, rows, earlier.get(module.TITLE, {})), end="\n\n", flush=True)
        if given.json:
            # After each topic, so that an interrupted run leaves what it measured.
            given.json.write_text(json.dumps({"machine": facts, "figures": figures}, indent=1), encoding="utf-8")
    # A report, not a gate: what is missed is named, and `--strict` makes it an error.
    print(f"{missed} bar(s) missed" if missed else "every bar holds")
    return 1 if missed and given.strict else 0


def machine() -> dict[str, str]:
    """The facts that explain a figure: processor, cores, memory, load, Python, system."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in cpu.splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": models[0] if models else platform.processor() or "unknown",
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "system": platform.platform(),
    }


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Return the figures of an earlier run by title and name."""
    try:
        topics = json.loads(path.read_text(encoding="utf-8"))["figures"]
        return {title: {name: float(row["value"]) for name, row in rows.items()} for title, rows in topics.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{path} has no figures of an earlier run ({error}); write one with --json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
