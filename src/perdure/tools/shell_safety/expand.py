"""Shell variables and word expansion."""

from __future__ import annotations

import fnmatch
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from perdure.tools.shell_safety.limits import Budget
from perdure.tools.shell_safety.syntax import Literal, Substitution, Variable, Word
from perdure.tools.shell_safety.types import SECRET, UNKNOWN, has_taint

SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT)(?:_|$)|APIKEY|_PASS$", re.I)
_MAX_FIELDS = 64
# `${x#…}` and `${x/…}` are evaluated for values up to this length; beyond it the result is UNKNOWN.
_MAX_PATTERN_CHARS = 200
_MAX_INDEX_DIGITS = 6
_SLICE = re.compile(r":\s*(-?\d{1,9})(?::(\d{1,9}))?\Z", re.ASCII)
# Kinds of pieces of a word: unquoted as typed, quoted, subject to field splitting, or a field boundary.
_TYPED, _QUOTED, _SPLIT, _BREAK = range(4)
_Pieces = list[tuple[str, int]]


class ShellVariables:
    """Variables of a shell. With `environment` None, unset names are UNKNOWN."""

    def __init__(self, environment: Mapping[str, str] | None, home: str, budget: Budget) -> None:
        self._environment = environment
        self._home = home
        self._budget = budget
        self._set: ChainMap[str, list[str]] = ChainMap()
        self.arguments: list[str] = []
        # After a `source`, names that were not assigned may still be set.
        self.is_open = environment is None

    def assign(self, name: str, values: Sequence[str], *, is_added: bool = False, is_array: bool = False) -> None:
        before = self._set.get(name, []) if is_added else []
        if is_added:
            self._budget.spend_chars(len(before) + sum(len(v) for v in (*before[:1], *values)))
        if is_array:
            self._set[name] = [*before, *values]
        else:
            self._set[name] = ["".join((*before[:1], *values[:1])), *before[1:]]

    def spend(self, count: int) -> None:
        """Charge the cost of an expansion to the budget. Raises Unreadable."""
        self._budget.spend_chars(count)

    def unset(self, name: str) -> None:
        self._set[name] = [""]

    def child(self) -> ShellVariables:
        """Return the scope of a subshell, which ends before this one continues, so nothing is copied."""
        other = ShellVariables(self._environment, self._home, self._budget)
        other._set = self._set.new_child()
        other.arguments = self.arguments
        other.is_open = self.is_open
        return other

    def values(self, name: str) -> list[str]:
        if name in ("@", "*"):
            return self.arguments[1:]
        if name.isdecimal():
            arguments = self.arguments[int(name) : int(name) + 1] if len(name) <= _MAX_INDEX_DIGITS else []
            return arguments or ([UNKNOWN] if self.is_open and not self.arguments else [])
        if name in self._set:
            return self._set[name]
        if name in ("IFS", "HOME", "PWD", "OLDPWD"):
            return {"IFS": [" \t\n"], "HOME": [self._home]}.get(name, [UNKNOWN])
        if name in ("SHELL", "BASH"):
            return ["/bin/bash"]
        if name in "#?$!-" or name in ("RANDOM", "SECONDS", "BASHPID", "PPID", "UID", "EUID", "LINENO", "HOSTNAME"):
            return [UNKNOWN]
        if SECRET_NAME.search(name):
            return [SECRET]
        inherited = (self._environment or {}).get(name)
        if inherited is not None:
            return [inherited]
        return [UNKNOWN] if self.is_open else []

    def fields(self, word: Word, run: Callable[[Substitution], str]) -> list[str]:
        """Expand a word to arguments: braces, variables, substitutions, `~`, and field splitting."""
        if (plain := _plain(word)) is not None:
            return [plain]
        pieces = self._pieces(word, run)
        if not any(kind == _TYPED and "{" in text for text, kind in pieces):
            return self._split(self._tilde(pieces))
        return [f for one in _braces(_characters(pieces), self._budget) for f in self._split(self._tilde(one))]

    def text(self, word: Word, run: Callable[[Substitution], str]) -> str:
        """Expand a word to one string, as in assignments, redirections and here-documents."""
        if (plain := _plain(word)) is not None:
            return plain
        return "".join(text for text, kind in self._tilde(self._pieces(word, run)) if kind != _BREAK)

    def _pieces(self, word: Word, run: Callable[[Substitution], str]) -> _Pieces:
        pieces: _Pieces = []
        for part in word.parts:
            expanded = self._expand(part, run)
            if not isinstance(part, Literal):
                self._budget.spend_chars(sum(len(text) for text, _ in expanded))
            pieces += expanded
        return pieces

    def _expand(self, part: Literal | Variable | Substitution, run: Callable[[Substitution], str]) -> _Pieces:
        if isinstance(part, Literal):
            return [(part.text, _QUOTED if part.is_quoted else _TYPED)] if part.text else [("", _QUOTED)]
        kind = _QUOTED if part.is_quoted else _SPLIT
        if isinstance(part, Substitution):
            return [(run(part).rstrip("\n"), kind)]
        output = "".join([run(s) for s in part.runs])
        values = self._variable(part) if not part.runs or self.values(part.name) else [output]
        if part.is_quoted and (part.name == "@" or part.index == "@"):
            out: _Pieces = []
            for i, v in enumerate(values):
                out += [("", _BREAK)] if i else []
                out.append((v, _QUOTED))
            return out
        between = self.values("IFS")[0][:1] if part.is_quoted and "*" in (part.name, part.index) else " "
        text = between.join(values)
        return [(text, kind)] if text or part.is_quoted else []

    def _variable(self, v: Variable) -> list[str]:
        values = self.values(v.name)
        if v.is_length:
            return [UNKNOWN]
        if v.is_indirect:
            values = self.values(values[0]) if values and re.fullmatch(r"\w+", values[0]) else [UNKNOWN]
        if v.index not in ("", "@", "*"):
            is_number = v.index.isdecimal() and len(v.index) <= _MAX_INDEX_DIGITS
            values = values[int(v.index) : int(v.index) + 1] if is_number else [UNKNOWN]
        elif not v.index and v.name not in ("@", "*"):
            values = values[:1]
        if not v.rest:
            return values
        return _apply_operator(values, v.rest, self)

    def _tilde(self, pieces: _Pieces) -> _Pieces:
        if not pieces or pieces[0][1] != _TYPED or not pieces[0][0].startswith("~"):
            return pieces
        name: list[str] = []
        for i, (text, kind) in enumerate(pieces):
            before, slash, after = text.partition("/")
            name.append(before)
            if slash:
                rest = [("/" + after, kind), *pieces[i + 1 :]]
                break
        else:
            rest = []
        user = "".join(name)[1:]
        return [(f"/home/{user}" if user else self._home, _QUOTED), *rest]

    def _split(self, pieces: _Pieces) -> list[str]:
        breaks = (self._set.get("IFS") or [" \t\n"])[0]
        blank = re.compile(f"[{re.escape(breaks)}]+") if breaks else None
        fields: list[str] = []
        current: list[str] | None = None
        for text, kind in pieces:
            if not text and kind not in (_QUOTED, _BREAK):
                continue
            cut = blank.split(text) if kind == _SPLIT and blank is not None else [text]
            cut = ["", ""] if kind == _BREAK else cut
            if cut[0] or len(cut) == 1:
                current = current if current is not None else []
                current.append(cut[0])
            if len(cut) == 1:
                continue
            if current is not None:
                fields.append("".join(current))
            fields += [f for f in cut[1:-1] if f]
            current = [cut[-1]] if cut[-1] else None
        if current is not None:
            fields.append("".join(current))
        self._budget.spend_piece(len(fields))
        return fields


