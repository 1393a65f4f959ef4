"""Put long alternations in an order in which a search is fast; what they find stays the same."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Conditions that hold at few positions.
_LEADS = ("^", r"\b")

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[(|)]|[^\\\[(|)]+", re.DOTALL)


def compile_alternatives(source: str, flags: int = 0, *, leads: Sequence[str] = _LEADS) -> re.Pattern[str]:
    """Compile an expression of many alternatives that is only asked whether it matches; see `group_alternatives`."""
    return re.compile(group_alternatives(source, leads), flags)


def split_alternatives(source: str) -> list[str]:
    """Return the alternatives of a regular expression, without looking into its groups."""
    alternatives, depth = [""], 0
    for token in _TOKEN.findall(source):
        depth += (token == "(") - (token == ")")
        if token == "|" and not depth:
            alternatives.append("")
        else:
            alternatives[-1] += token
    return alternatives


def group_alternatives(source: str, leads: Sequence[str]) -> str:
    """Return an expression with equal alternatives, of which those with the same lead check it once.

    At most positions a lead such as `\\b` or `^` does not match, and no alternative behind it is tried. The first of
    the leads that an alternative begins with is taken out. Which alternative matches may differ, but not whether one
    does.
    """
    groups: dict[str, list[str]] = {lead: [] for lead in leads}
    others: list[str] = []
    for alternative in split_alternatives(source):
        lead = next((lead for lead in leads if alternative.startswith(lead)), None)
        if lead is None:
            others.append(alternative)
        else:
            groups[lead].append(alternative[len(lead) :])
    return "|".join([*(f"{lead}(?:{'|'.join(rest)})" for lead, rest in groups.items() if rest), *others])
