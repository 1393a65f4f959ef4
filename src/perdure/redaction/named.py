"""Values given to a telling name: `PASSWORD=…`, `"api_key": "…"`, `--token …`, `<password>…</password>`, 密码：…"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from perdure.redaction.names import Promise, promise_of
from perdure.redaction.page import Page, Secret
from perdure.redaction.shapes import is_identifier, is_stand_in, is_uuid, is_wordy, looks_random

_ANCHORS = (b"pass", b"pwd", b"secret", b"token", b"key", b"auth")
_ID_ANCHORS, _ID_END = (b"sid=", b"sessionid="), b"id="
_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_JUDGED, _LONG = 400, 64
_LINE_STARTS = ("", "\n", "\\", '"', "'")
_QUOTE = r"\\{0,3}[\"'`]"
_TO = re.compile(
    rf"""(?P<rest>[A-Za-z0-9_-]{{0,40}})
    (?: (?:{_QUOTE})?,?(?:\s|\\[nr]){{0,40}}(?:{_QUOTE})?[Vv]alue(?:{_QUOTE})?[ \t]{{0,24}}[:=][ \t]{{0,24}}(?P<pair>)
      | (?:\*\*|{_QUOTE})?\]?
        (?:[ \t]{{0,4}}\??:[ \t]{{0,4}}[A-Za-z_][\w\[\].<>| &*]{{0,30}}?(?=[ \t]{{0,4}}=[ \t]{{0,4}}[bru@]?{_QUOTE}))?
        (?P<spaced>[ \t]{{0,24}})(?P<sign>::?=|=>|={{1,3}}|!==?|:(?!:)(?:\*\*)?)(?P<gap>[ \t]{{0,24}})
      | [ \t]+-p[ \t]?(?P<flag>)
      | (?P<tag>>)
      | [ \t]+(?P<said>is:?|was:?)[ \t]+
      | (?P<word>[ \t]+)(?=[^\s=:-])
    )""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"[bru@]?(?P<mark>(?P<slash>\\{0,3})[\"'`])(?P<value>(?:(?!(?P=mark))[^\n]){1,2000}?)(?P=mark)")
_BARE = re.compile(r"[!#$%*+./0-9:=?@A-Z^_a-z|~À-ÿ-]{1,8000}")
_BARE_LINE = re.compile(r"[!#$%&()*+,./0-9:=?@A-Z^_a-z|~{}\[\]À-ÿ-]{1,8000}")
_LOCAL_SIGNS = "密令パ暗비암패"  # one of them is in each word below, and one character is found faster than a word
_LOCAL = re.compile(
    r"(?:密[码碼钥鑰]|口令|令牌|パスワード|暗証番号|秘密鍵|비밀번호|비밀키|암호|패스워드)\s{0,8}(?:[:：=＝]|是|为|為|は|는|은|가)?\s{0,8}"
    r"[「『“\"'`]?(?P<value>[!#$%&*+./0-9:=?@A-Z^_a-z|~-]{6,400})"
)
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


class _Form(Enum):
    """How the value is written, which says how far it may be code or prose instead."""

    QUOTED = "quoted"
    SETTING = "setting"
    BARE = "bare"
    CODE = "code"
    PROSE = "prose"


class _Reading(NamedTuple):
    """A value that a telling name was given, not yet judged."""

    promise: Promise
    value: str
    start: int
    form: _Form


def named_values(page: Page) -> Iterator[Secret]:
    """Values of telling names that are neither stand-ins, nor code, nor plain words."""
    done = 0
    for at in sorted({at for anchor in _ANCHORS for at in page.places(anchor)}.union(_ids(page))):
        if at < done or (read := _read(page, at)) is None:
            continue
        end = read.start + len(read.value)
        if len(read.value) >= 3 and _is_secret(read.promise, read.value, read.form):
            yield Secret(read.promise.value, read.start, end)
            done = end
        elif len(read.value) > _LONG:
            done = end  # refused as a whole: the names inside it are not names of anything
    if not page.text.isascii() and any(sign in page.text for sign in _LOCAL_SIGNS):
        yield from _locally_named(page.text)


def _ids(page: Page) -> Iterator[int]:
    """Where the ids of sessions are named: by their common end, which is looked for once."""
    for end in page.places(_ID_END):
        for name in _ID_ANCHORS:
            at = end + len(_ID_END) - len(name)
            if at >= 0 and page.lower.startswith(name, at):
                yield at


def _locally_named(text: str) -> Iterator[Secret]:
    for match in _LOCAL.finditer(text):
        value = match["value"].rstrip(".,;:!?")
        if _is_secret(Promise.PASSWORD, value, _Form.PROSE):
            yield Secret("password", match.start("value"), match.start("value") + len(value))


def _read(page: Page, at: int) -> _Reading | None:
    text = page.text
    to = _TO.match(text, at)
    if to is None:
        return None
    before = page.raw[max(0, at - 64) : at]
    start = at - len(before) + len(before.rstrip(_NAME))
    name = text[start : to.end("rest")]
    promise = promise_of(_unescaped(text, start, name))
    if promise is None or not _is_joined(text, start, to, name):
        return None
    form = _form(text, start, to, name)
    if name == "PASS" and form is not _Form.SETTING:
        return None  # a test runner's verdict
    return _value(promise, text, to, form)


def _unescaped(text: str, start: int, name: str) -> str:
    """The name without the `n` of a `\\n` that stands before it in escaped text."""
    return name[1:] if start and text[start - 1] == "\\" and name[:1] in "nrt" else name


