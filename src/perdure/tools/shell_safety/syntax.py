"""Syntax tree of a shell command: words, redirects, simple commands, pipelines, groups, loops, functions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Literal:
    """Plain or quoted text."""

    text: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` or `${name[index]op}`; `rest` is the operator after the name inside the braces."""

    name: str
    is_quoted: bool = False
    index: str = ""
    rest: str = ""
    is_length: bool = False
    is_indirect: bool = False
    # Substitutions inside the braces: they run even if their text is not used.
    runs: tuple[Substitution, ...] = ()


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(…)`, backticks, `<(…)` (kind "<") or `>(…)` (kind ">")."""

    body: tuple[Node, ...]
    is_quoted: bool = False
    kind: str = "$"


Part = Literal | Variable | Substitution


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, before expansion."""

    parts: tuple[Part, ...] = ()

    @property
    def bare(self) -> str:
        """Return the word if it is plain unquoted text, else "": only such a word can be a keyword."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Literal) and not self.parts[0].is_quoted:
            return self.parts[0].text
        return ""


@dataclass(slots=True)
class HereText:
    """A here-document; the parser sets `body` when it reaches it."""

    delimiter: str
    is_quoted: bool
    strips_tabs: bool
    body: Word = field(default_factory=Word)


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection such as `> file` or `<<EOF`."""

    operator: str
    target: Word
    here: HereText | None = None


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

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


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
    words: tuple[Word, ...] | None
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """`name() { body; }`."""

    name: str
    body: tuple[Node, ...]


Node = Simple | Pipeline | Group | Loop | Function
