"""Check values against JSON schemas, and schemas for validity, within time limits: both may come from clients.

`jsonschema` does the checking, without remote references. A check that takes too long decides nothing: the arguments of
a tool are then accepted, an answer is rejected. A regular expression that might take long is left out.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # the only way to see the structure of an expression
from typing import Any, cast

from perdure.core.turn_options import AnswerFormat

_MAX_STEPS = 200_000
_MAX_SECONDS = 1.0
_MAX_MESSAGE_CHARS = 300
# Regular expressions run on texts of any length, and on the names of properties.
_MAX_PATTERN_COST = 20_000_000
_MAX_NAME_CHARS = 256
# Their values are data and not schemas.
_DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples", "example"})
# Constructs of JavaScript that Python writes differently or lacks; replaced to see whether the rest is valid.
_FOREIGN_SYNTAX = ((re.compile(r"\\[pP]\{[^}]*\}"), r"\\w"), (re.compile(r"\(\?<(?=[A-Za-z_])"), "(?P<"))

Path = tuple[str | int, ...]
Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]


class _CheckTooLong(Exception):
    """Raised inside a check that has used up its steps or its time."""


class SchemaUndecided(Exception):
    """Raised when a value could not be checked against its schema within the limits; the message has the reason."""


# -- values ------------------------------------------------------------------------------------------------------------


def schema_problem(value: Any, schema: Mapping[str, Any], *, name: str = "answer") -> str | None:
    """Return the most relevant reason why a value does not fit a schema, with its location; None if it fits.

    Takes at most about a second of processor time. Raises SchemaUndecided.
    """
    from jsonschema.exceptions import best_match  # imported on first use: it takes a fifth of a second

    try:
        has_patterns = any(keyword == "patternProperties" for _, keyword, _ in _keywords(schema))
        if has_patterns and _has_long_name(value):
            return f"{name} has a property whose name is longer than {_MAX_NAME_CHARS} characters"
        error = best_match(_validator(_bounded_schema(schema)).iter_errors(value))
    except _CheckTooLong:
        raise SchemaUndecided("the check took too long") from None
    except RecursionError:
        raise SchemaUndecided("it is nested too deeply") from None
    except Exception as failure:  # the schema is foreign: one that does not hold together fails in any way
        raise SchemaUndecided(f"the schema cannot be applied ({type(failure).__name__})") from None
    if error is None:
        return None
    return f"{_format_path(name, error.absolute_path)}: {_shorten(error.message)}"


def parse_answer(answer_format: AnswerFormat, text: str) -> tuple[str, str | None]:
    """Return the JSON text of an answer without a Markdown fence, and the reason if it does not fit the format."""
    answer = _without_fences(text)
    try:
        value = parse_json(answer)
    except ValueError as error:
        return answer, f"it is not valid JSON ({error})"
    except JsonTooLarge as error:
        return answer, str(error)
    if answer_format.schema is None:
        return answer, None if isinstance(value, dict) else "it is not a JSON object"
    try:
        return answer, schema_problem(value, answer_format.schema)
    except SchemaUndecided as error:
        return answer, f"it could not be checked against the schema: {error}"


class JsonTooLarge(Exception):
    """Raised for valid JSON that is nested too deeply or has too long an integer to be parsed."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON strictly, without NaN and Infinity. Raises ValueError, JsonTooLarge."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise JsonTooLarge("it is nested too deeply") from None
    except ValueError as error:
        # The only other ValueError is about the digits of an integer, with advice for Python programs.
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | _NotJson):
            raise
        raise JsonTooLarge(f"it has an integer of more than {sys.get_int_max_str_digits():,} digits") from None


class _NotJson(ValueError):
    """Raised for a JavaScript constant that is not JSON, such as NaN."""


def _refuse_constant(name: str) -> Any:
    raise _NotJson(f"{name} is not a JSON value")


def _without_fences(text: str) -> str:
    """Return the text without a Markdown fence around the whole of it."""
    answer = text.strip()
    if not answer.startswith("```") or not answer.endswith("```") or len(answer) < 6:
        return answer
    opening, _, body = answer[:-3].partition("\n")
    return body.strip() if opening.strip("`").strip().lower() in ("", "json") else answer


