"""Secrets recognised by the name they are assigned to, in code, config, tables and prose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from perdure.redaction.entropy import is_identifier
from perdure.redaction.names import Form, SecretKind, is_drawn, is_harmless_token, is_secret, kind_of_name
from perdure.redaction.scan import ScanText, Secret

_LINE_END = re.compile(r"\r?\n|(?:\\r)?\\n")
_CELLS = {
    separator: re.compile(rf'[ ]*(?:"(?P<quoted>[^"\n]*)"[ ]*|(?P<bare>[^{separator}"\n]*))(?:{separator}|$)')
    for separator in (r"\|", "│", ",", r"\t", ";")
}
_ALIGNED = "[ ]{2,}"  # columns set with spaces, as command lines print them
_CELLS[_ALIGNED] = re.compile(r"[ ]*(?:(?P<quoted>(?!))|(?P<bare>(?:[^ \n]|[ ](?![ \n]))*))(?:[ ]{2,}|[ ]?$)")
_CELL_END = re.compile(
    r"[A-Za-z0-9_-]{0,40}(?:[ ]\([\w ./-]{1,30}\))?[\"'`*\\]{0,4}[ ]{0,40}(?:[|│,;\t\r\n]|\\[nrt]|[ ]{2})"
)
_HEADER_LINE = re.compile(r"[\w \t\"'`*.,;|│()/→\\#&%+:?-]+")
_HEADER = re.compile(r"[\w \"'`*./#&%+:?-]{1,60}(?:\([\w ./-]{1,30}\))?")
_REMARK = re.compile(r"\([^)]*\)$")
_BORDER = re.compile(r"[|│├└╞╘ +=:┼┴╪╧┤┘╡╛─═-]+")
_LONGEST_LINE, _MOST_ROWS = 4_000, 10_000
_EDGES = " \t\"'`*\\"


class Columns:
    """Finds secrets in table columns; each table is read once, from its header row on."""

    def __init__(self, scan: ScanText) -> None:
        self._text = scan.text
        self._read_to = 0

    def below(self, at: int) -> Iterator[Secret]:
        """Yield the secrets in the columns under the header line at this position, if it is a header."""
        text = self._text
        if at < self._read_to or _CELL_END.match(text, at) is None:
            return
        earliest = max(self._read_to, at - _LONGEST_LINE)
        match = _LINE_END.search(text, at, at + _LONGEST_LINE)
        if match is None:
            self._read_to = at + _LONGEST_LINE
            return
        self._read_to = match.start()
        escaped = text.rfind("\\n", earliest, at)
        start = max(earliest, text.rfind("\n", earliest, at) + 1, escaped + 2 if escaped >= 0 else 0)
        header = text[start : match.start()].rpartition('": "')[2]  # the table may be a string in JSON
        separator = _separator(header)
        if separator is None or not _HEADER_LINE.fullmatch(header):
            return
        names = [cell for cell, _ in _cells(header, separator)]
        columns = {i: (name, kind) for i, name in enumerate(names) if (kind := _column_kind(name))}
        if len(names) < 2 or not columns or not all(_HEADER.fullmatch(name) or not name for name in names):
            return
        yield from self._rows(match.end(), separator, len(names), columns)

    def _rows(
        self, at: int, separator: str, width: int, columns: dict[int, tuple[str, SecretKind]]
    ) -> Iterator[Secret]:
        text = self._text
        for _ in range(_MOST_ROWS):
            ending = _LINE_END.search(text, at, at + _LONGEST_LINE)
            end = ending.start() if ending is not None else min(len(text), at + _LONGEST_LINE)
            row = text[at:end]
            cells = list(_cells(row, separator))
            if not row or (len(cells) != width and not _BORDER.fullmatch(row)):
                return
            for i, (name, kind) in columns.items() if len(cells) == width else ():
                value, shift = cells[i]
                if value and _is_cell_secret(name, kind, value):
                    yield Secret(kind.value, at + shift, at + shift + len(value))
            self._read_to = end
            if ending is None:
                return
            at = ending.end()


def _column_kind(name: str) -> SecretKind | None:
    """Return the kind of secret that a header cell announces; a remark in brackets is ignored: `API token (prod)`."""
    return kind_of_name(_REMARK.sub("", name).strip().replace(" ", "_"))


def _separator(header: str) -> str | None:
    for separator, pattern in (("|", r"\|"), ("│", "│"), ("\t", r"\t"), (",", ","), (";", ";"), ("  ", _ALIGNED)):
        if separator in header:
            return pattern
    return None


def _cells(line: str, separator: str) -> Iterator[tuple[str, int]]:
    """Yield the cells of a line without their quotes, each with the position where it begins."""
    at, pattern = 0, _CELLS[separator]
    while at < len(line):
        cell = pattern.match(line, at)
        if cell is None or cell.end() == at:
            return
        group = "quoted" if cell["quoted"] is not None else "bare"
        bare = cell[group].strip(_EDGES)
        yield bare, cell.start(group) + cell[group].find(bare)
        at = cell.end()


def _is_cell_secret(name: str, kind: SecretKind, value: str) -> bool:
    if kind in (SecretKind.PASSWORD, SecretKind.PHRASE):
        return is_secret(name, kind, value, Form.BARE)
    return is_drawn(name, kind, value)


_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_REST = re.compile(r"[A-Za-z0-9_-]{0,40}")
_VALUE = r"(?P<value>[A-Za-z0-9+/=_~.:!@#$%^&*?-]{8,2000})"
_VALUE_RE = re.compile(_VALUE)
_VALUE_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_~.:!@#$%^&*?-"
_OPEN, _CLOSE = "[\"'`“‘(<*]{0,3}", "[\"'`”’)>*.,;:]{0,4}"
# Between a name and the cell after it: `| NAME | value |`, `NAME,value`, `"NAME","value"`, `NAME<tab>value`.
_CELL_GAP = re.compile(
    rf"[\"'`*\\]{{0,4}}[ \t]{{0,40}}[|│,;\t][ \t]{{0,40}}\\?{_OPEN}"
    rf"|(?:</[a-z]{{1,9}}>){{1,2}}\s{{0,40}}(?:<[a-z][^<>\n]{{0,60}}>){{1,3}}"
)
# Between a name and its value in a sentence: `api key for staging is value`, `set NAME to value`, `token (value)`.
_SENTENCE_GAP = re.compile(
    rf"""[\"'`*)]{{0,3}}
    (?P<words>(?:[ ][A-Za-z0-9(][A-Za-z0-9'’()-]{{0,20}}){{0,6}}?)
    (?P<joint>[ ](?:is|was|to|equals|are|be)(?:[ ]now|[ ]set[ ]to)?:?|[ ]{{0,2}}(?:[:=]|->|→|=>))?[ ]{{1,4}}{_OPEN}""",
    re.VERBOSE,
)
# The rest of the sentence, or the next one, takes the name up again: `the token was rotated; the new one is value`.
_WORDS = r"(?:[ ,;:.?!—–]{1,3}[\w(][\w'’()/]{0,24}(?:-[\w'’()/]{1,24}){0,3})"
_REFERRED_GAP = re.compile(
    rf"""[\"'`*)]{{0,3}} (?P<words>{_WORDS}{{0,14}}?)
    (?: [ ,;:.?!—–]{{1,3}}(?:it|this|that|which|one|value|string)
        (?:['’]s|[ ](?:is|was|reads|becomes|should[ ]be|will[ ]be))?
        (?:[ ](?:now|currently|just))?:?[ ]{{1,2}}
      | [,][ ](?:is|was|being|namely|now)[ ]
      | [ ](?:\(|from[ ]|[—–-][ ])
    ){_OPEN}""",
    re.VERBOSE | re.IGNORECASE,
)
# The value is alone on the next line, or in a code block: `here is the token:`, a heading, a comment, a question.
_LINE_GAP = re.compile(
    rf"""(?P<words>{_WORDS}{{0,6}}?)[\"'`*)]{{0,3}}(?P<sign>[ ]?[:?=]|[ ]\*/)?\*{{0,2}}[ ]{{0,2}}(?:\r?\n){{1,2}}
    (?:```\w{{0,12}}\r?\n)?[ \t>*-]{{0,12}}
    (?P<lead>[\w .]{{1,30}}(?:=|:(?=[ ]))[ ]?(?:it['’]s[ ]|it[ ]is[ ])?)?{_OPEN}""",
    re.VERBOSE,
)
_LINE_REST = re.compile(rf"{_CLOSE}[ ]{{0,2}}(?=\r?\n|\Z)")
_COMMENT = re.compile(r"[ \t]*(?://|#|--|/\*|;|\*)[ ]")
# The sentence before the name: `use value as the api key`, `value is our api key`.
_LAST_VALUE = re.compile(rf"^{_OPEN}{_VALUE}{_CLOSE}$")
_FEW_WORDS = re.compile(r"(?:[A-Za-z0-9'’-]{1,20} ){0,6}")
_SHORTEST = 12
_SPOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.'’-]{0,24}")
# How far from the name a value may begin.
_AHEAD, _BEHIND = 160, 360
# How long the rest of a line may be whose value is on the next one.
_HEADING = 80
# With no word or sign between the two (`token 3f0c9a1b2d4e`) a short value is an id.
_LONG_ENOUGH_ALONE = 20
# Every drawn value has a digit next to a letter somewhere, and most lines have not.
_MIXED = re.compile(rb"[^\n]*?(?:[0-9][A-Za-z]|[A-Za-z][0-9])")
_SENTENCE_END = re.compile(r"\Z|\n|\.(?:\s|\Z)")
_OWNED = re.compile(r"\b[Mm]y (?:[\w.-]+ ){0,3}$")
_MARKS = "*_`\"'“("  # before the first word of a name that is set off from the sentence
_NO_NAME = frozenset(("", ".", "(", "[", "{"))
_ARTICLES = frozenset(("the", "a", "an", "this", "that", "my", "our", "your", "his", "her", "their", "its"))
_BREAK_WORDS = """
is as to for of use using used set here with and or new old in from by on at under into over per via was are be has have
had no not if when then so but because restored saved found missing invalid expired got get gets give need needs want
which what where how why please just only also it i you we they he she him them me us need try called named hit miss
"""
_BREAK = frozenset(_BREAK_WORDS.split())
# A word beside the name that marks the value as metadata of the secret.
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


# A hash by its algorithm, and the address of an account.
_MARKED = re.compile(r"-{0,2}(?:\w+[=:])?(?:sha\d+|md5)[:=-]|0x[0-9a-fA-F]{40}$")


def nearby_value(scan: ScanText, at: int) -> Secret | None:
    """Return the secret in the cell or sentence next to the name at this position; None if there is none."""
    raw = scan.raw
    earliest = max(0, at - _BEHIND)
    first = max(raw.rfind(b"\n", earliest, at) + 1, earliest)
    newline = raw.find(b"\n", at, at + 40 + _AHEAD)
    if 0 <= newline < at + _HEADING:
        newline = raw.find(b"\n", newline + 12, newline + _AHEAD)
    # Most lines hold no value that was drawn at random.
    if not scan.has_mix(first, at + 40 + _AHEAD if newline < 0 else newline):
        return None
    match = _nearby(scan, at)
    return None if match is not None and is_about(scan.text, at) else match


def _nearby(scan: ScanText, at: int) -> Secret | None:
    text = scan.text
    rest = _REST.match(text, at)
    end = rest.end() if rest is not None else at
    is_last = _SENTENCE_END.match(text, end) is not None
    if text[end : end + 1] in _NO_NAME and not is_last:
        return None
    before = scan.raw[max(0, at - 64) : at]
    start = at - len(before) + len(before.rstrip(_NAME))
    if text[start - 1 : start] == ":":
        return None
    name = text[start:end]
    if kind_of_name(f"api_{name}") is None:
        return None  # no word before it could make this name a telling one
    name = _spoken_name(text, start, name)
    if kind_of_name(name) is None:
        return None
    if not is_last and (match := _value_behind(scan, start, end, name)) is not None:
        return match
    return _value_before(text, start, name) or _value_below(text, start, end, name)


def _value_behind(scan: ScanText, start: int, end: int, name: str) -> Secret | None:
    """Return the value after a name: the first long word with a digit, if the text between joins the two."""
    text, at = scan.text, end
    while (mixed := _MIXED.match(scan.raw, at, end + _AHEAD)) is not None:
        at = end + len(scan.raw[end : mixed.end() - 1].rstrip(_VALUE_BYTES))
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
    if sentence is None or (sentence["joint"] is None and sentence["words"]):
        referred = _REFERRED_GAP.fullmatch(gap)
        # The words directly after the name may change its meaning (`the token hash`); later ones do not.
        is_other = referred is None or _ABOUT.search(" ".join(referred["words"].split()[:2]))
        return None if is_other else _judge(name, value)
    if _ABOUT.search(sentence["words"]):
        return None
    is_adjacent = not sentence["words"] and len(value["value"]) >= _LONG_ENOUGH_ALONE
    is_joined = sentence["joint"] is not None or is_adjacent
    return _judge(name, value) if is_joined else None


def _value_below(text: str, start: int, end: int, name: str) -> Secret | None:
    """Return the value that is alone on the line, or in the code block, below its name."""
    gap = _LINE_GAP.match(text, end, end + _HEADING + _AHEAD)
    if gap is None or _ABOUT.search(gap["words"]):
        return None
    line = text[max(text.rfind("\n", 0, start) + 1, start - _AHEAD) : start]
    is_heading = not gap["words"] and line.removesuffix(name[: name.rfind(" ") + 1]).strip(" \t#*_>-") in ("", "n")
    is_comment = gap["words"] == "" and _COMMENT.match(line) is not None
    if gap["sign"] is None and not is_heading and not is_comment:
        return None
    if gap["lead"] and not is_comment and (gap["sign"] or "").strip() != "?":
        return None
    value = _VALUE_RE.match(text, gap.end())
    if value is None or _LINE_REST.match(text, value.end()) is None:
        return None
    return _judge(name, value)


def is_about(text: str, start: int) -> bool:
    """Whether the name at this position only qualifies another noun: `the hash of the token is …`."""
    return _OF.search(text, max(0, start - 60), start) is not None


def _begins_cell(text: str, start: int, name: str) -> bool:
    """Whether the name starts a cell or a line: only a bullet or a separator precedes it."""
    before = text[max(0, start - 80) : start].removesuffix(name[: name.rfind(" ") + 1]).rstrip(" \t\"'`*\\")
    return not before or before[-1] in "|│,;\n→>" or before.endswith("\\n")


def _spoken_name(text: str, start: int, name: str) -> str:
    """Return the name with the words before it that belong to it: `aws secret access` of `aws secret access key`."""
    words: list[str] = []
    before = text[max(0, start - 78) : start]
    before = before[max(before.rfind(sign) for sign in "\n>|│") + 1 :]
    for word in reversed(before.split(" ")[-4:-1]):
        bare = word.lstrip(_MARKS)
        if word.lower() in _BREAK or not _SPOKEN.fullmatch(bare):
            break
        if bare.lower() not in _ARTICLES:
            words.insert(0, bare)
        if bare != word:
            break
    if not words:
        return name
    # In "my token is 3f0c…" the value is a credential, so hexadecimal values count as well; elsewhere they may be ids.
    is_owned = _OWNED.search(text, max(0, start - 78), start) is not None
    return ("_" if is_owned else " ").join([*words, name])


def _value_before(text: str, start: int, name: str) -> Secret | None:
    """Return the value that precedes its name, as in `use value as the api key` or `value is our api key`."""
    line = text[max(0, start - _BEHIND) : start]
    line = line[line.rfind("\n") + 1 :]
    for joint in (" as ", " is ", " for ", ", that's ", ", which is ", " (", " <- ", " # ", " // "):
        at = line.rfind(joint)
        if at < _SHORTEST or not _FEW_WORDS.fullmatch(words := line[at + len(joint) :]) or _ABOUT.search(words):
            continue
        first = line.rfind(" ", 0, len(line[:at].rstrip())) + 1
        match = _LAST_VALUE.search(line[first:at].rstrip())
        if match is not None and (secret := _judge(name, match)) is not None:
            shift = start - len(line) + first
            return Secret(secret.kind, secret.start + shift, secret.end + shift)
    return None


def _judge(name: str, match: re.Match[str]) -> Secret | None:
    kind = kind_of_name(name)
    value = match["value"].rstrip(".,;:!?)*>")
    if kind is None or _ABOUT.search(name.replace("_", " ")) or _MARKED.match(value):
        return None
    if not is_drawn(name, kind, value):
        return None
    return Secret(kind.value, match.start("value"), match.start("value") + len(value))


_ANCHORS = (b"pass", b"pwd", b"secret", b"token", b"key", b"auth", b"cred")
_PAT = re.compile(rb"pat(?![a-z])")  # "personal access token", at the end of a name
_ID_ANCHORS, _ID_END = (b"sid=", b"sessionid="), b"id="
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
    """A value assigned to a telling name, not yet judged to be a secret or not."""

    name: str
    kind: SecretKind
    value: str
    start: int
    form: Form


def named_values(scan: ScanText) -> Iterator[Secret]:
    """Yield the values of telling names that are neither placeholders, nor code, nor plain words."""
    done, columns = 0, Columns(scan)
    for at in _anchors(scan):
        if at < done:
            continue
        read = _read(scan, at)
        end = read.start + len(read.value) if read is not None else 0
        if read is not None and len(read.value) >= 3 and is_secret(read.name, read.kind, read.value, read.form):
            yield Secret(read.kind.value, read.start, end)
            done = end
        elif len(read.value if read is not None else "") > _LONG:
            done = end  # refused as a whole: the names inside it are not names of anything
        elif (near := nearby_value(scan, at)) is not None:
            yield near
            done = max(near.end, at + 1)
        else:
            yield from columns.below(at)
    if not scan.text.isascii() and any(sign in scan.text for sign in _LOCAL_SIGNS):
        yield from _locally_named(scan.text)


def _anchors(scan: ScanText) -> list[int]:
    """Return the positions where a telling name may occur, in order."""
    pats = (match.start() for match in _PAT.finditer(scan.lower))
    return sorted({at for anchor in _ANCHORS for at in scan.positions(anchor)}.union(_ids(scan), pats))


def _ids(scan: ScanText) -> Iterator[int]:
    """Yield the positions of names of session ids, found by their common suffix."""
    for end in scan.positions(_ID_END):
        for name in _ID_ANCHORS:
            at = end + len(_ID_END) - len(name)
            if at >= 0 and scan.lower.startswith(name, at):
                yield at


def _locally_named(text: str) -> Iterator[Secret]:
    for match in _LOCAL.finditer(text):
        value = match["value"].rstrip(".,;:!?")
        if is_secret("password", SecretKind.PASSWORD, value, Form.PROSE):
            yield Secret("password", match.start("value"), match.start("value") + len(value))


def _read(scan: ScanText, at: int) -> _Reading | None:
    text = scan.text
    to = _TO.match(text, at)
    if to is None:
        return None
    before = scan.raw[max(0, at - 64) : at]
    start = at - len(before) + len(before.rstrip(_NAME))
    name = text[start : to.end("rest")]
    kind = kind_of_name(_strip_escape(text, start, name))
    if kind is None or _is_qualified(text, start, to) or not _is_joined(text, start, to, name):
        return None
    if name.lower() == "token" and is_harmless_token(
        text[max(0, start - 40) : start].rpartition(" ")[0].rpartition(" ")[2]
    ):
        return None  # `next page token: …`
    form = _form(text, start, to, name)
    if form is Form.PROSE and is_about(text, start):
        return None
    if name == "PASS" and form is not Form.SETTING:
        return None  # a test runner's verdict
    return _value(name, kind, text, to, form)


def _strip_escape(text: str, start: int, name: str) -> str:
    r"""Return the name without the `n` of a preceding `\n` in escaped text."""
    return name[1:] if start and text[start - 1] == "\\" and name[:1] in "nrt" else name


def _is_qualified(text: str, start: int, to: re.Match[str]) -> bool:
    """Whether the name is part of a longer identifier: `AWS::KMS::Key`, `arn:aws:secretsmanager:…:secret:…`."""
    return text[start - 1 : start] == ":" and (text[start - 2 : start] == "::" or (to["sign"] == ":" and not to["gap"]))


def _is_joined(text: str, start: int, to: re.Match[str], name: str) -> bool:
    """Whether the text between name and value is an assignment rather than prose."""
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


def _value(name: str, kind: SecretKind, text: str, to: re.Match[str], form: Form) -> _Reading | None:
    at = to.end()
    quoted = _QUOTED.match(text, at) if to["tag"] is None else None
    if quoted is not None:
        value, at, form = quoted["value"], quoted.start("value"), Form.QUOTED
    else:
        at += text[at : at + 1] in ('"', "'")
        bare = (_BARE_LINE if form is Form.SETTING and text[to.end("rest") : at] == "=" else _BARE).match(text, at)
        if bare is None:
            return None
        value = _trim_value(bare[0], form)
        after = text[at + len(value) : at + len(value) + 1]
        if (after and after in "([{") or (
            form is Form.BARE and is_identifier(value) and (after in tuple(",)]};") or "." in value)
        ):
            form = Form.CODE
    return _Reading(name, kind, value, at, form)


def _trim_value(value: str, form: Form) -> str:
    if form is Form.SETTING:
        # In a query or a connection string the next pair follows; in a .env file the value runs to the end of the line.
        cut = re.search(r"[&;,]\w[\w.]*=|;$|,$|\)$|\]$|\}$", value)
        return value[: cut.start()] if cut else value
    return value.rstrip(".,;:!?)") if form is Form.PROSE else value.rstrip(",;:")
