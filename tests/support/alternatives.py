"""Every text that a pattern is made of, spelled out from the pattern itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from re import _constants as ops  # type: ignore[attr-defined]  # only the parser knows what a pattern consists of
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any


def alternatives(pattern: re.Pattern[str]) -> list[str]:
    """One text for each way through the pattern, what may repeat taken as seldom as it may and once more."""
    return _of_all(parser.parse(pattern.pattern, pattern.flags))


def _of_all(items: Iterable[tuple[Any, Any]]) -> list[str]:
    return ["".join(texts) for texts in product(*(_READ.get(op, _nothing)(value) for op, value in items))]


def _nothing(_: Any) -> list[str]:
    """An anchor, or a look at what stands before or behind, takes no text."""
    return [""]


def _repeated(value: Any) -> list[str]:
    least, most, items = value
    return ["".join(texts) for n in {least, min(least + 1, int(most))} for texts in product(_of_all(items), repeat=n)]


def _one_of(choices: Any) -> list[str]:
    if choices[0][0] is ops.NEGATE:
        return ["·"]
    return [text for op, value in choices for text in _READ[op](value)]


def _category(value: Any) -> list[str]:
    return {ops.CATEGORY_WORD: ["w"], ops.CATEGORY_DIGIT: ["7"], ops.CATEGORY_SPACE: [" "]}.get(value, ["-"])


_READ: dict[Any, Callable[[Any], list[str]]] = {
    ops.LITERAL: lambda value: [chr(value)],
    ops.ANY: lambda _: [" "],
    ops.IN: _one_of,
    ops.RANGE: lambda value: [chr(value[0])],
    ops.CATEGORY: _category,
    ops.BRANCH: lambda value: [text for items in value[1] for text in _of_all(items)],
    ops.SUBPATTERN: lambda value: _of_all(value[-1]),
    ops.MAX_REPEAT: _repeated,
    ops.MIN_REPEAT: _repeated,
}