def _plain(word: Word) -> str | None:
    """Return a word that expands to itself, else None: a fast path for large quoted text."""
    texts = []
    for p in word.parts:
        if not isinstance(p, Literal) or (not p.is_quoted and ("{" in p.text or p.text.startswith("~"))):
            return None
        texts.append(p.text)
    return "".join(texts) if texts else None


def _apply_operator(values: list[str], rest: str, scope: ShellVariables) -> list[str]:
    """Evaluate `${x:-y}`, `${x:1:2}`, `${x#y}`, `${x%y}`, `${x/y/z}`, `${x^^}`, `${x,,}`, `${x@Q}`."""
    if match := re.match(r":?([-=+?])", rest):
        other = rest[match.end() :].strip("\"'")
        other = re.sub(r"\$\{?(\w+)\}?", lambda m: _expand_nested(m.group(1), scope), other)
        is_set = bool(values and values[0])
        if match.group(1) == "+":
            return [other] if is_set else []
        return values if is_set else [other]
    return [_transform(v, rest, scope) for v in values]


def _expand_nested(name: str, scope: ShellVariables) -> str:
    text = "".join(scope.values(name))
    scope.spend(len(text))
    return text


def _transform(value: str, rest: str, scope: ShellVariables) -> str:
    if match := _SLICE.match(rest):
        start, length = int(match.group(1)), match.group(2)
        return value[start:][: int(length)] if length else value[start:]
    if rest[0] in "^,":
        change = str.upper if rest[0] == "^" else str.lower
        return change(value) if len(rest) > 1 else change(value[:1]) + value[1:]
    if rest[0] == "@":
        return value
    if has_taint(value) or any(c in rest for c in "$`") or max(len(value), len(rest)) > _MAX_PATTERN_CHARS:
        return UNKNOWN
    scope.spend(_MAX_PATTERN_CHARS * 20)
    if rest[0] in "#%":
        return _trim(value, rest)
    if rest[0] == "/":
        every = rest.startswith("//")
        old, _, new = rest[2 if every else 1 :].partition("/")
        old, new = old.strip("\"'"), new.strip("\"'")
        pattern = fnmatch.translate(old).removesuffix(r"\Z").removeprefix("(?s:").removesuffix(")")
        return re.sub(pattern, lambda _: new, value, count=0 if every else 1) if old else value
    return UNKNOWN