def _is_joined(text: str, start: int, to: re.Match[str], name: str) -> bool:
    """Whether what stands between name and value gives the one to the other, rather than being prose."""
    if to["tag"] is not None:
        return text[start - 1 : start] == "<"
    if to["flag"] is not None:
        return name == "sshpass"
    if to["word"] is not None:
        before = text[max(0, start - 80) : start]
        follows_quote = name.lower().endswith("password") and text[to.end()] in "'\""
        return name.startswith("--") or follows_quote or "login " in before or before.endswith(("ENV ", "setx "))
    return True


def _form(text: str, start: int, to: re.Match[str], name: str) -> _Form:
    if to["said"] is not None:
        return _Form.PROSE
    if to["tag"] is not None:
        return _Form.QUOTED
    if to["pair"] is not None:
        return _Form.BARE
    sign, gap = to["sign"], (to["spaced"] or "") + (to["gap"] or "")
    behind = text[max(0, start - 1) : start]
    if sign == "=" and not gap and (name.upper() == name or "." in name or behind in ("?", "&", ";")):
        return _Form.SETTING
    if sign is None or (
        (sign in (":", ":**") or (sign == "=" and (not gap or (behind in _LINE_STARTS or not behind.isascii()))))
        and behind not in ("(", ".")
    ):
        return _Form.BARE
    return _Form.CODE


def _value(promise: Promise, text: str, to: re.Match[str], form: _Form) -> _Reading | None:
    at = to.end()
    quoted = _QUOTED.match(text, at) if to["tag"] is None else None
    if quoted is not None:
        value, at, form = quoted["value"], quoted.start("value"), _Form.QUOTED
    else:
        at += text[at : at + 1] in ('"', "'")
        bare = (_BARE_LINE if form is _Form.SETTING and text[to.end("rest") : at] == "=" else _BARE).match(text, at)
        if bare is None:
            return None
        value = _trimmed(bare[0], form)
        after = text[at + len(value) : at + len(value) + 1]
        if (after and after in "([{") or (
            form is _Form.BARE and is_identifier(value) and (after in tuple(",)]};") or "." in value)
        ):
            form = _Form.CODE
    return _Reading(promise, value, at, form)


def _trimmed(value: str, form: _Form) -> str:
    if form is _Form.SETTING:
        # In a query or a connection string the next pair follows; in a .env file the value runs to the end of the line.
        cut = re.search(r"[&;,]\w[\w.]*=|;$|,$|\)$|\]$|\}$", value)
        return value[: cut.start()] if cut else value
    return value.rstrip(".,;:!?)") if form is _Form.PROSE else value.rstrip(",;:")


def _is_secret(promise: Promise, whole: str, form: _Form) -> bool:
    value = whole[:_JUDGED]
    if is_stand_in(value) or _INTERPOLATED.search(value) or (_CODE.search(value) and form is not _Form.QUOTED):
        return False
    if _PLACE.match(value) and not (len(value) >= 32 and looks_random(value) and re.fullmatch(r"[\w+/=]+", value)):
        return False
    if promise is Promise.PHRASE and form is _Form.QUOTED and value.count(" ") >= 2:
        return not re.search(r"(?i)phrase|enter|your|required|[.?!]$", value)
    if promise in (Promise.PASSWORD, Promise.PHRASE):
        return _is_password(value, form)
    if is_uuid(value):
        return promise is Promise.SECRET
    if promise is Promise.KEY:
        return (
            form in (_Form.SETTING, _Form.QUOTED)
            and len(value) >= 20
            and looks_random(value)
            and not re.search(r"[-_.:]", value)
        )
    if form is _Form.CODE and is_identifier(value):
        return len(value) >= 16 and looks_random(value)
    if (
        promise is Promise.SECRET
        and form is _Form.SETTING
        and len(value) >= 8
        and (value.isalnum() or not re.search("key|secret|token", value))
    ):
        return True
    return " " not in value and (looks_random(value) or _is_long_mix(value))


def _is_long_mix(value: str) -> bool:
    """Words run together with digits, as people make keys up: `supersecretkey12345`; not `db-credentials-v2`."""
    return (
        len(value) >= 12
        and bool(re.fullmatch(r"(?=[^\d]*\d)(?=\d*[^\d])[A-Za-z0-9+/=!@#$%^&*]+", value))
        and not is_identifier(value)
    )


def _is_password(value: str, form: _Form) -> bool:
    has_digit, has_letter = bool(re.search(r"\d", value)), bool(re.search(r"[A-Za-z]", value))
    has_special = re.search(r"[^\w\s.:/\\,()'\"-]", value[1:]) is not None
    if _PATTERN.search(value) or (not value.isprintable() and not has_letter):
        return False
    if form is _Form.CODE and is_identifier(value):
        return len(value) >= 12 and looks_random(value)
    if re.search(r"\s", value):
        return form is _Form.QUOTED and has_special and has_digit and not is_wordy(value)
    if form is _Form.SETTING:
        return True
    if has_digit and has_letter:
        return len(value) >= (6 if form is _Form.PROSE else 4)
    if has_digit and not has_letter:
        return form is not _Form.PROSE and value.isdigit() and len(value) >= (4 if form is _Form.QUOTED else 6)
    if has_special:
        return len(value) >= 6 and value.isascii()
    if form is _Form.PROSE or not value.isascii():
        return False
    return (
        _COMMON.fullmatch(value.lower()) is not None
        or looks_random(value)
        or (value.isalpha() and value.islower() and len(value) >= 16)
    )
