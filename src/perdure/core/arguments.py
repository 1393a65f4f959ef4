"""Checks of the arguments that programs pass to the public functions, before anything is opened or sent.

Each function has one table, from the name of an argument to what it must be:

    @check_arguments(context_length=WINDOW, handoff_key=optional(SECRET_BYTES))
    def compress(messages, *, context_length, handoff_key=None): ...

The message names the argument, what it must be, and the value; never the value of a secret. A function gets a count as
an int and a list as a list or tuple, from whatever number or iterable the program passed.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from perdure.core.errors import ConfigError, InvalidMessage, PerdureError
from perdure.core.messages import Message

P = ParamSpec("P")
T = TypeVar("T")

# Of a value, in a message.
_MOST_CHARS, _MOST_ITEMS = 60, 3


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """What an argument must be: a test of its value, and the words that follow "context_length is …".

    `convert` runs before the test; it returns what it cannot convert as it is.
    """

    description: str
    is_valid: Callable[[Any], bool]
    is_secret: bool = False
    error: type[PerdureError] = ConfigError
    convert: Callable[[Any], Any] | None = None


def optional(kind: ArgumentKind) -> ArgumentKind:
    """Return a kind that takes None as well."""
    is_valid, convert = kind.is_valid, kind.convert
    return replace(
        kind,
        description=f"{kind.description}, or None",
        is_valid=lambda v: v is None or is_valid(v),
        convert=convert and (lambda v: None if v is None else convert(v)),
    )


def with_description(kind: ArgumentKind, description: str) -> ArgumentKind:
    """Return the same kind with a description of its own."""
    return replace(kind, description=description)


def has_method(name: str) -> ArgumentKind:
    """Return the kind of objects with a method of this name."""
    return ArgumentKind(f"an object with the method {name}", lambda v: callable(getattr(v, name, None)))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_label(value: object) -> bool:
    """Whether a text can be a key of the database: all of it can be encoded, and it has no NUL."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def to_count(value: object) -> object:
    """Return a number as an int, a fraction rounded down; NaN, the infinities and what is no number stay."""
    if type(value) is int or isinstance(value, bool):
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]  # a TypeError is the answer
    except TypeError:
        pass
    if not isinstance(value, numbers.Number):
        return value
    try:
        return math.floor(value)  # type: ignore[call-overload]  # also of a Decimal; not of a complex number
    except (TypeError, ValueError, OverflowError):
        return value


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) or (_is_label(value) and value != "")


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def _to_list(value: object) -> object:
    """Return an iterable as a list: a generator can be read once, and a deque has no slices."""
    return (
        list(value)
        if isinstance(value, Iterable) and _is_list(value) and not isinstance(value, list | tuple)
        else value
    )


def _to_message_or_list(value: object) -> object:
    return value if isinstance(value, Message) else _to_list(value)


def _secret_text(value: object) -> object:
    """Return the text in a wrapper that hides it, such as pydantic's SecretStr."""
    unwrap = getattr(value, "get_secret_value", None)
    return unwrap() if callable(unwrap) else value


def _is_message_or_list(value: object) -> bool:
    return isinstance(value, Message | Mapping | str) or _is_list(value)


