"""One program that a command would start, with everything a rule needs to judge it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from perdure.tools.danger.marks import without_marks
from perdure.tools.danger.places import PathZones, ShellPath

_SHOWN_CHARS = 160


@dataclass(frozen=True)
class Invocation:
    """A program and its arguments after every expansion; `stdin` is what it reads as far as that is known."""

    name: str
    args: tuple[str, ...]
    places: PathZones
    stdin: str | None = None
    # Files it writes through `>` and its kin.
    writes: tuple[str, ...] = ()
    # Files it reads through `<`.
    reads: tuple[str, ...] = ()
    # Names of the programs before it in the pipeline.
    upstream: tuple[str, ...] = ()
    is_background: bool = False

    @cached_property
    def options(self) -> tuple[str, ...]:
        """What begins with `-`, up to `--`; `--name=value` as `--name`."""
        return tuple(a.partition("=")[0] for a in _before_dashes(self.args) if a.startswith("-") and len(a) > 1)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The arguments that are no options."""
        before = list(_before_dashes(self.args))
        return (*(a for a in before if not a.startswith("-") or a == "-"), *self.args[len(before) + 1 :])

    @cached_property
    def size(self) -> int:
        """How many characters a rule may have to look at."""
        return sum(map(len, self.args)) + len(self.args) + len(self.stdin or "")

    @cached_property
    def _given(self) -> tuple[frozenset[str], frozenset[str]]:
        """The options as they stand, and the letters of `-rf` and its like."""
        clusters = (o[1:] for o in self.options if not o.startswith("--") and o[1:].isascii() and o[1:].isalnum())
        return frozenset(self.options), frozenset(letter for cluster in clusters for letter in cluster)

    def has(self, *wanted: str) -> bool:
        """Whether an option was given; `-f` is found in `-rf`, `--force` also as `--forc`."""
        options, letters = self._given
        for w in wanted:
            if w in options or (len(w) == 2 and w[1] in letters):
                return True
            if w.startswith("--") and any(w[:end] in options for end in range(5, len(w))):
                return True
        return False

    def value_of(self, *names: str) -> str | None:
        """What an option was given: `-o x`, `-ox`, `--out x`, `--out=x`."""
        for i, a in enumerate(self.args):
            for name in names:
                if a == name:
                    return self.args[i + 1] if i + 1 < len(self.args) else ""
                if name.startswith("--") and a.startswith(f"{name}="):
                    return a[len(name) + 1 :]
                if len(name) == 2 and a.startswith(name) and not a.startswith("--"):
                    return a[2:]
        return None

    def all_values_of(self, *names: str) -> list[str]:
        """The same for an option that may be given several times."""
        out = []
        for i, a in enumerate(self.args):
            if a.startswith("-") and _opens_with(a, names):
                value = Invocation(self.name, self.args[i : i + 2], self.places).value_of(*names)
                out += [value] if value is not None else []
        return out

    def starts(self, *words: str) -> bool:
        """Whether the operands begin with these words: the sub-command."""
        return self.operands[: len(words)] == words

    def place(self, path: str) -> ShellPath:
        return self.places.place(path)

    @cached_property
    def shown(self) -> str:
        few = self.args[:_SHOWN_CHARS]
        text = without_marks(" ".join((self.name, *(a[: _SHOWN_CHARS + 1] for a in few))), "…")
        return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _before_dashes(args: Iterable[str]) -> Iterable[str]:
    for a in args:
        if a == "--":
            return
        yield a


def _opens_with(arg: str, names: tuple[str, ...]) -> bool:
    return any(arg == n or arg.startswith(f"{n}=") or (len(n) == 2 and arg.startswith(n)) for n in names)
