"""Values that stand near a telling name: in the next cell of a row, or in the same sentence.

Nothing but nearness joins the two, so the value has to look drawn (`is_drawn`); an ordinary word never counts.
"""

from __future__ import annotations

import re

from perdure.redaction.names import promise_of
from perdure.redaction.page import ScanText, Secret
from perdure.redaction.values import is_drawn

_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_REST = re.compile(r"[A-Za-z0-9_-]{0,40}")
_VALUE = r"(?P<value>[A-Za-z0-9+/=_~.:!@#$%^&*?-]{8,2000})"
_VALUE_RE = re.compile(_VALUE)
_VALUE_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_~.:!@#$%^&*?-"
_OPEN, _CLOSE = "[\"'`“‘(<*]{0,3}", "[\"'`”’)>*.,;:]{0,4}"
# Between a name and the cell after it: `| NAME | value |`, `NAME,value`, `"NAME","value"`, `NAME<tab>value`.
_CELL_GAP = re.compile(rf"[\"'`*\\]{{0,4}}[ \t]{{0,40}}[|,;\t][ \t]{{0,40}}\\?{_OPEN}")
# Between a name and its value in a sentence: `api key for staging is value`, `set NAME to value`, `token (value)`.
_SENTENCE_GAP = re.compile(
    rf"""[\"'`*)]{{0,3}}
    (?P<words>(?:[ ][A-Za-z0-9(][A-Za-z0-9'’()-]{{0,20}}){{0,6}}?)
    (?P<joint>[ ](?:is|was|to|equals|are|be)(?:[ ]now|[ ]set[ ]to)?:?|[ ]{{0,2}}(?:[:=]|->|→|=>))?[ ]{{1,4}}{_OPEN}""",
    re.VERBOSE,
)
# The sentence before the name: `use value as the api key`, `value is our api key`.
_LAST_VALUE = re.compile(rf"^{_OPEN}{_VALUE}{_CLOSE}$")
_FEW_WORDS = re.compile(r"(?:[A-Za-z0-9'’-]{1,20} ){0,6}")
_SHORTEST = 12
_SPOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.'’-]{0,24}")
# How far from the name a value may begin.
_AHEAD, _BEHIND = 160, 360
# With no word or sign between the two (`token 3f0c9a1b2d4e`) a short value is an id.
_LONG_ENOUGH_ALONE = 20
# Every drawn value has a digit next to a letter somewhere, and most lines have not.
_MIXED = re.compile(rb"[^\n]*?(?:[0-9][A-Za-z]|[A-Za-z][0-9])")
_NO_NAME = frozenset(("", ".", "(", "[", "{"))
_ARTICLES = frozenset(("the", "a", "an", "this", "that", "my", "our", "your", "his", "her", "their", "its"))
_BREAK_WORDS = """
is as to for of use using used set here with and or new old in from by on at under into over per via was are be has have
had no not if when then so but because restored saved found missing invalid expired got get gets give need needs want
which what where how why please just only also it i you we they he she him them me us need try called named hit miss
"""
_BREAK = frozenset(_BREAK_WORDS.split())
# A word beside the name which says that the value is something about the secret and not the secret.
_ABOUT = re.compile(
    r"\b(?:hash|hashes|hashed|sha\d*|md5|digest|checksum|fingerprint|thumbprint|id|ids|identifier|uuid|public|name|names"
    r"|url|uri|path|file|arn|version|prefix|suffix|commit|revision|length|count|expires?|type|cache|etag|idempotency)\b",
    re.IGNORECASE,
)
_OF = re.compile(
    r"(?:hash|sha-?\d*|md5|digest|checksum|fingerprint|id|length|prefix|suffix|version) of "
    r"(?:[A-Za-z_-]+ ){0,3}[A-Za-z0-9_-]*$",
    re.IGNORECASE,
)


def nearby_value(page: ScanText, at: int) -> Secret | None:
    """The secret in the cell or the sentence next to the name that holds the anchor at this place."""
    found = _nearby(page, at)
    return None if found is not None and is_about(page.text, at) else found


