"""Reads one word at a time: quotes, escapes, `$'…'`, variables and substitutions. Never fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby

from perdure.tools.danger.budget import Budget
from perdure.tools.danger.marks import UNKNOWN
from perdure.tools.danger.syntax import Literal, Node, Part, Substitution, Variable, Word

BREAKS = frozenset(" \t\n;|&<>()")
_PLAIN = re.compile(r"""[^\s;|&<>()\\'"$`]+""")
_IN_DOUBLE = re.compile(r'[^\\"$`]+')
_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]")
_BRACED = re.compile(r"([!#]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^\]]*)\])?", re.S)
_BACKTICKS = re.compile(r"`([^`\\]*(?:\\.[^`\\]*)*)(?:`|\Z)", re.S)
_ANSI_QUOTED = re.compile(r"\$'([^'\\]*(?:\\.[^'\\]*)*)(?:'|\Z)", re.S)
# Nobody writes longer arithmetic; without a bound, every unclosed `$((` would be looked through to the end.
_MAX_ARITHMETIC = 2_000
_ANSI = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}

# Reads commands from a text, starting somewhere, up to the closing bracket; gives them and where it stopped.
ReadCommands = Callable[[str, int], tuple[tuple[Node, ...], int]]


class WordReader:
    """A place in a text, and the words from there on."""

    def __init__(self, text: str, at: int, read_commands: ReadCommands, budget: Budget) -> None:
        self.text, self.at = text, at
        self._read_commands = read_commands
        self._budget = budget

    def word(self) -> Word:
        """The word at the present place; empty where none starts here."""
        parts: list[Part] = []
        if self.at < len(self.text):
            self._budget.spend_piece()
        while self.at < len(self.text):
            c = self.text[self.at]
            if c in "<>" and self.text.startswith("(", self.at + 1):
                parts.append(self._process(c))
            elif c in BREAKS:
                break
            elif c == "\\":
                self._escape(parts)
            elif c == "'":
                self._budget.spend_piece()
                parts.append(Literal(self._until("'"), True))
            elif c == '"':
                self._budget.spend_piece()
                self.at += 1
                parts += self.double_quoted('"') or [Literal("", True)]
            elif c in "$`":
                parts.append(self._dollar(is_quoted=False))
            elif found := _PLAIN.match(self.text, self.at):
                parts.append(Literal(found.group()))
                self.at = found.end()
            else:  # a control character that \s takes for blank
                parts.append(Literal(c))
                self.at += 1
        return Word(_joined(parts))

    def double_quoted(self, end: str) -> list[Part]:
        """Parts up to the closing quote; an empty `end` reads to the end of the text, as in a here-document."""
        parts: list[Part] = []
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == end:
                self.at += 1
                return parts
            if c == "\\":
                follower = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                if follower != "\n":
                    parts.append(Literal(follower if follower in '$`"\\' else f"\\{follower}", True))
            elif c in "$`":
                parts.append(self._dollar(is_quoted=True))
            elif found := _IN_DOUBLE.match(self.text, self.at):
                parts.append(Literal(found.group(), True))
                self.at = found.end()
            else:
                parts.append(Literal(c, True))
                self.at += 1
        return parts

    def _escape(self, parts: list[Part]) -> None:
        follower = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if follower != "\n":
            parts.append(Literal(follower or "\\", True))

    def _until(self, end: str) -> str:
        close = self.text.find(end, self.at + 1)
        close = len(self.text) if close < 0 else close
        inner = self.text[self.at + 1 : close]
        self.at = close + 1
        return inner

    def _process(self, kind: str) -> Part:
        body, self.at = self._read_commands(self.text, self.at + 2)
        return Substitution(body, True, kind)

    def _dollar(self, *, is_quoted: bool) -> Part:
        text, at = self.text, self.at
        self._budget.spend_piece()
        if text[at] == "`":
            return self._backticks(is_quoted)
        if not is_quoted and text.startswith("$'", at):
            return self._ansi()
        if not is_quoted and text.startswith('$"', at):
            self.at += 2
            parts = self.double_quoted('"')
            return parts[0] if len(parts) == 1 else Literal("".join(_literal(p) for p in parts), True)
        if text.startswith("$((", at) and (close := _arithmetic_end(text, at + 3)) is not None:
            inside = self._inside(text[at + 3 : close - 2])
            self.at = close
            return Variable("?", True, runs=tuple(p for p in inside if isinstance(p, Substitution)))
        if text.startswith("$(", at):
            body, self.at = self._read_commands(text, at + 2)
            return Substitution(body, is_quoted)
        if text.startswith("${", at):
            return self._braced(is_quoted)
        if found := _NAME.match(text, at + 1):
            self.at = found.end()
            return Variable(found.group(), is_quoted)
        self.at += 1
        return Literal("$", is_quoted)

    def _inside(self, text: str) -> list[Part]:
        """The parts of a text inside brackets, read again."""
        self._budget.spend_chars(len(text))
        return WordReader(text, 0, self._read_commands, self._budget).double_quoted("")

    def _backticks(self, is_quoted: bool) -> Part:
        found = _BACKTICKS.match(self.text, self.at)
        if found is None:
            self.at = len(self.text)
            return Literal("", is_quoted)
        self.at = found.end()
        self._budget.spend_chars(len(found.group(1)))
        body, _ = self._read_commands(re.sub(r"\\([$`\\])", r"\1", found.group(1)), 0)
        return Substitution(body, is_quoted)

    def _ansi(self) -> Part:
        found = _ANSI_QUOTED.match(self.text, self.at)
        if found is None:
            self.at = len(self.text)
            return Literal("", True)
        self.at = found.end()
        return Literal(decode_escapes(found.group(1)), True)

    def _braced(self, is_quoted: bool) -> Part:
        close = _brace_end(self.text, self.at + 2)
        inner = self.text[self.at + 2 : close]
        self.at = close + 1
        found = _BRACED.match(inner)
        if found is None or (found.group(1) and inner == found.group(1)):
            return Variable(inner, is_quoted) if _NAME.fullmatch(inner) else Literal(UNKNOWN, is_quoted)
        sign, name, index = found.groups()
        rest = inner[found.end() :]
        inside = self._inside(rest) if "$(" in rest or "`" in rest else []
        runs = tuple(p for p in inside if isinstance(p, Substitution))
        return Variable(
            name, is_quoted, index=index or "", rest=rest, is_length=sign == "#", is_indirect=sign == "!", runs=runs
        )


