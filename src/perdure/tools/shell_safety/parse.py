"""Parse a shell command with tree-sitter into a syntax tree, as far as the analysis needs it.

Tree-sitter parses valid input in linear time, but its recovery from syntax errors is quadratic, so the parser gets a
timeout. A command with a syntax error counts as unreadable, because how bash would parse it is not known.
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from perdure.tools.shell_safety.types import TOO_LONG, Budget, Unreadable, word_set

if TYPE_CHECKING:
    from tree_sitter import Language, Tree
    from tree_sitter import Node as TreeNode


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
    # A loop whose condition never ends it.
    is_endless: bool = False


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


_MAX_DEPTH = 80
# Pipelines take quadratic time and memory.
_MAX_PIPES = 200
_ERROR_CHARS = 40
_MAX_REWRITTEN = 20
_ENDLESS = re.compile(r"(?:while (?::|true|\[ 1 \]|\(\(\s?1\s?\)\))|until false);?")
# Many brackets that close nothing take seconds.
_CLOSERS = re.compile(r"(?:\)[ \t\n]?){100}")
_NOT_STATEMENTS = word_set("comment heredoc_body heredoc_end heredoc_start variable_name file_descriptor")
_GROUPS = word_set(
    "compound_statement do_group if_statement elif_clause else_clause while_statement case_statement case_item "
    "c_style_for_statement"
)
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_EXPANSION = re.compile(r"\$\{(\w+|[@*#?$!-])(?:\[([@*])\])?(?:(:?[-=])(.*))?\}\Z", re.S)
_NAME = re.compile(r"\w+|[@*#?$!-]")
_ESCAPE = re.compile(
    r"(?s)\\(?:(?:x(?P<hex>[0-9a-fA-F]{1,2})|[uU](?P<wide>[0-9a-fA-F]{1,8}))|0?(?P<octal>[0-7]{1,3})|(?P<char>.))"
)
_ESCAPED_CHARS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_REDIRECT_AFTER_HERE = re.compile(
    r"(<<-?[ \t]?[\"']?\w{1,60}[\"']?)[ \t]{1,9}((?:\d?>>?[ \t]?(?:&\d|[\w./-]{1,200})[ \t]{0,9}){1,4})(?=[|&])"
)
_DOLLAR = Literal("$")
_METACHARACTER = re.compile(r"(?<!\\)(?:\\\\)*[;|&<>\n`]")
# An expansion that was not recognized as one.
_RAW_EXPANSION = re.compile(r"(?<!\\)(?:\\\\)*(?:\$[A-Za-z_{(@0-9]|`)")


@dataclass(frozen=True, slots=True)
class ParsedScript:
    """The commands of a script; `error` is the text near the first syntax error."""

    nodes: tuple[Node, ...]
    error: str | None = None


def parse(text: str, budget: Budget, *, depth: int = 0) -> ParsedScript:
    """Parse a script. Raises Unreadable if it is too long, too deep or too expensive."""
    if "\0" in text:
        raise Unreadable("it contains a NUL character")
    if _has_long_pipeline(text) or _CLOSERS.search(text):
        raise Unreadable(TOO_LONG)
    source = text.encode("utf-8", "replace")
    tree = _parse_tree(source, budget, is_nested=depth > 0)
    if tree.root_node.has_error and text.count("<<") <= _MAX_REWRITTEN and (rewritten := _rewrite(text)) != text:
        other = rewritten.encode("utf-8", "replace")
        other_tree = _parse_tree(other, budget, is_nested=depth > 0)
        source, tree = (source, tree) if other_tree.root_node.has_error else (other, other_tree)
    reader = _TreeReader(source, budget)
    nodes = tuple(reader.statements(tree.root_node, depth))
    if tree.root_node.has_error and reader.error is None:
        reader.error = " ".join(text[:_ERROR_CHARS].split())
    return ParsedScript(nodes, reader.error)


def _rewrite(text: str) -> str:
    """Rewrite what the grammar does not know: `<<EOF 2>&1 | …`, `3<>file`, and `done }` or `) done` without a `;`."""
    text = re.sub(r"(?<=\d)<>", ">", _REDIRECT_AFTER_HERE.sub(r"\2 \1", text))
    return re.sub(r"(\b(?:done|fi|esac)(?=[ \t]?\})|\)(?=[ \t](?:done|fi|\})))", r"\1;", text)


def _parse_tree(source: bytes, budget: Budget, *, is_nested: bool) -> Tree:
    """Parse with a timeout. Every retry takes a new parser: one that was stopped crashes when it resumes."""
    from tree_sitter import Parser

    patience = 1
    while True:
        try:
            micros = patience * budget.parse_micros(is_nested=is_nested)
            return Parser(_language(), timeout_micros=micros).parse(source)
        except ValueError:
            # The timeout is in real time, the budget in processor time: retry if the machine was busy.
            patience *= 8


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    # The deprecated timeout is used because the progress callback that replaces it crashes the interpreter.
    warnings.filterwarnings("ignore", "Use the progress_callback", DeprecationWarning)
    return Language(tree_sitter_bash.language())


def _has_long_pipeline(text: str) -> bool:
    """Whether many `|` follow each other with one line of text between them; tables have line breaks in between."""
    if text.count("|") <= _MAX_PIPES:
        return False
    length = 0
    for segment in text.split("|"):
        segment = segment.strip()
        length = length + 1 if segment and "\n" not in segment else 0
        if length > _MAX_PIPES:
            return True
    return False


def decode_escapes(text: str) -> str:
    r"""Decode `\n`, `\x41`, `\101` and `\u0041`, as in `$'…'` and `echo -e`."""
    return _ESCAPE.sub(_decode_escape, text) if "\\" in text else text


def _decode_escape(match: re.Match[str]) -> str:
    digits = match["hex"] or match["wide"] or match["octal"]
    if digits:
        code = int(digits, 8 if match["octal"] else 16)
        return chr(code) if code <= sys.maxunicode else "\ufffd"
    return _ESCAPED_CHARS.get(match["char"], match["char"])


class _TreeReader:
    """Convert the nodes that the parser returns. Words are assembled by position: parts that touch belong together."""

    def __init__(self, source: bytes, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self.error: str | None = None

    def statements(self, parent: TreeNode, depth: int) -> list[Node]:
        """Return the commands among the children of a node."""
        out: list[Node] = []
        for child in parent.children:
            if child.type == "&" and out:
                out[-1] = _in_background(out[-1])
            elif child.is_named:
                out += self._statement(child, depth + 1)
        return out

    def _statement(self, node: TreeNode, depth: int) -> list[Node]:
        self._budget.spend_pieces()
        if depth > _MAX_DEPTH:
            raise Unreadable("it is nested too deeply")
        kind = node.type
        if kind in ("command", "declaration_command", "unset_command", "variable_assignment", "variable_assignments"):
            return self._command(node, depth)
        if kind == "list":
            return self._list(node, depth)
        if kind == "pipeline":
            return self._pipeline(node, depth)
        if kind == "redirected_statement":
            return self._redirected_statement(node, depth)
        if kind == "subshell":
            return [Group(tuple(self.statements(node, depth)), is_subshell=True)]
        if kind in _GROUPS:
            return [Group(tuple(self.statements(node, depth)), is_endless=self._is_endless(node))]
        if kind == "for_statement":
            return [self._loop(node, depth)]
        if kind == "function_definition":
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            redirects: list[Redirect] = []
            for child in node.children_by_field_name("redirect"):
                self._redirect(child, depth, redirects, [])
            nodes = tuple(self._statement(body, depth + 1)) if body is not None else ()
            return [Function(self._text(name), (Group(nodes, tuple(redirects)),))]
        if kind == "negated_command":
            return self.statements(node, depth)
        if kind == "ERROR":
            self._note_error(node)
            return self.statements(node, depth)
        if kind in _NOT_STATEMENTS:
            return []
        runs = self._substitutions(node, depth)
        if kind == "test_command":
            # A quoted array index in a test is expanded: `[[ -v 'a[$(command)]' ]]`.
            quoted = [Word((self._literal(t, is_quoted=True),)) for t in self._quoted_indexes(node)]
            words = (Word((Literal("test"),)), Word(tuple(runs)), *quoted)
            return [Simple(words=words)] if runs or quoted else []
        return [Simple(words=(Word((Literal("test"),)), Word(tuple(runs))))] if runs else []

    def _list(self, node: TreeNode, depth: int) -> list[Node]:
        """Flatten `a && b || c`, which nests to the left, without recursion."""
        pending, items = [node], []
        while pending:
            top = pending.pop()
            if top.type == "list":
                pending += [c for c in top.children if c.is_named]
            else:
                items.append(top)
        return [n for item in reversed(items) for n in self._statement(item, depth)]

    def _pipeline(self, node: TreeNode, depth: int) -> list[Node]:
        before: list[Node] = []
        stages: list[Node] = []
        for child in node.children:
            if child.type == "&":
                continue
            converted = self._statement(child, depth + 1) if child.is_named else []
            if converted and not stages:
                # In `a && b | c` only b is piped.
                before, converted = converted[:-1], converted[-1:]
            for one in converted:
                stages += one.commands if isinstance(one, Pipeline) else (one,)
        return [*before, Pipeline(tuple(stages))]

    def _redirected_statement(self, node: TreeNode, depth: int) -> list[Node]:
        redirects: list[Redirect] = []
        words: list[Word] = []
        pipes: list[Node] = []
        after: list[Node] = []
        body: list[Node] = []
        for at, child in enumerate(node.children):
            if child.type in _REDIRECTS:
                # The grammar skips a lone `-` before `<<`: it is an argument.
                gap = self._slice(node.children[at - 1].end_byte, child.start_byte).strip() if at else ""
                words += [Word((self._literal(gap, is_quoted=False),))] if gap else []
                self._redirect(child, depth, redirects, words)
                if child.type == "heredoc_redirect":
                    pipes += self._after_here(child, depth, is_piped=True)
                    after += self._after_here(child, depth, is_piped=False)
            elif child.is_named:
                body += self._statement(child, depth + 1)
        last = _attach(body[-1] if body else Simple(), tuple(redirects), tuple(words))
        if pipes:
            last = Pipeline((*(last.commands if isinstance(last, Pipeline) else (last,)), *pipes))
        return [*body[:-1], last, *after]

    def _after_here(self, node: TreeNode, depth: int, *, is_piped: bool) -> list[Node]:
        """Return what follows `<<EOF` on its line: the rest of a pipeline, or a command after `&&`."""
        out: list[Node] = []
        for child in node.children:
            if child.is_named and child.type not in _REDIRECTS and (child.type == "pipeline") == is_piped:
                is_command = is_piped or node.child_by_field_name("right") == child or child.type == "ERROR"
                out += self._statement(child, depth + 1) if is_command else []
        return [c for n in out for c in (n.commands if isinstance(n, Pipeline) else (n,))] if is_piped else out

    def _redirect(self, node: TreeNode, depth: int, redirects: list[Redirect], words: list[Word]) -> None:
        """Append a redirect; the parser returns later arguments of the command as further destinations."""
        if node.type == "heredoc_redirect":
            redirects.append(Redirect("<<", self._here_text(node, depth)))
            for child in node.children:
                if child.type in _REDIRECTS:
                    self._redirect(child, depth, redirects, words)
            words += [_word(self._parts(c, depth)) for c in node.children_by_field_name("argument")]
            return
        if node.type == "herestring_redirect":
            redirects.append(Redirect("<<<", _word([p for c in node.named_children for p in self._parts(c, depth)])))
            return
        operator = next((c.type for c in node.children if not c.is_named), "")
        targets = [_word(self._parts(c, depth)) for c in node.children_by_field_name("destination")]
        if targets:
            redirects.append(Redirect(operator, targets[0]))
            words += targets[1:]

    def _here_text(self, node: TreeNode, depth: int) -> Word:
        start = next((self._text(c) for c in node.children if c.type == "heredoc_start"), "")
        body = next((c for c in node.children if c.type == "heredoc_body"), None)
        if body is None:
            return Word()
        if re.search(r"[\"'\\]", start):
            return Word((Literal(self._text(body), is_quoted=True),))
        return _word(self._parts_and_text(body, depth, is_quoted=True))

    def _command(self, node: TreeNode, depth: int) -> list[Node]:
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        extra: list[Word] = []
        words: list[list[Part]] = []
        nested: list[Node] = []
        end = -1
        for child in (node,) if node.type == "variable_assignment" else node.children:
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child, depth))
            elif child.type in _REDIRECTS:
                self._redirect(child, depth, redirects, extra)
            elif child.type in ("subshell", "ERROR"):
                nested += self._statement(child, depth + 1)
            else:
                gap = self._source[end : child.start_byte] if end >= 0 else b" "
                if gap.replace(b"\\\n", b""):
                    words.append([])
                words[-1] += self._parts(child, depth)
                end = child.end_byte
                continue
            end = -1
        simple = Simple(tuple(assignments), (*(_word(w) for w in words), *extra), tuple(redirects))
        return [simple, *nested]

    def _assignment(self, node: TreeNode, depth: int) -> Assignment:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and name.type == "subscript":
            name = name.child_by_field_name("name")
        is_added = any(c.type == "+=" for c in node.children)
        if value is not None and value.type == "array":
            values = tuple(_word(self._parts(c, depth)) for c in value.named_children if c.type != "comment")
            return Assignment(self._text(name), values, is_array=True, is_added=is_added)
        word = _word(self._parts(value, depth)) if value is not None else Word()
        return Assignment(self._text(name), (word,), is_added=is_added)

    def _is_endless(self, node: TreeNode) -> bool:
        """Match `while true`, `while :`, `until false` and `for ((;;))`."""
        condition = node.child_by_field_name("condition")
        if node.type == "c_style_for_statement":
            return condition is None
        words = f"{self._text(node.children[0])} {self._text(condition)}" if node.type == "while_statement" else ""
        return bool(_ENDLESS.fullmatch(words[:_ERROR_CHARS]))

    def _loop(self, node: TreeNode, depth: int) -> Loop:
        words = tuple(_word(self._parts(c, depth)) for c in node.children_by_field_name("value"))
        body = node.child_by_field_name("body")
        name = self._text(node.child_by_field_name("variable"))
        return Loop(name, words, tuple(self.statements(body, depth) if body else ()))

    def _parts(self, node: TreeNode, depth: int, *, is_quoted: bool = False) -> list[Part]:
        """Return the parts of a word."""
        self._budget.spend_pieces()
        if depth > _MAX_DEPTH:
            raise Unreadable("it is nested too deeply")
        kind, text = node.type, self._text(node)
        if kind in ("string", "translated_string", "concatenation", "command_name"):
            return self._parts_and_text(node, depth + 1, is_quoted=is_quoted or kind == "string")
        if kind == "raw_string":
            return [Literal(text[1:-1], is_quoted=True)]
        if kind == "ansi_c_string":
            return [Literal(decode_escapes(text[2:-1]), is_quoted=True)]
        if kind in ("simple_expansion", "expansion", "command_substitution", "process_substitution"):
            # Blanks in front of an expansion inside quotes belong to its node.
            lead = text[: len(text) - len(text.lstrip())]
            return [*([Literal(lead, is_quoted)] if lead else []), self._expansion(node, depth + 1, is_quoted)]
        if kind == "arithmetic_expansion":
            return [Literal("0", is_quoted), *self._substitutions(node, depth)]
        if kind == "ERROR":
            self._note_error(node)
        if kind == "word" and _METACHARACTER.search(text):
            self._note_error(node)
        if _RAW_EXPANSION.search(text):
            self._note_error(node)
        return [self._literal(text, is_quoted)]

    def _parts_and_text(self, node: TreeNode, depth: int, *, is_quoted: bool) -> list[Part]:
        """Return the parts of a node, with the text between its children."""
        parts: list[Part] = []
        at = node.start_byte
        for child in node.children:
            if child.start_byte > at:
                parts.append(self._literal(self._slice(at, child.start_byte), is_quoted))
            if child.type != '"':
                parts += self._parts(child, depth, is_quoted=is_quoted)
            at = child.end_byte
        if node.end_byte > at:
            parts.append(self._literal(self._slice(at, node.end_byte), is_quoted))
        return parts or [Literal("", is_quoted=True)]

    def _expansion(self, node: TreeNode, depth: int, is_quoted: bool) -> Part:
        text = self._text(node).lstrip()
        if node.type == "command_substitution":
            redirects: list[Redirect] = []
            for child in node.children_by_field_name("redirect"):
                self._redirect(child, depth, redirects, [])
            body = self.statements(node, depth)
            return Substitution(tuple([Simple(redirects=tuple(redirects))] if redirects else body), is_quoted)
        if node.type == "process_substitution":
            return Substitution(tuple(self.statements(node, depth)), is_quoted, text[:1])
        if node.type == "simple_expansion":
            return Variable(text[1:], is_quoted, is_list=text[1:] == "@")
        runs = tuple(self._substitutions(node, depth))
        match = _EXPANSION.match(text)
        if match is None:
            name = _NAME.search(text, 2)
            return Variable(name.group() if name else "?", is_quoted, is_computed=True, runs=runs)
        default = None
        if match[3]:
            children = node.children
            at = next((i for i, c in enumerate(children) if c.type == match[3]), len(children))
            words = [p for c in children[at + 1 : -1] for p in self._parts(c, depth)]
            default, runs = _word(words), ()
        return Variable(match[1], is_quoted, is_list="@" in (match[1], match[2]), default=default, runs=runs)

    def _substitutions(self, node: TreeNode, depth: int) -> list[Substitution]:
        """Return the substitutions anywhere below a node, without recursion."""
        out: list[Substitution] = []
        pending = [node]
        while pending:
            child = pending.pop()
            self._budget.spend_pieces()
            if child.type == "ERROR":
                self._note_error(child)
            if child.type in ("command_substitution", "process_substitution"):
                part = self._expansion(child, depth + 1, is_quoted=True)
                out += [part] if isinstance(part, Substitution) else []
            else:
                pending += child.children[::-1]
        return out

    def _quoted_indexes(self, node: TreeNode) -> list[str]:
        """Return the quoted texts of a test that look like an array and its index."""
        out: list[str] = []
        pending = [node]
        while pending:
            child = pending.pop()
            if child.type == "raw_string":
                out += [text] if "[" in (text := self._text(child)[1:-1]) else []
            elif child.type not in ("command_substitution", "process_substitution"):
                pending += child.children[::-1]
        return out

    def _literal(self, text: str, is_quoted: bool) -> Literal:
        if "\\" in text:
            text = re.sub(r"\\([$`\"\\\n])" if is_quoted else r"(?s)\\(.)", _unescape, text)
        return Literal(text, is_quoted)

    def _note_error(self, node: TreeNode) -> None:
        if self.error is None:
            start = max(0, node.start_byte - _ERROR_CHARS // 2)
            self.error = " ".join(self._slice(start, node.start_byte + _ERROR_CHARS // 2).split())

    def _text(self, node: TreeNode | None) -> str:
        return self._slice(node.start_byte, node.end_byte) if node is not None else ""

    def _slice(self, start: int, end: int) -> str:
        return self._source[start:end].decode("utf-8", "replace")


def _word(parts: list[Part]) -> Word:
    """Build a word. After `a$b-c`, tree-sitter returns the `$` of a second variable as plain text."""
    out: list[Part] = []
    for part in parts:
        if out and out[-1] == _DOLLAR and isinstance(part, Literal):
            name = _NAME.match(part.text) if not part.is_quoted else None
            out.pop()
            if name is not None:
                out.append(Variable(name.group()))
                part = Literal(part.text[name.end() :])
        out.append(part)
    return Word(tuple(out))


def _unescape(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _in_background(node: Node) -> Node:
    return replace(node, is_background=True) if isinstance(node, Pipeline) else Pipeline((node,), is_background=True)


def _attach(node: Node, redirects: tuple[Redirect, ...], words: tuple[Word, ...]) -> Node:
    """Add redirects to a command: to the last one of a pipeline, and around a group or loop."""
    if isinstance(node, Simple):
        return replace(node, redirects=(*node.redirects, *redirects), words=(*node.words, *words))
    if isinstance(node, Pipeline) and node.commands:
        return replace(node, commands=(*node.commands[:-1], _attach(node.commands[-1], redirects, words)))
    if isinstance(node, Group):
        return replace(node, redirects=(*node.redirects, *redirects))
    return Group((node,), redirects)