# -- schemas -----------------------------------------------------------------------------------------------------------


def find_schema_error(schema: Mapping[str, Any], path: str) -> str | None:
    """Return why a schema is not valid, with the place of the error, or None."""
    return _schema_error(json.dumps(schema, ensure_ascii=True, sort_keys=True), path)


@lru_cache(maxsize=64)
def _schema_error(text: str, path: str) -> str | None:
    """Return why a schema is invalid, or None; cached, since clients send the same schemas with every request."""
    schema = json.loads(text)
    try:
        error = _metaschema_error(schema)
    except RecursionError:
        return f"{path} is nested too deeply"
    if error is not None:
        return f"{_format_path(path, error.absolute_path)}: {_shorten(error.message)}"
    for at, keyword, value in _keywords(schema):
        where = _format_path(path, at)
        if keyword == "$ref" and not _is_resolvable(schema, value):
            return f"{where}: {_shorten(value)} refers to nothing in this schema"
        for pattern in [value] if keyword == "pattern" else value if keyword == "patternProperties" else ():
            if not _is_valid_pattern(pattern):
                return f"{where}: {_shorten(pattern)} is not a valid regular expression"
    return None


def _metaschema_error(schema: Any) -> Any:
    """Return the error of the newest draft if the schema is valid in none; clients rarely name theirs."""
    from jsonschema import FormatChecker
    from jsonschema.exceptions import SchemaError

    errors: list[Any] = []
    for draft in _drafts(schema):
        try:
            draft.check_schema(schema, format_checker=FormatChecker(()))
        except SchemaError as error:
            errors.append(error)
        else:
            return None
    return errors[0]


def _drafts(schema: Any) -> list[Any]:
    from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
    from jsonschema.validators import validator_for

    drafts: list[Any] = [Draft202012Validator, Draft7Validator, Draft4Validator]
    named = schema.get("$schema") if isinstance(schema, Mapping) else None
    return [validator_for(schema, default=drafts[0]), *drafts] if isinstance(named, str) else drafts


