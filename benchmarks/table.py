"""One row per measured figure, printed beside the bar it is held to."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_HOLDS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Row:
    """A figure; `bar` is e.g. "<= 5" in the same unit, or None where it is only shown."""

    name: str
    value: float
    unit: str = ""
    bar: str | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        if self.bar is None:
            return None
        sign, figure = self.bar.split()
        return bool(_HOLDS[sign](self.value, float(figure)))


def render(title: str, rows: Iterable[Row], earlier: Mapping[str, float] | None = None) -> str:
    """The table as text, aligned, one verdict a row; `earlier` adds ratios to the figures of another run."""
    compared = "  × before" if earlier else ""
    lines = [f"{title}", f"  {'figure':<58} {'measured':>12} {'unit':<8} {'bar':<12}{compared} verdict"]
    words = {True: "ok", False: "MISSED", None: ""}
    for r in rows:
        value = f"{r.value:,.3f}".rstrip("0").rstrip(".")
        before = (earlier or {}).get(r.name)
        ratio = (f"{r.value / before:>10.2f}" if before else f"{'':>10}") if earlier else ""
        lines.append(
            f"  {r.name:<58} {value:>12} {r.unit:<8} {r.bar or '':<12}{ratio} {words[r.holds]} {r.note}".rstrip()
        )
    return "\n".join(lines)
