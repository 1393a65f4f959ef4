"""A shell's variables while a command is read, and words expanded with them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from perdure.tools.danger.marks import SECRET, UNKNOWN, has_mark
from perdure.tools.danger.syntax import Literal, Substitution, Variable, Word

SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT)(?:_|$)|APIKEY|_PASS$", re.I)
_MAX_FIELDS = 64
_SLICE = re.compile(r":\s*(-?\d+)(?::(\d+))?\Z")
# What a character of a word is: open to braces and blanks as typed, quoted, split as an expansion is, or a field's end.
_TYPED, _QUOTED, _SPLIT, _BREAK = range(4)
_Chars = list[tuple[str, int]]


class Scope:
    """Names and values. `environment` None means that nothing is known of it, so that an unset name is unknown."""

    def __init__(self, environment: Mapping[str, str] | None, home: str) -> None:
        self._environment = environment
        self._home = home
        self._set: dict[str, list[str]] = {}
        self.arguments: list[str] = []
        # Once a file was sourced or input read, names that were not seen may still hold something.
        self.is_open = environment is None

    def assign(self, name: str, values: Sequence[str], *, is_added: bool = False, is_array: bool = False) -> None:
        before = self._set.get(name, []) if is_added else []
        if is_array:
            self._set[name] = [*before, *values]
        else:
            self._set[name] = ["".join((*before[:1], *values[:1])), *before[1:]]

    def forget(self, name: str) -> None:
        self._set[name] = [""]

    def child(self) -> Scope:
        """A copy, for what runs in a shell of its own."""
        other = Scope(self._environment, self._home)
        other._set = dict(self._set)
        other.arguments = list(self.arguments)
        other.is_open = self.is_open
        return other

    def values(self, name: str) -> list[str]:
        if name in ("@", "*"):
            return self.arguments[1:]
        if name.isdigit():
            known = self.arguments[int(name) : int(name) + 1]
            return known or ([UNKNOWN] if self.is_open and not self.arguments else [])
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
        known_outside = (self._environment or {}).get(name)
        if known_outside is not None:
            return [known_outside]
        return [UNKNOWN] if self.is_open else []

    def fields(self, word: Word, run: Callable[[Substitution], str]) -> list[str]:
        """The arguments a word becomes: braces, variables, substitutions, `~`, and splitting at blanks."""
        if (plain := _plain(word)) is not None:
            return [plain]
        chars = [c for p in word.parts for c in self._chars(p, run)]
        out: list[str] = []
        for one in _braces(chars):
            out += self._split(self._tilde(one))
        return out

    def text(self, word: Word, run: Callable[[Substitution], str]) -> str:
        """The word as one string: what an assignment, a redirection or a here-document takes."""
        if (plain := _plain(word)) is not None:
            return plain
        return "".join(c for c, kind in self._tilde([c for p in word.parts for c in self._chars(p, run)]) if kind != 3)

    def _chars(self, part: Literal | Variable | Substitution, run: Callable[[Substitution], str]) -> _Chars:
        if isinstance(part, Literal):
            return [(c, _QUOTED if part.is_quoted else _TYPED) for c in part.text] or [("", _QUOTED)]
        kind = _QUOTED if part.is_quoted else _SPLIT
        if isinstance(part, Substitution):
            return [(c, kind) for c in run(part).rstrip("\n")]
        said = "".join([run(s) for s in part.runs])
        values = self._variable(part) if not part.runs or self.values(part.name) else [said]
        if part.is_quoted and (part.name == "@" or part.index == "@"):
            out: _Chars = []
            for i, v in enumerate(values):
                out += [("", _BREAK)] if i else []
                out += [("", _QUOTED), *((c, _QUOTED) for c in v)]
            return out
        between = self.values("IFS")[0][:1] if part.is_quoted and "*" in (part.name, part.index) else " "
        return [(c, kind) for c in between.join(values)] or ([("", _QUOTED)] if part.is_quoted else [])

    def _variable(self, v: Variable) -> list[str]:
        values = self.values(v.name)
        if v.is_length:
            return [UNKNOWN]
        if v.is_indirect:
            values = self.values(values[0]) if values and re.fullmatch(r"\w+", values[0]) else [UNKNOWN]
        if v.index not in ("", "@", "*"):
            values = values[int(v.index) : int(v.index) + 1] if v.index.isdigit() else [UNKNOWN]
        elif not v.index and v.name not in ("@", "*"):
            values = values[:1]
        if not v.rest:
            return values
        return _changed(values, v.rest, self)

    def _tilde(self, chars: _Chars) -> _Chars:
        if not chars or chars[0] != ("~", _TYPED):
            return chars
        end = next((i for i, (c, _) in enumerate(chars) if c == "/"), len(chars))
        user = "".join(c for c, _ in chars[1:end])
        place = self._home if not user else f"/home/{user}"
        return [*((c, _QUOTED) for c in place), *chars[end:]]

    def _split(self, chars: _Chars) -> list[str]:
        breaks = (self._set.get("IFS") or [" \t\n"])[0]
        fields: list[str] = []
        current: list[str] | None = None
        for c, kind in chars:
            if kind == _BREAK or (kind == _SPLIT and c in breaks):
                if current is not None:
                    fields.append("".join(current))
                current = None
            else:
                current = current if current is not None else []
                current.append(c)
        if current is not None:
            fields.append("".join(current))
        return fields


def _plain(word: Word) -> str | None:
    """A word that expands to itself; character by character would be slow for a megabyte in quotes."""
    texts = []
    for p in word.parts:
        if not isinstance(p, Literal) or (not p.is_quoted and ("{" in p.text or p.text.startswith("~"))):
            return None
        texts.append(p.text)
    return "".join(texts) if texts else None


def _changed(values: list[str], rest: str, scope: Scope) -> list[str]:
    """`${x:-y}`, `${x:1:2}`, `${x#y}`, `${x%y}`, `${x/y/z}`, `${x^^}`, `${x,,}`, `${x@Q}`."""
    if found := re.match(r":?([-=+?])", rest):
        other = rest[found.end() :].strip("\"'")
        other = re.sub(r"\$\{?(\w+)\}?", lambda m: "".join(scope.values(m.group(1))), other)
        is_set = bool(values and values[0])
        if found.group(1) == "+":
            return [other] if is_set else []
        return values if is_set else [other]
    return [_changed_text(v, rest) for v in values]


def _changed_text(value: str, rest: str) -> str:
    if found := _SLICE.match(rest):
        start, length = int(found.group(1)), found.group(2)
        return value[start:][: int(length)] if length else value[start:]
    if rest[0] in "^,":
        change = str.upper if rest[0] == "^" else str.lower
        return change(value) if len(rest) > 1 else change(value[:1]) + value[1:]
    if rest[0] == "@":
        return value
    if has_mark(value) or any(c in rest for c in "$`"):
        return UNKNOWN
    if rest[0] in "#%":
        return _trimmed(value, rest)
    if rest[0] == "/":
        every = rest.startswith("//")
        old, _, new = rest[2 if every else 1 :].partition("/")
        old, new = old.strip("\"'"), new.strip("\"'")
        wanted = fnmatch.translate(old).removesuffix(r"\Z").removeprefix("(?s:").removesuffix(")")
        return re.sub(wanted, lambda _: new, value, count=0 if every else 1) if old else value
    return UNKNOWN


def _trimmed(value: str, rest: str) -> str:
    sign, is_greedy = rest[0], rest[:2] in ("##", "%%")
    pattern = rest[2 if is_greedy else 1 :].strip("\"'")
    cuts: Iterable[int] = range(len(value) + 1)
    if sign == "#":
        fitting = [n for n in cuts if fnmatch.fnmatchcase(value[:n], pattern)]
        return value[(max(fitting) if is_greedy else min(fitting)) :] if fitting else value
    fitting = [n for n in cuts if fnmatch.fnmatchcase(value[n:], pattern)]
    return value[: (min(fitting) if is_greedy else max(fitting))] if fitting else value


def _braces(chars: _Chars) -> list[_Chars]:
    """`{a,b}` spread out; quoted braces and lone ones stay as they are."""
    done: list[_Chars] = []
    todo = [chars]
    while todo and len(done) + len(todo) <= _MAX_FIELDS:
        one = todo.pop(0)
        found = _brace_group(one)
        if found is None:
            done.append(one)
            continue
        start, end, choices = found
        todo = [[*one[:start], *choice, *one[end + 1 :]] for choice in choices] + todo
    return done + todo


def _brace_group(chars: _Chars) -> tuple[int, int, list[_Chars]] | None:
    for start, (c, kind) in enumerate(chars):
        if (c, kind) != ("{", _TYPED) or (start and chars[start - 1] == ("$", _TYPED)):
            continue
        depth, choices = 0, [[]]  # type: int, list[_Chars]
        for at in range(start, len(chars)):
            one = chars[at]
            depth += (one == ("{", _TYPED)) - (one == ("}", _TYPED))
            if depth == 0:
                if len(choices) > 1:
                    return start, at, choices
                break
            if one == (",", _TYPED) and depth == 1:
                choices.append([])
            elif at > start:
                choices[-1].append(one)
    return None
