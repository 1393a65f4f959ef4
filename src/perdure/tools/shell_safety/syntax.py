"""Syntax tree of a shell command, as far as the analysis needs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """Plain or quoted text."""

    text: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`, `${name}` or `${name[@]}`; `is_computed` with any operator except a default value."""

    name: str
    is_quoted: bool = False
    is_list: bool = False
    is_computed: bool = False
    default: Word | None = None
    # Substitutions inside the braces: they run whatever the value is.
    runs: tuple[Substitution, ...] = ()


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(…)` or backticks (kind "$"), `<(…)` (kind "<") or `>(…)` (kind ">")."""

    body: tuple[Node, ...]
    is_quoted: bool = False
    kind: str = "$"


Part = Literal | Variable | Substitution


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, before expansion."""

    parts: tuple[Part, ...] = ()

    @property
    def plain(self) -> str | None:
        """Return the text if it is written out, else None."""
        texts = [p.text for p in self.parts if isinstance(p, Literal)]
        return "".join(texts) if len(texts) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection; the target of `<<` and `<<<` is the text itself."""

    operator: str
    target: Word


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name=value`, `name+=value` or `name=(values)`."""

    name: str
    values: tuple[Word, ...]
    is_array: bool = False
    is_added: bool = False


@dataclass(frozen=True, slots=True)
class Simple:
    """A simple command with its assignments and redirects."""

    assignments: tuple[Assignment, ...] = ()
    words: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands connected by `|`, possibly in the background."""

    commands: tuple[Node, ...]
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """`( … )`, `{ … }`, and the bodies of if, while and case, with every branch included."""

    body: tuple[Node, ...]
    redirects: tuple[Redirect, ...] = ()
    is_subshell: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """`for name in words; do body; done`."""

    name: str
    words: tuple[Word, ...]
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """`name() { body; }`."""

    name: str
    body: tuple[Node, ...]


Node = Simple | Pipeline | Group | Loop | Function
