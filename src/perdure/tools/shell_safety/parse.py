"""Shell parser: words with quotes and expansions, pipelines, lists, here-documents."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby

from perdure.tools.shell_safety.limits import Budget, Unreadable
from perdure.tools.shell_safety.syntax import (
    Assignment,
    Function,
    Group,
    HereText,
    Literal,
    Loop,
    Node,
    Part,
    Pipeline,
    Redirect,
    Simple,
    Substitution,
    Variable,
    Word,
)
from perdure.tools.shell_safety.types import ALL_TAINTS, UNKNOWN

BREAKS = frozenset(" \t\n;|&<>()")
_PLAIN = re.compile(r"""[^\s;|&<>()\\'"$`]+""")
_IN_DOUBLE = re.compile(r'[^\\"$`]+')
_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]")
_BRACED = re.compile(r"([!#]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^\]]*)\])?", re.S)
_BACKTICKS = re.compile(r"`([^`\\]*(?:\\.[^`\\]*)*)(?:`|\Z)", re.S)
_ANSI_QUOTED = re.compile(r"\$'([^'\\]*(?:\\.[^'\\]*)*)(?:'|\Z)", re.S)
# Without a bound, every unclosed `$((` would be scanned to the end.
_MAX_ARITHMETIC = 2_000
_ANSI = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}

# Parses commands from a position up to the closing bracket; returns them and the end position.
ReadCommands = Callable[[str, int], tuple[tuple[Node, ...], int]]


class WordReader:
    """A cursor over a text that parses words."""

    def __init__(self, text: str, at: int, read_commands: ReadCommands, budget: Budget) -> None:
        self.text, self.at = text, at
        self._read_commands = read_commands
        self._budget = budget

    def word(self) -> Word:
        """Parse the word at the cursor; empty if none starts here."""
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
            elif match := _PLAIN.match(self.text, self.at):
                parts.append(Literal(match.group()))
                self.at = match.end()
            else:  # a control character that \s matches
                parts.append(Literal(c))
                self.at += 1
        return Word(_merge_literals(parts))

    def double_quoted(self, end: str) -> list[Part]:
        """Parse the parts up to the closing quote; an empty `end` parses the whole text, as in a here-document."""
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
            elif match := _IN_DOUBLE.match(self.text, self.at):
                parts.append(Literal(match.group(), True))
                self.at = match.end()
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
            inside = self._parse_inside(text[at + 3 : close - 2])
            self.at = close
            return Variable("?", True, runs=tuple(p for p in inside if isinstance(p, Substitution)))
        if text.startswith("$(", at):
            body, self.at = self._read_commands(text, at + 2)
            return Substitution(body, is_quoted)
        if text.startswith("${", at):
            return self._braced(is_quoted)
        if match := _NAME.match(text, at + 1):
            self.at = match.end()
            return Variable(match.group(), is_quoted)
        self.at += 1
        return Literal("$", is_quoted)

    def _parse_inside(self, text: str) -> list[Part]:
        """Parse the text inside brackets as parts."""
        self._budget.spend_chars(len(text))
        return WordReader(text, 0, self._read_commands, self._budget).double_quoted("")

    def _backticks(self, is_quoted: bool) -> Part:
        match = _BACKTICKS.match(self.text, self.at)
        if match is None:
            self.at = len(self.text)
            return Literal("", is_quoted)
        self.at = match.end()
        self._budget.spend_chars(len(match.group(1)))
        body, _ = self._read_commands(re.sub(r"\\([$`\\])", r"\1", match.group(1)), 0)
        return Substitution(body, is_quoted)

    def _ansi(self) -> Part:
        match = _ANSI_QUOTED.match(self.text, self.at)
        if match is None:
            self.at = len(self.text)
            return Literal("", True)
        self.at = match.end()
        return Literal(decode_escapes(match.group(1)), True)

    def _braced(self, is_quoted: bool) -> Part:
        close = _brace_end(self.text, self.at + 2)
        inner = self.text[self.at + 2 : close]
        self.at = close + 1
        match = _BRACED.match(inner)
        if match is None or (match.group(1) and inner == match.group(1)):
            return Variable(inner, is_quoted) if _NAME.fullmatch(inner) else Literal(UNKNOWN, is_quoted)
        sign, name, index = match.groups()
        rest = inner[match.end() :]
        inside = self._parse_inside(rest) if "$(" in rest or "`" in rest else []
        runs = tuple(p for p in inside if isinstance(p, Substitution))
        return Variable(
            name, is_quoted, index=index or "", rest=rest, is_length=sign == "#", is_indirect=sign == "!", runs=runs
        )


