"""Run every regular expression of the package on texts that repeat its own parts; print those that take long.

Run as a script: expressions are recorded while the modules are imported for the first time.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from itertools import islice, pairwise
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]  # the only way to see the structure of an expression
from typing import Any

REPETITIONS = 40
MOST_CHARS = 600
# Enough for a search from each character to the end; not for the square of that, nor for a doubling by each word.
MOST_SECONDS = 0.5
MOST_TEXTS = 120
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT)
_SIGNS = "a1A .-_/\\\"'`:=,;<>[](){}|!?#@$%&*+~^\n\t们é“"


def patterns() -> list[re.Pattern[str]]:
    """Import the whole package and return the expressions that were compiled meanwhile."""
    found: dict[tuple[str, int], re.Pattern[str]] = {}
    compile_pattern = re._compile  # type: ignore[attr-defined]

    def record(source: Any, flags: int) -> Any:
        pattern = compile_pattern(source, flags)
        if isinstance(pattern.pattern, str):
            found[pattern.pattern, pattern.flags] = pattern
        return pattern

    re._compile = record  # type: ignore[attr-defined]
    import perdure

    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    re._compile = compile_pattern  # type: ignore[attr-defined]
    return list(found.values())


def sample(tree: Any, choice: int) -> str:
    """Return a text that the expression matches, as far as its parts tell; the choice varies them."""
    return "".join(_sample_one(op, value, choice) for op, value in tree)


def _sample_one(op: Any, value: Any, choice: int) -> str:
    if op is ops.LITERAL:
        return chr(value)
    if op is ops.ANY:
        return "a"
    if op in (ops.IN, ops.NOT_LITERAL, ops.CATEGORY):
        signs = _signs_of(op, value)
        return signs[choice % len(signs)] if signs else ""
    if op is ops.BRANCH:
        return sample(value[1][choice % len(value[1])], choice)
    if op is ops.SUBPATTERN:
        return sample(value[3], choice)
    if op in (*_REPEATS, ops.POSSESSIVE_REPEAT):
        least, most, part = value
        times = 0 if most == 1 and choice & 2 else 1 + 2 * (choice & 1)
        return sample(part, choice) * int(max(least, min(most, times)))
    return sample(value, choice) if op is ops.ATOMIC_GROUP else ""


_known_signs: dict[str, list[str]] = {}


def _signs_of(op: Any, value: Any) -> list[str]:
    if (key := f"{op} {value}") not in _known_signs:
        tree = _parser.SubPattern(_parser.State(), [(op, value)])
        one = re._compiler.compile(tree)  # type: ignore[attr-defined]
        _known_signs[key] = [s for s in _SIGNS if one.match(s)]
    return _known_signs[key]


def pumps(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what comes before each repeated part of an expression, with texts for the part."""
    for op, value in tree:
        if op in _REPEATS and value[1] > REPETITIONS // 4:
            width = max((len(v[1]) for o, v in _flatten(value[2]) if o is ops.BRANCH), default=0)
            units = list(dict.fromkeys(sample(value[2], choice) for choice in range(max(8, min(width, 48)))))
            yield from ((before, unit) for unit in units)
            yield from ((before, a + b) for a, b in pairwise(units))
        for part in _parts(op, value):
            yield from pumps(part, before)
        before += _sample_one(op, value, 0)
    yield "", before


def _parts(op: Any, value: Any) -> list[Any]:
    if op is ops.BRANCH:
        return list(value[1])
    if op is ops.SUBPATTERN:
        return [value[3]]
    return [value[2]] if op in _REPEATS else []


def _flatten(tree: Any) -> Iterator[tuple[Any, Any]]:
    for op, value in tree:
        yield op, value
        for part in _parts(op, value):
            yield from _flatten(part)


class _TooLongError(Exception):
    """Raised in a search that has used up its processor time."""


def _stop(*_: object) -> None:
    raise _TooLongError


def takes_long(pattern: re.Pattern[str], text: str) -> bool:
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        pattern.search(text)
    except _TooLongError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False


def main() -> None:
    signal.signal(signal.SIGVTALRM, _stop)
    for pattern in patterns():
        tree = _parser.parse(pattern.pattern, pattern.flags)
        for before, unit in islice(dict.fromkeys(pumps(tree)), MOST_TEXTS):
            count = min(REPETITIONS, MOST_CHARS // max(1, len(unit)))
            if unit and takes_long(pattern, f"{before}{unit * count}\0"):
                print(f"{pattern.pattern[:80]!r} on {before!r} and {unit!r} repeated")
                break


if __name__ == "__main__":
    main()
