"""Whether the value of a telling name is a secret: it may be code, a path, a word or a stand-in instead."""

from __future__ import annotations

import re
from enum import Enum

from perdure.redaction.names import Promise, names_an_issuer
from perdure.redaction.shapes import (
    class_switches,
    is_filler,
    is_identifier,
    is_stand_in,
    is_uuid,
    is_wordy,
    looks_random,
)

_JUDGED = 400
_HEX = re.compile(r"[0-9a-fA-F]+")
_JOINTS = re.compile(r"[-_.]")
_LETTERS = re.compile(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}")
_INTERPOLATED = re.compile(r"\$\{|\$\(|\{\{|\{[\w.]*\}|%[sdvr(]|#\{|\\\(|<[a-z][\w -]*>|\+ *[\"']")
_CODE = re.compile(
    r"\w\(|\w\[|\(\)|=>|->|::|&&|\|\||^\*|^[!&]\w+$|^[\[{(]|^new$|^(?:await|async|lambda|function|return)$"
)
_PATTERN = re.compile(r"^\^|\(\?|\.\*|\\[dwsb]|\[[a-zA-Z]-|required|min:|max:")
_PLACE = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:[\\/]|[a-z][a-z0-9+.-]*://|\.\w|#\w)")
_COMMON = re.compile(
    r"postgres|postgresql|root|admin|letmein|qwerty|swordfish|guest|toor|welcome|changeit|dragon|"
    r"monkey|iloveyou|sunshine|princess|football|baseball|superman|trustno|hunter|shadow|ninja|"
    r"azerty|mysql|mariadb|redis|rabbitmq|minio|sa"
)


class Form(Enum):
    """How the value is written, which says how far it may be code or prose instead."""

    QUOTED = "quoted"
    SETTING = "setting"
    BARE = "bare"
    CODE = "code"
    PROSE = "prose"


def is_secret(name: str, promise: Promise, whole: str, form: Form) -> bool:
    value = whole[:_JUDGED]
    if is_stand_in(value) or _INTERPOLATED.search(value) or (_CODE.search(value) and form is not Form.QUOTED):
        return False
    if _PLACE.match(value) and not (len(value) >= 32 and looks_random(value) and re.fullmatch(r"[\w+/=]+", value)):
        return False
    if promise is Promise.PHRASE and form is Form.QUOTED and value.count(" ") >= 2:
        return not re.search(r"(?i)phrase|enter|your|required|[.?!]$", value)
    if promise in (Promise.PASSWORD, Promise.PHRASE):
        return _is_password(value, form)
    if is_uuid(value):
        return promise is Promise.SECRET or (promise is Promise.TOKEN and names_an_issuer(name)) or name.isupper()
    if promise is Promise.KEY:
        is_long = len(value) >= (20 if _HEX.fullmatch(value) or form is Form.CODE else 12)
        return is_long and _is_random(value) and not (form is Form.CODE and "." in value)
    if form is Form.CODE and is_identifier(value):
        return len(value) >= 16 and looks_random(value)
    if (
        promise is Promise.SECRET
        and form is Form.SETTING
        and len(value) >= 8
        and (value.isalnum() or not re.search("key|secret|token", value))
    ):
        return True
    if promise is Promise.SECRET and form is Form.QUOTED and value.isdigit():
        return len(value) >= 14 and "12345678" not in value
    if " " in value:
        return False
    return looks_random(value) or _is_long_mix(value) or (len(value) >= 16 and _is_random(value))


def _is_long_mix(value: str) -> bool:
    """Words run together with digits, as people make keys up: `supersecretkey12345`; not `db-credentials-v2`."""
    return (
        len(value) >= 12
        and bool(re.fullmatch(r"(?=[^\d]*\d)(?=\d*[^\d])[A-Za-z0-9+/=!@#$%^&*]+", value))
        and not is_identifier(value)
    )


def _is_password(value: str, form: Form) -> bool:
    has_digit, has_letter = bool(re.search(r"\d", value)), bool(re.search(r"[A-Za-z]", value))
    has_special = re.search(r"[^\w\s.:/\\,()'\"-]", value[1:]) is not None
    if _PATTERN.search(value) or (not value.isprintable() and not has_letter):
        return False
    if form is Form.CODE and is_identifier(value):
        return len(value) >= 12 and looks_random(value)
    if re.search(r"\s", value):
        return form is Form.QUOTED and has_special and has_digit and not is_wordy(value)
    if form is Form.SETTING:
        return True
    if has_digit and has_letter:
        return len(value) >= (6 if form is Form.PROSE else 4)
    if has_digit and not has_letter:
        return form is not Form.PROSE and value.isdigit() and len(value) >= (4 if form is Form.QUOTED else 6)
    if has_special:
        return len(value) >= 6 and value.isascii()
    if form is Form.PROSE or not value.isascii():
        return False
    return (
        _COMMON.fullmatch(value.lower()) is not None
        or looks_random(value)
        or (value.isalpha() and value.islower() and len(value) >= 16)
    )


def is_drawn(name: str, promise: Promise, value: str) -> bool:
    """Whether a value that only stands near its name is a secret: it has to look drawn, whatever the name promises."""
    if not is_secret(name, promise, value, Form.QUOTED) or is_filler(value):
        return False
    if is_uuid(value):
        return True
    if is_identifier(value) and "." in value:
        return False
    if promise is Promise.KEY and " " in name and _HEX.fullmatch(value):
        return False  # "the shard key is 9f86d081…": any word can stand before `key` in prose
    return len(value) >= 12 and _is_random(value)


def _is_random(value: str) -> bool:
    """Whether the value looks drawn, be it as a whole because its parts are short."""
    return (looks_random(value) or _is_random_joined(value)) and not _has_words(value)


def _is_random_joined(value: str) -> bool:
    joined = _JOINTS.sub("", value)
    is_dense = len(joined) >= 18 and 5 * class_switches(joined) >= len(joined) and joined.isalnum()
    return is_dense and 7 * (len(value) - len(joined)) <= len(value) and looks_random(joined)


def _has_words(value: str) -> bool:
    """Whether words make up half of the value: `node-modules-9f8a7b6c`, `users/2024/avatar_9f8a.png`."""
    words = sum(len(part) for part in _LETTERS.findall(value) if is_wordy(part))
    return 2 * words > len(value)