def decode_escapes(text: str) -> str:
    """Decode backslash escapes as `$'…'`, `echo -e` and `printf` do."""

    def decode(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] in "xuU" and len(code) > 1:
            value = int(code[1:], 16)
            return chr(value) if value < 0x110000 else "?"
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _ESCAPES.get(code, code if code in "\\'\"?" else f"\\{code}")

    return _ANSI.sub(decode, text)


def _arithmetic_end(text: str, at: int) -> int | None:
    """Return the end of `$((`; None if the brackets do not close as arithmetic."""
    depth = 2
    for i in range(at, min(len(text), at + _MAX_ARITHMETIC)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1 if text[i - 1] == ")" else None
    return None


def _brace_end(text: str, at: int) -> int:
    """Return the position of the brace that closes `${`, skipping quotes and inner braces."""
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


def _merge_literals(parts: list[Part]) -> tuple[Part, ...]:
    """Merge adjacent literals with the same quoting."""
    out: list[Part] = []
    for is_quoted, group in groupby(parts, key=lambda p: p.is_quoted if isinstance(p, Literal) else None):
        if is_quoted is None:
            out += group
        else:
            out.append(Literal("".join(p.text for p in group if isinstance(p, Literal)), is_quoted))
    return tuple(out)


MAX_DEPTH = 60
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]\n]{0,200}\])?(\+?)=")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\()|&>>|&>)")
_FUNCTION = re.compile(r"([^\s;|&<>()'\"$`]+)[ \t]*\([ \t]*\)")
_BLANK = re.compile(r"(?:[ \t\r]|\\\n)*(?:#[^\n]*)?")
_END_KEYWORDS = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_MIDDLE_KEYWORDS = {"if": ("then", "elif", "else"), "while": ("do",), "until": ("do",), "{": ()}
_KEYWORD = re.compile(r"[a-z]{1,12}(?=[\s;|&<>()]|\Z)|[{}!](?=[\s;|&)]|\Z)")
_IGNORED_KEYWORDS = frozenset({"!", "time", "coproc", "then", "do", "else", "elif", "fi", "done", "esac", "}", "in"})


def parse(text: str, budget: Budget, *, depth: int = 0) -> tuple[Node, ...]:
    """Parse the commands of a script. Raises Unreadable."""
    clean = text.translate({ord(m): "?" for m in ALL_TAINTS}) if depth == 0 else text
    budget.spend_chars(len(text))
    return _Parser(clean, 0, depth, budget).parse_all()