def _nearby(page: ScanText, at: int) -> Secret | None:
    text = page.text
    before = page.raw[max(0, at - 64) : at]
    start = at - len(before) + len(before.rstrip(_NAME))
    rest = _REST.match(text, at)
    end = rest.end() if rest is not None else at
    if text[end : end + 1] in _NO_NAME or text[start - 1 : start] == ":":
        return None
    name = text[start:end]
    if promise_of(f"api_{name}") is None:
        return None  # no word before it could make this name a telling one
    name = _spoken_name(text, start, name)
    if promise_of(name) is None:
        return None
    if (found := _value_behind(page, start, end, name)) is not None:
        return found
    return _value_before(text, start, name)


def _value_behind(page: ScanText, start: int, end: int, name: str) -> Secret | None:
    """The value after a name: the first long word with a digit in it, if what stands between joins the two."""
    text, at = page.text, end
    while (mixed := _MIXED.match(page.raw, at, end + _AHEAD)) is not None:
        at = end + len(page.raw[end : mixed.end() - 1].rstrip(_VALUE_BYTES))
        value = _VALUE_RE.match(text, at)
        if value is not None:
            break
        at = max(mixed.end(), at)
    else:
        return None
    gap = text[end:at]
    if _CELL_GAP.fullmatch(gap):
        return _judge(name.replace(" ", "_"), value) if _begins_cell(text, start, name) else None
    sentence = _SENTENCE_GAP.fullmatch(gap)
    if sentence is None or _ABOUT.search(sentence["words"]):
        return None
    is_adjacent = not sentence["words"] and len(value["value"]) >= _LONG_ENOUGH_ALONE
    is_joined = sentence["joint"] is not None or is_adjacent
    return _judge(name, value) if is_joined else None


def is_about(text: str, start: int) -> bool:
    """Whether the name at this place is only what something else is of: `the hash of the token is …`."""
    return _OF.search(text, max(0, start - 60), start) is not None


def _begins_cell(text: str, start: int, name: str) -> bool:
    """Whether the name is a whole cell: what stands before it on its line is nothing, a bullet or a separator."""
    before = text[max(0, start - 80) : start].removesuffix(name[: name.rfind(" ") + 1]).rstrip(" \t\"'`*\\")
    return not before or before[-1] in "|,;\n→" or before.endswith("\\n")


def _spoken_name(text: str, start: int, name: str) -> str:
    """The name with the words before it that belong to it: `aws secret access` of `aws secret access key`."""
    spoken: list[str] = []
    for word in reversed(text[max(0, start - 78) : start].split(" ")[-4:-1]):
        if word.lower() in _BREAK or not _SPOKEN.fullmatch(word):
            break
        if word.lower() not in _ARTICLES:
            spoken.insert(0, word)
    return " ".join([*spoken, name]) if spoken else name


def _value_before(text: str, start: int, name: str) -> Secret | None:
    """The value in `use value as the api key` and `value is our api key`."""
    line = text[max(0, start - _BEHIND) : start]
    line = line[line.rfind("\n") + 1 :]
    for joint in (" as ", " is ", " for "):
        at = line.rfind(joint)
        if at < _SHORTEST or not _FEW_WORDS.fullmatch(words := line[at + len(joint) :]) or _ABOUT.search(words):
            continue
        found = _LAST_VALUE.search(line[line.rfind(" ", 0, at) + 1 : at])
        if found is not None and (secret := _judge(name, found)) is not None:
            shift = start - len(line) + line.rfind(" ", 0, at) + 1
            return Secret(secret.kind, secret.start + shift, secret.end + shift)
    return None


def _judge(name: str, found: re.Match[str]) -> Secret | None:
    promise = promise_of(name)
    value = found["value"].rstrip(".,;:!?)*>")
    if promise is None or _ABOUT.search(name.replace("_", " ")) or not is_drawn(name, promise, value):
        return None
    return Secret(promise.value, found.start("value"), found.start("value") + len(value))
