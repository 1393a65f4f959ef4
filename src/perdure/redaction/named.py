"""Values given to a telling name: `PASSWORD=…`, `"api_key": "…"`, `--token …`, `<password>…</password>`, 密码：…"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from perdure.redaction.columns import Columns
from perdure.redaction.names import Promise, promise_of
from perdure.redaction.nearby import is_about, nearby_value
from perdure.redaction.page import ScanText, Secret
from perdure.redaction.shapes import is_identifier
from perdure.redaction.values import Form, is_secret

_ANCHORS = (b"pass", b"pwd", b"secret", b"token", b"key", b"auth", b"cred")
_PAT = re.compile(rb"pat(?![a-z])")  # "personal access token", at the end of a name
_ID_ANCHORS, _ID_END = (b"sid=", b"sessionid="), b"id="
_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_LONG = 64
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
# Up to the next pair, if one follows (`&name=`, `,name=`); reading on would take quadratic time in a long query.
_BARE_LINE = re.compile(r"(?:[!#$%()*+./0-9:=?@A-Z^_a-z|~{}\[\]À-ÿ-]|[&,](?!\w[\w.]{0,60}=)){1,8000}")
_LOCAL_SIGNS = "密令パ暗비암패"  # one of them is in each word below, and one character is found faster than a word
_LOCAL = re.compile(
    r"(?:密[码碼钥鑰]|口令|令牌|パスワード|暗証番号|秘密鍵|비밀번호|비밀키|암호|패스워드)\s{0,8}(?:[:：=＝]|是|为|為|は|는|은|가)?\s{0,8}"
    r"[「『“\"'`]?(?P<value>[!#$%&*+./0-9:=?@A-Z^_a-z|~-]{6,400})"
)


class _Reading(NamedTuple):
    """A value that a telling name was given, not yet judged."""

    name: str
    promise: Promise
    value: str
    start: int
    form: Form


def named_values(page: ScanText) -> Iterator[Secret]:
    """Values of telling names that are neither stand-ins, nor code, nor plain words."""
    done, columns = 0, Columns(page)
    for at in _anchors(page):
        if at < done:
            continue
        read = _read(page, at)
        end = read.start + len(read.value) if read is not None else 0
        if read is not None and len(read.value) >= 3 and is_secret(read.name, read.promise, read.value, read.form):
            yield Secret(read.promise.value, read.start, end)
            done = end
        elif len(read.value if read is not None else "") > _LONG:
            done = end  # refused as a whole: the names inside it are not names of anything
        elif (near := nearby_value(page, at)) is not None:
            yield near
            done = max(near.end, at + 1)
        else:
            yield from columns.below(at)
    if not page.text.isascii() and any(sign in page.text for sign in _LOCAL_SIGNS):
        yield from _locally_named(page.text)


def _anchors(page: ScanText) -> list[int]:
    """Where a telling name may stand, in order."""
    pats = (found.start() for found in _PAT.finditer(page.lower))
    return sorted({at for anchor in _ANCHORS for at in page.places(anchor)}.union(_ids(page), pats))


def _ids(page: ScanText) -> Iterator[int]:
    """Where the ids of sessions are named: by their common end, which is looked for once."""
    for end in page.places(_ID_END):
        for name in _ID_ANCHORS:
            at = end + len(_ID_END) - len(name)
            if at >= 0 and page.lower.startswith(name, at):
                yield at


def _locally_named(text: str) -> Iterator[Secret]:
    for match in _LOCAL.finditer(text):
        value = match["value"].rstrip(".,;:!?")
        if is_secret("password", Promise.PASSWORD, value, Form.PROSE):
            yield Secret("password", match.start("value"), match.start("value") + len(value))


def _read(page: ScanText, at: int) -> _Reading | None:
    text = page.text
    to = _TO.match(text, at)
    if to is None:
        return None
    before = page.raw[max(0, at - 64) : at]
    start = at - len(before) + len(before.rstrip(_NAME))
    name = text[start : to.end("rest")]
    promise = promise_of(_unescaped(text, start, name))
    if promise is None or _is_qualified(text, start, to) or not _is_joined(text, start, to, name):
        return None
    form = _form(text, start, to, name)
    if form is Form.PROSE and is_about(text, start):
        return None
    if name == "PASS" and form is not Form.SETTING:
        return None  # a test runner's verdict
    return _value(name, promise, text, to, form)


def _unescaped(text: str, start: int, name: str) -> str:
    """The name without the `n` of a `\\n` that stands before it in escaped text."""
    return name[1:] if start and text[start - 1] == "\\" and name[:1] in "nrt" else name


def _is_qualified(text: str, start: int, to: re.Match[str]) -> bool:
    """Whether the name is one step of a longer one: `AWS::KMS::Key`, `arn:aws:secretsmanager:…:secret:…`."""
    return text[start - 1 : start] == ":" and (text[start - 2 : start] == "::" or (to["sign"] == ":" and not to["gap"]))


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


def _form(text: str, start: int, to: re.Match[str], name: str) -> Form:
    if to["said"] is not None:
        return Form.PROSE
    if to["tag"] is not None:
        return Form.QUOTED
    if to["pair"] is not None:
        return Form.BARE
    sign, gap = to["sign"], (to["spaced"] or "") + (to["gap"] or "")
    behind = text[max(0, start - 1) : start]
    if sign == "=" and not gap and (name.upper() == name or "." in name or behind in ("?", "&", ";")):
        return Form.SETTING
    if sign is None or (
        (sign in (":", ":**") or (sign == "=" and (not gap or (behind in _LINE_STARTS or not behind.isascii()))))
        and behind not in ("(", ".")
    ):
        return Form.BARE
    return Form.CODE


def _value(name: str, promise: Promise, text: str, to: re.Match[str], form: Form) -> _Reading | None:
    at = to.end()
    quoted = _QUOTED.match(text, at) if to["tag"] is None else None
    if quoted is not None:
        value, at, form = quoted["value"], quoted.start("value"), Form.QUOTED
    else:
        at += text[at : at + 1] in ('"', "'")
        bare = (_BARE_LINE if form is Form.SETTING and text[to.end("rest") : at] == "=" else _BARE).match(text, at)
        if bare is None:
            return None
        value = _trimmed(bare[0], form)
        after = text[at + len(value) : at + len(value) + 1]
        if (after and after in "([{") or (
            form is Form.BARE and is_identifier(value) and (after in tuple(",)]};") or "." in value)
        ):
            form = Form.CODE
    return _Reading(name, promise, value, at, form)


def _trimmed(value: str, form: Form) -> str:
    if form is Form.SETTING:
        # In a query or a connection string the next pair follows; in a .env file the value runs to the end of the line.
        cut = re.search(r"[&;,]\w[\w.]*=|;$|,$|\)$|\]$|\}$", value)
        return value[: cut.start()] if cut else value
    return value.rstrip(".,;:!?)") if form is Form.PROSE else value.rstrip(",;:")