TEXT = ArgumentKind("a text", _is_text)
# The store reports an id that it cannot have as unknown.
ID = ArgumentKind("an id, as a text", _is_text)
LABEL = ArgumentKind("a text that UTF-8 can encode, without NUL", _is_label)
NAME = ArgumentKind("a name, as a text that is not empty", lambda v: _is_label(v) and v != "")
USER_KEY = ArgumentKind("a user's key, as a text that is not empty, without NUL", lambda v: _is_label(v) and v != "")
SECRET_TEXT = ArgumentKind("a text", _is_text, is_secret=True, convert=_secret_text)
TASK_ID = replace(LABEL, convert=str)
SECRET_BYTES = ArgumentKind("a key, as bytes", lambda v: isinstance(v, bytes | bytearray), is_secret=True)
PATH = ArgumentKind("a path, as a text or a pathlib.Path", _is_path)
FUNCTION = ArgumentKind("a function", callable)
FACTORY = ArgumentKind('a class, a function, or "module:Class"', lambda v: callable(v) or _is_text(v))
SUMMARIZE = ArgumentKind("a function from a prompt to a text", callable)
MAPPING = ArgumentKind("a dict", lambda v: isinstance(v, Mapping))
COUNT = ArgumentKind("a number", _is_count, convert=to_count)
TOKENS = with_description(COUNT, "a number of tokens")
WINDOW = ArgumentKind("the model's window in tokens, at least 1", lambda v: _is_count(v) and v >= 1, convert=to_count)
CHARS = with_description(COUNT, "a number of characters")
TOOLS = ArgumentKind(
    'a list of tool schemas, like [{"type": "function", "function": {…}}]',
    lambda v: isinstance(v, list | tuple) and all(isinstance(schema, Mapping) for schema in v),
    convert=_to_list,
)
TEXTS = ArgumentKind(
    "a list of texts", lambda v: isinstance(v, list | tuple) and all(map(_is_text, v)), convert=_to_list
)
MESSAGES = ArgumentKind(
    'a list like [{"role": "user", "content": "…"}]', _is_list, error=InvalidMessage, convert=_to_list
)
MESSAGE = ArgumentKind(
    'a dict like {"role": "user", "content": "…"}', lambda v: isinstance(v, Mapping), error=InvalidMessage
)
MESSAGE_OR_LIST = ArgumentKind(
    'a message like {"role": "user", "content": "…"}, or a list of them',
    _is_message_or_list,
    error=InvalidMessage,
    convert=_to_message_or_list,
)


def require(name: str, value: object, kind: ArgumentKind) -> Any:
    """Return the value as that kind has it, or raise the kind's error, by default ConfigError."""
    converted = value if kind.convert is None else kind.convert(value)
    if not kind.is_valid(converted):
        what = f"a value of type {type(value).__name__}" if kind.is_secret else _short_repr(value)
        raise kind.error(f"{name} is {kind.description}; given: {what}")
    return converted


def require_all(kinds: Mapping[str, ArgumentKind], arguments: Mapping[str, object]) -> None:
    """Check each argument that there is and that has a kind."""
    for name, value in arguments.items():
        if (kind := kinds.get(name)) is not None:
            require(name, value, kind)


def check_arguments(**kinds: ArgumentKind) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function, plain or async: it gets its arguments as `require` returns them."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        positions = {name: i for i, name in enumerate(inspect.signature(function).parameters)}
        checks = tuple((name, positions[name], kind) for name, kind in kinds.items())

        def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
            """Return the positional arguments as they are passed on; those by name are replaced in their dict."""
            for name, position, kind in checks:
                if position < len(args):
                    value = require(name, args[position], kind)
                    if value is not args[position]:
                        args = (*args[:position], value, *args[position + 1 :])
                elif name in kwargs:
                    kwargs[name] = require(name, kwargs[name], kind)
            return args

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def check_and_await(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await function(*check(args, kwargs), **kwargs)

            return check_and_await  # type: ignore[return-value]  # a coroutine function, as the one it wraps

        @functools.wraps(function)
        def check_and_call(*args: P.args, **kwargs: P.kwargs) -> T:
            return function(*check(args, kwargs), **kwargs)

        return check_and_call

    return decorate


def _short_repr(value: object) -> str:
    """Return the representation of a foreign value: of bounded length, and also where its own fails."""
    writer = reprlib.Repr()
    writer.maxstring = writer.maxother = writer.maxlong = _MOST_CHARS
    writer.maxlist = writer.maxtuple = writer.maxdict = writer.maxset = _MOST_ITEMS
    writer.maxlevel = 2
    return writer.repr(value)