class _Parser:
    """Recursive-descent parser of commands; unbalanced brackets and keywords are skipped."""

    def __init__(self, text: str, at: int, depth: int, budget: Budget) -> None:
        if depth > MAX_DEPTH:
            raise Unreadable
        self._depth = depth
        self._budget = budget
        self._r = WordReader(text, at, self._inner, budget)
        self._pending: list[HereText] = []

    def parse_all(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while True:
            before = self._r.at
            nodes += self._sequence(frozenset())
            if self._r.at >= len(self._r.text):
                return tuple(nodes)
            # An unbalanced bracket or keyword: bash would stop here, but the rest is still analyzed.
            self._budget.spend_piece()
            self._r.at = max(self._r.at, before) + 1

    def _inner(self, text: str, at: int) -> tuple[tuple[Node, ...], int]:
        """Parse the commands of a substitution; return them and the position after its closing bracket."""
        inner = _Parser(text, at, self._depth + 1, self._budget)
        nodes = inner._sequence(frozenset())
        while inner._r.at < len(text) and text[inner._r.at] != ")":
            inner._r.at += 1
            nodes += inner._sequence(frozenset())
        return tuple(nodes), min(inner._r.at + 1, len(text))

    def _sequence(self, until: frozenset[str]) -> list[Node]:
        nodes: list[Node] = []
        while True:
            self._skip_separators(";;" in until)
            if self._r.at >= len(self._r.text) or self._at_text(")") or (";;" in until and self._at_text(";;")):
                return nodes
            if until and self._peek_keyword() in until:
                return nodes
            before = self._r.at
            self._budget.spend_piece()
            node = self._pipeline()
            if node is not None:
                nodes.append(node)
            if self._r.at == before:
                self._r.at += 1

    def _pipeline(self) -> Node | None:
        commands = []
        while True:
            self._budget.spend_piece()
            command = self._command()
            if command is not None:
                commands.append(command)
            self._skip_blank()
            if not self._at_text("|") or self._at_text("||"):
                break
            self._r.at += 2 if self._at_text("|&") else 1
            self._skip_newlines()
        if not commands:
            return None
        is_background = self._at_text("&") and not self._at_text("&&")
        return Pipeline(tuple(commands), is_background) if len(commands) > 1 or is_background else commands[0]

    def _command(self) -> Node | None:
        self._skip_blank()
        while (keyword := self._peek_keyword()) in _IGNORED_KEYWORDS:
            self._r.at += len(keyword)
            self._skip_blank()
            if keyword == "time" and self._at_text("-p "):
                self._r.at += 3
                self._skip_blank()
        if self._at_text("("):  # also `((…))`: parsed as commands, arithmetic is harmless
            body, self._r.at = self._inner(self._r.text, self._r.at + 1)
            return Group(body, self._redirects(), is_subshell=True)
        if keyword in _END_KEYWORDS:
            return self._block(keyword)
        if keyword in ("for", "select"):
            return self._loop(keyword)
        if keyword == "case":
            return self._case()
        if keyword == "function":
            self._r.at += len(keyword)
            self._skip_blank()
            name = self._r.word().bare
            self._skip_blank()
            if self._at_text("()"):
                self._r.at += 2
            return self._function(name)
        if match := _FUNCTION.match(self._r.text, self._r.at):
            self._r.at = match.end()
            return self._function(match.group(1))
        return self._simple()

    def _block(self, keyword: str) -> Node:
        self._r.at += len(keyword)
        end, between = _END_KEYWORDS[keyword], _MIDDLE_KEYWORDS[keyword]
        body: list[Node] = []
        while True:
            body += self._sequence(frozenset({end, *between}))
            closing = self._peek_keyword()
            if self._r.at >= len(self._r.text) or self._at_text(")"):
                break
            self._r.at += len(closing)
            if closing == end:
                break
        return Group(tuple(body), self._redirects())

    def _loop(self, keyword: str) -> Node:
        self._r.at += len(keyword)
        self._skip_blank()
        name, words = "", None
        if self._at_text("(("):
            close = self._r.text.find("))", self._r.at)
            self._r.at = close + 2 if close >= 0 else len(self._r.text)
        else:
            name = self._r.word().bare
            self._skip_newlines()
            if self._peek_keyword() == "in":
                self._r.at += 2
                words = tuple(self._words())
        self._skip_separators(False)
        if self._peek_keyword() == "do":
            self._r.at += 2
        body = self._sequence(frozenset({"done"}))
        if self._peek_keyword() == "done":
            self._r.at += 4
        return Loop(name, words, (Group(tuple(body), self._redirects()),))

    def _case(self) -> Node:
        self._r.at += 4
        self._skip_blank()
        self._r.word()
        self._skip_newlines()
        if self._peek_keyword() == "in":
            self._r.at += 2
        body: list[Node] = []
        while True:
            self._skip_separators(False)
            if self._r.at >= len(self._r.text) or self._peek_keyword() == "esac":
                self._r.at += 4
                return Group(tuple(body), self._redirects())
            while self._r.at < len(self._r.text) and not self._at_text(")"):
                before = self._r.at
                self._r.word()
                self._skip_blank()
                self._r.at += self._r.text[self._r.at : self._r.at + 1] in ("(", "|") or self._r.at == before
            self._r.at += 1
            body += self._sequence(frozenset({";;", "esac"}))

    def _function(self, name: str) -> Node:
        self._skip_newlines()
        # `f(){f|f&};` lacks a space that bash requires, but its meaning is clear.
        body = self._block("{") if self._at_text("{") else self._command()
        return Function(name, (body,) if body is not None else ())

    def _simple(self) -> Node | None:
        assignments: list[Assignment] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self._skip_blank()
            if redirect := self._redirect():
                redirects.append(redirect)
                continue
            match = _ASSIGNMENT.match(self._r.text, self._r.at)
            declares = bool(words) and words[0].bare in ("export", "declare", "local", "readonly", "typeset")
            if match and (not words or declares):
                self._r.at = match.end()
                assignments.append(self._assignment(match.group(1), bool(match.group(2))))
                continue
            if words and words[0].bare == "[[":
                self._test_operators()
            before = self._r.at
            word = self._r.word()
            if self._r.at == before:
                break
            words.append(word)
            if word.bare == "]]":
                break
        command = Simple(tuple(assignments), tuple(words), tuple(redirects))
        return command if assignments or words or redirects else None

    def _assignment(self, name: str, is_added: bool) -> Assignment:
        if not self._at_text("("):
            return Assignment(name, (self._r.word(),), is_added=is_added)
        self._r.at += 1
        values: list[Word] = []
        while self._r.at < len(self._r.text) and not self._at_text(")"):
            before = self._r.at
            self._skip_newlines()
            values += self._words()
            self._r.at += self._r.at == before
        self._r.at += 1
        return Assignment(name, tuple(values), is_array=True, is_added=is_added)

    def _words(self) -> list[Word]:
        words: list[Word] = []
        while True:
            self._skip_blank()
            before = self._r.at
            word = self._r.word()
            if self._r.at == before:
                return words
            words.append(word)

    def _test_operators(self) -> None:
        """Skip brackets and comparisons inside `[[ … ]]`: they are not operators there."""
        while self._r.at < len(self._r.text) and self._r.text[self._r.at] in "<>()&| \n" and not self._at_text("<("):
            self._r.at += 1

    def _redirects(self) -> tuple[Redirect, ...]:
        out: list[Redirect] = []
        while True:
            self._skip_blank()
            redirect = self._redirect()
            if redirect is None:
                return tuple(out)
            out.append(redirect)

    def _redirect(self) -> Redirect | None:
        match = _REDIRECT.match(self._r.text, self._r.at)
        if match is None:
            return None
        self._r.at = match.end()
        operator = match.group(1)
        self._skip_blank()
        target = self._r.word()
        if operator not in ("<<", "<<-"):
            return Redirect(operator, target)
        texts = [p.text for p in target.parts if isinstance(p, Literal)]
        is_quoted = any(isinstance(p, Literal) and p.is_quoted for p in target.parts)
        here = HereText("".join(texts), is_quoted, operator == "<<-")
        self._pending.append(here)
        return Redirect(operator, target, here)

    def _newline(self) -> None:
        self._r.at += 1
        for here in self._pending:
            self._read_here_document(here)
        self._pending.clear()

    def _read_here_document(self, here: HereText) -> None:
        lines, text = [], self._r.text
        while self._r.at < len(text):
            end = text.find("\n", self._r.at)
            end = len(text) if end < 0 else end
            line = text[self._r.at : end]
            self._r.at = min(end + 1, len(text))
            line = line.lstrip("\t") if here.strips_tabs else line
            if line == here.delimiter:
                break
            lines.append(line)
        body = "\n".join(lines) + ("\n" if lines else "")
        if here.is_quoted:
            here.body = Word((Literal(body, True),))
        else:
            self._budget.spend_chars(len(body))
            here.body = Word(tuple(WordReader(body, 0, self._inner, self._budget).double_quoted("")))

    def _skip_blank(self) -> None:
        match = _BLANK.match(self._r.text, self._r.at)
        self._r.at = match.end() if match else self._r.at

    def _skip_newlines(self) -> None:
        self._skip_blank()
        while self._at_text("\n"):
            self._newline()
            self._skip_blank()

    def _skip_separators(self, stops_at_case_end: bool) -> None:
        while True:
            self._skip_blank()
            if self._at_text("\n"):
                self._newline()
            elif stops_at_case_end and self._at_text(";;"):
                return
            elif self._r.text[self._r.at : self._r.at + 1] in (";", "&", "|") and self._r.at < len(self._r.text):
                if re.match(r"&>", self._r.text[self._r.at : self._r.at + 2]):
                    return
                self._budget.spend_piece()
                self._r.at += 1
            else:
                return

    def _at_text(self, text: str) -> bool:
        return self._r.text.startswith(text, self._r.at)

    def _peek_keyword(self) -> str:
        match = _KEYWORD.match(self._r.text, self._r.at)
        return match.group() if match else ""
