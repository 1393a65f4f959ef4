"""Shell variables and word expansion, as far as values are written out in the command."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence

from perdure.tools.shell_safety.parse import Literal, Simple, Substitution, Variable, Word
from perdure.tools.shell_safety.targets import DECIDING_VARIABLE, names_production
from perdure.tools.shell_safety.types import DEFAULTED, SECRET, UNKNOWN, Budget, word_set

SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT)(?:_|$)|APIKEY|_PASS$", re.I)
_MAX_FIELDS = 64
_MAX_INDEX_DIGITS = 6
_MAX_TARGETS = 20
_MAX_TARGET_CHARS = 200
_RUN_TIME = word_set("# ? $ ! - RANDOM SECONDS BASHPID PPID UID EUID LINENO HOSTNAME PWD OLDPWD")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

RunSubstitution = Callable[[Substitution], str]


class ShellVariables:
    """Variables of a shell. With `environment` None, unset names default to UNKNOWN."""

    def __init__(self, environment: Mapping[str, str] | None, home: str, budget: Budget) -> None:
        self._environment = environment
        self._home = home
        self._budget = budget
        self._set: ChainMap[str, list[str]] = ChainMap()
        # The variables that decide what commands work on, by name; empty where another value was assigned.
        self._targets: ChainMap[str, str] = ChainMap()
        self.arguments: list[str] = []
        # After a `source`, names that were not assigned may still be set.
        self.is_open = environment is None

    def assign(self, name: str, values: Sequence[str], *, is_added: bool = False, is_array: bool = False) -> None:
        before = self._set.get(name, []) if is_added else []
        self._budget.spend_chars(sum(map(len, (*before, *values))))
        if is_array:
            self._set[name] = [*before, *values]
        else:
            self._set[name] = ["".join((*before[:1], *values[:1])), *before[1:]]
            self.add_target(name, self._set[name][0])

    def add_target(self, name: str, value: str) -> None:
        """Note a variable that decides what commands work on: by its name, or because its value names production."""
        is_target = bool(value) and (DECIDING_VARIABLE.match(name[:_MAX_TARGET_CHARS]) or names_production(value))
        if name in self._targets or (is_target and len(self._targets.maps[0]) < _MAX_TARGETS):
            self._targets[name] = value[:_MAX_TARGET_CHARS] if is_target else ""

    def inherit_targets(self) -> None:
        """Note the variables of the environment that decide what commands work on, where one names production."""
        for name, value in (self._environment or {}).items():
            if names_production(value) and DECIDING_VARIABLE.match(name):
                self.add_target(name, value)

    def targets(self) -> tuple[str, ...]:
        """Return the variables that decide what a command works on, as `NAME=value`."""
        return tuple(f"{name}={value}" for name, value in self._targets.items() if value) if self._targets else ()

    def child(self) -> ShellVariables:
        """Return the scope of a subshell, which ends before this one continues, so nothing is copied."""
        other = ShellVariables(self._environment, self._home, self._budget)
        other._set = self._set.new_child()
        other._targets = self._targets.new_child()
        other.arguments = self.arguments
        other.is_open = self.is_open
        return other

    def values(self, name: str) -> list[str]:
        if name in ("@", "*"):
            return self.arguments[1:]
        if name.isdecimal():
            arguments = self.arguments[int(name) : int(name) + 1] if len(name) <= _MAX_INDEX_DIGITS else []
            default = ["bash"] if name == "0" else [UNKNOWN] if self.is_open and not self.arguments else []
            return arguments or default
        if name in self._set:
            return self._set[name]
        if name in _RUN_TIME:
            return [UNKNOWN]
        preset = {"IFS": " \t\n", "HOME": self._home, "SHELL": "/bin/bash", "BASH": "/bin/bash"}.get(name)
        if preset is not None:
            return [preset]
        if SECRET_NAME.search(name):
            return [SECRET]
        inherited = (self._environment or {}).get(name)
        if inherited is not None:
            return [inherited]
        return [UNKNOWN] if self.is_open else []

    def fields(self, word: Word, run: RunSubstitution) -> list[str]:
        """Expand a word to arguments: variables, substitutions, `~`, `{a,b}`, and field splitting."""
        breaks = (self._set.get("IFS") or [" \t\n"])[0]
        fields: list[str] = []
        current: list[str] | None = None
        for index, part in enumerate(word.parts):
            if isinstance(part, Literal):
                current = current if current is not None else []
                current.append(self._tilde(part, index))
                continue
            for at, text in enumerate(self._expand(part, run)):
                pieces = re.split(f"[{re.escape(breaks)}]+", text) if breaks and not part.is_quoted else [text]
                for number, piece in enumerate(pieces):
                    if (at or number) and current is not None:
                        fields.append("".join(current))
                        current = None
                    if piece or part.is_quoted:
                        current = current if current is not None else []
                        current.append(piece)
        if current is not None:
            fields.append("".join(current))
        self._budget.spend_pieces(len(fields))
        has_braces = any(isinstance(p, Literal) and not p.is_quoted and "{" in p.text for p in word.parts)
        return [f for field in fields for f in self._braces(field)] if has_braces else fields

    def text(self, word: Word, run: RunSubstitution) -> str:
        """Expand a word to one string, as in assignments, redirections and here-documents."""
        return "".join(
            self._tilde(p, i) if isinstance(p, Literal) else " ".join(self._expand(p, run))
            for i, p in enumerate(word.parts)
        )

    def _expand(self, part: Variable | Substitution, run: RunSubstitution) -> list[str]:
        values = [run(part).rstrip("\n")] if isinstance(part, Substitution) else self._variable(part, run)
        self._budget.spend_chars(sum(map(len, values)))
        return values

    def _variable(self, part: Variable, run: RunSubstitution) -> list[str]:
        output = "".join([run(s) for s in part.runs])
        if part.is_computed:
            return [UNKNOWN + output]
        values = self.values(part.name)
        if not part.is_list and part.name != "*":
            values = values[:1]
        if part.default is not None:
            default = self.text(part.default, run)
            if values == [UNKNOWN] and default and part.name not in self._set:
                return [DEFAULTED + default]
            return values if any(values) else [default]
        return values or ([""] if part.is_quoted and not part.is_list else [])

    def _tilde(self, part: Literal, index: int) -> str:
        if index or part.is_quoted or not part.text.startswith("~"):
            return part.text
        user, slash, rest = part.text[1:].partition("/")
        return (f"/home/{user}" if user else self._home) + slash + rest

    def _braces(self, field: str) -> list[str]:
        """Expand `{a,b}` in a field, up to a number of results."""
        done: list[str] = []
        pending = [field]
        while pending and len(done) + len(pending) <= _MAX_FIELDS:
            self._budget.spend_chars(10 * len(pending[0]))
            text = pending.pop(0)
            match = _BRACES.search(text)
            if match is None:
                done.append(text)
                continue
            choices = match[1].split(",")[:_MAX_FIELDS]
            self._budget.spend_chars(len(text) * len(choices))
            pending = [text[: match.start()] + c + text[match.end() :] for c in choices] + pending
        return done + pending


def production_variables(node: Simple) -> list[str]:
    """Return the variables in a command that name a system that others use: `psql "$PROD_DATABASE_URL"`."""
    words = (*node.words, *(w for a in node.assignments for w in a.values))
    return [f"${p.name}" for w in words for p in w.parts if isinstance(p, Variable) and names_production(p.name)]