def decode_escapes(text: str) -> str:
    """Backslash escapes as `$'…'`, `echo -e` and `printf` read them."""

    def meant(found: re.Match[str]) -> str:
        code = found.group(1)
        if code[0] in "xuU" and len(code) > 1:
            value = int(code[1:], 16)
            return chr(value) if value < 0x110000 else "?"
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _ESCAPES.get(code, code if code in "\\'\"?" else f"\\{code}")

    return _ANSI.sub(meant, text)


def _arithmetic_end(text: str, at: int) -> int | None:
    """Where `$((` ends; None where the brackets do not close as arithmetic does."""
    depth = 2
    for i in range(at, min(len(text), at + _MAX_ARITHMETIC)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1 if text[i - 1] == ")" else None
    return None


def _brace_end(text: str, at: int) -> int:
    """Where `${` closes, quotes and inner braces passed over."""
    depth, quote = 1, ""
    i = at
    while i < len(text):
        c = text[i]
        if c == "\\":
            i += 1
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return i
        i += 1
    return len(text)


def _literal(part: Part) -> str:
    return part.text if isinstance(part, Literal) else UNKNOWN


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring literals of one kind as one."""
    out: list[Part] = []
    for is_quoted, group in groupby(parts, key=lambda p: p.is_quoted if isinstance(p, Literal) else None):
        if is_quoted is None:
            out += group
        else:
            out.append(Literal("".join(p.text for p in group if isinstance(p, Literal)), is_quoted))
    return tuple(out)