def _keywords(schema: Any, at: Path = ()) -> Iterator[tuple[Path, str, Any]]:
    """Yield the references and regular expressions of a schema with their places."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in ("$ref", "pattern") and isinstance(value, str):
                yield (*at, key), key, value
            elif key == "patternProperties" and isinstance(value, Mapping):
                yield (*at, key), key, list(value)
            if key not in _DATA_KEYWORDS or at[-1:] == ("properties",):
                yield from _keywords(value, (*at, key))
    elif isinstance(schema, list):
        for i, item in enumerate(schema):
            yield from _keywords(item, (*at, i))


def _is_resolvable(root: Any, reference: str) -> bool:
    """Return whether a reference points into its schema; embedded ids and anchors are resolved while checking."""
    if not reference.startswith("#"):
        return '"$id"' in json.dumps(root)
    if not reference.startswith("#/"):
        return True
    target = root
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~").replace("%25", "%")
        if isinstance(target, list) and key.isascii() and key.isdecimal() and int(key) < len(target):
            target = target[int(key)]
        elif isinstance(target, Mapping) and key in target:
            target = target[key]
        else:
            return False
    return isinstance(target, Mapping | bool)


# -- bounds ------------------------------------------------------------------------------------------------------------


def _validator(schema: Any) -> Any:
    """Return a validator of the first draft in which the schema is valid, with a limit of steps and time."""
    from jsonschema import validators
    from referencing import Registry

    drafts = _drafts(schema)
    draft = next((d for d in drafts if d(d.META_SCHEMA).is_valid(schema)), drafts[0])
    # The thread's own time: a machine that is busy with other things makes no check a long one.
    deadline_s, steps = time.thread_time() + _MAX_SECONDS, iter(range(_MAX_STEPS))

    def limit_keyword(check: Keyword) -> Keyword:
        def run(*arguments: Any) -> Iterator[Any]:
            if next(steps, None) is None or time.thread_time() > deadline_s:
                raise _CheckTooLong
            yield from check(*arguments) or ()

        return run

    checks = {**draft.VALIDATORS, "uniqueItems": _check_unique, "pattern": _check_pattern}
    make = validators.extend(draft, {name: limit_keyword(check) for name, check in checks.items()})
    # An empty registry: nothing is fetched.
    return cast(Any, make)(schema, registry=Registry())


def _check_unique(validator: Any, is_unique: Any, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if is_unique is True and isinstance(value, list) and len({_identity(item) for item in value}) < len(value):
        yield ValidationError("the items are not unique")


def _identity(value: Any) -> str:
    """Return a text that equal JSON values have in common; 1 and 1.0 are equal, 1 and true are not."""

    def normalize(item: Any) -> Any:
        if isinstance(item, float) and item.is_integer():
            return int(item)
        if isinstance(item, dict):
            return {key: normalize(member) for key, member in item.items()}
        return [normalize(member) for member in item] if isinstance(item, list) else item

    return json.dumps(normalize(value), sort_keys=True)


def _check_pattern(validator: Any, pattern: Any, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    is_checked = isinstance(value, str) and _pattern_cost(pattern, len(value)) <= _MAX_PATTERN_COST
    if is_checked and not re.search(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _bounded_schema(schema: Any) -> Any:
    """Return the schema without `patternProperties` with expensive expressions, and without what depends on them."""
    if isinstance(schema, list):
        return [_bounded_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    names = schema.get("patternProperties")
    if isinstance(names, Mapping) and any(_pattern_cost(n, _MAX_NAME_CHARS) > _MAX_PATTERN_COST for n in names):
        dropped = {"patternProperties", "additionalProperties", "unevaluatedProperties"}
        schema = {key: value for key, value in schema.items() if key not in dropped}
    return {key: value if key in _DATA_KEYWORDS else _bounded_schema(value) for key, value in schema.items()}


def _has_long_name(value: Any) -> bool:
    """Whether a property name is too long to run regular expressions on."""
    if isinstance(value, dict):
        return any(len(name) > _MAX_NAME_CHARS or _has_long_name(item) for name, item in value.items())
    return isinstance(value, list) and any(_has_long_name(item) for item in value)


def _is_valid_pattern(pattern: str) -> bool:
    if _compiles(pattern):
        return True
    for construct, replacement in _FOREIGN_SYNTAX:
        pattern = construct.sub(replacement, pattern)
    return _compiles(pattern)


@lru_cache(maxsize=256)
def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


# Parts of a regular expression that repeat what they have, and those that match in one way.
_REPEATS = (_parser.MAX_REPEAT, _parser.MIN_REPEAT, _parser.POSSESSIVE_REPEAT)
_SINGLE = (_parser.LITERAL, _parser.NOT_LITERAL, _parser.ANY, _parser.IN, _parser.AT, _parser.GROUPREF)


@lru_cache(maxsize=1024)
def _pattern_cost(pattern: str, chars: int) -> float:
    """Estimate the steps of a search for a pattern in so many characters, at worst.

    Infinite if it does not compile, or may take exponential time.
    """
    if not _compiles(pattern):  # in the syntax of another language
        return math.inf
    return chars * _ways(_parser.parse(pattern), max(chars, 1))


def _ways(items: Any, chars: int) -> float:
    """Return in how many ways a parsed regular expression can match at one position."""
    total = 1.0
    for kind, argument in items:
        if kind in _REPEATS:
            least, most, inner = argument
            most, each = min(int(most), chars), _ways(inner, chars)
            total *= max(most - least + 1, 1) if each == 1 else each**most if most < 20 else math.inf
        elif kind is _parser.BRANCH:
            total *= sum(_ways(branch, chars) for branch in argument[1])
        elif kind is _parser.GROUPREF_EXISTS:
            total *= sum(_ways(branch, chars) for branch in argument[1:] if branch is not None)
        elif kind in (_parser.SUBPATTERN, _parser.ASSERT, _parser.ASSERT_NOT):
            total *= _ways(argument[-1], chars)
        elif kind is _parser.ATOMIC_GROUP:
            total *= _ways(argument, chars)
        elif kind not in _SINGLE:
            return math.inf
    return total


def _format_path(root: str, path: Iterable[str | int]) -> str:
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step[:80]}" for step in path)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}…"