def _trim(value: str, rest: str) -> str:
    sign, is_greedy = rest[0], rest[:2] in ("##", "%%")
    pattern = rest[2 if is_greedy else 1 :].strip("\"'")
    cuts: Iterable[int] = range(len(value) + 1)
    if sign == "#":
        fitting = [n for n in cuts if fnmatch.fnmatchcase(value[:n], pattern)]
        return value[(max(fitting) if is_greedy else min(fitting)) :] if fitting else value
    fitting = [n for n in cuts if fnmatch.fnmatchcase(value[n:], pattern)]
    return value[: (min(fitting) if is_greedy else max(fitting))] if fitting else value


def _characters(pieces: _Pieces) -> _Pieces:
    """Split pieces into single characters for brace expansion; breaks and empty quoted pieces are kept."""
    return [(c, kind) for text, kind in pieces for c in (text or ("",))]


def _braces(chars: _Pieces, budget: Budget) -> list[_Pieces]:
    """Expand `{a,b}`; quoted and unmatched braces are kept."""
    done: list[_Pieces] = []
    todo = [chars]
    while todo and len(done) + len(todo) <= _MAX_FIELDS:
        budget.spend_chars(10 * len(todo[0]))
        one = todo.pop(0)
        group = _brace_group(one)
        if group is None:
            done.append(one)
            continue
        start, end, commas = group
        budget.spend_chars(10 * len(one) * len(commas))
        cuts = [start, *commas, end]
        choices = [one[a + 1 : b] for a, b in pairwise(cuts)]
        todo = [[*one[:start], *choice, *one[end + 1 :]] for choice in choices] + todo
    return done + todo


def _brace_group(chars: _Pieces) -> tuple[int, int, list[int]] | None:
    """Return the first unquoted `{…,…}`: its start, its end, and its commas."""
    stack: list[tuple[int, list[int]]] = []
    best: tuple[int, int, list[int]] | None = None
    for at, (c, kind) in enumerate(chars):
        if kind != _TYPED:
            continue
        if c == "{" and not (at and chars[at - 1] == ("$", _TYPED)):
            stack.append((at, []))
        elif c == "," and stack:
            stack[-1][1].append(at)
        elif c == "}" and stack:
            start, commas = stack.pop()
            if commas and (best is None or start < best[0]):
                best = (start, at, commas)
            if not stack and best is not None:
                return best
    return best
