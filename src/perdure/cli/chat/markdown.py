"""Streamed Markdown in blocks: those that are finished are printed for good, only the last one is still drawn anew."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.syntax import Syntax
from rich.text import Text

from perdure.cli.style import safe

# A fence or list that grows beyond this is printed in pieces, so that redrawing the rest stays cheap.
_MANY_LINES = 30
_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})(.*)$")
_ITEM = re.compile(r"^(?:[-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r"^#{1,6}\s")


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A finished block: the exact text it came from, and Markdown that shows it on its own."""

    source: str
    markdown: str


class Blocks:
    """Takes text as it comes; gives blocks as they are finished. Joined, their sources are the text."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        # The line that opened a fence, while one is open; "" outside.
        self._opening = ""
        # Whether the lines at hand go on a fence whose beginning was already given out.
        self._is_rest = False

    def feed(self, text: str) -> list[MarkdownBlock]:
        """The blocks that this piece of text finished."""
        *whole, self._partial = (self._partial + text).split("\n")
        done: list[MarkdownBlock] = []
        for line in whole:
            self._take(line + "\n", done)
        return done

    @property
    def live(self) -> str:
        """Markdown of the block that is still being written."""
        return self._standalone("".join(self._lines) + self._partial)

    def end(self) -> list[MarkdownBlock]:
        """What is left when no more text comes."""
        done: list[MarkdownBlock] = []
        if self._partial:
            self._take(self._partial, done)
            self._partial = ""
        self._finish(done)
        self._opening = ""
        return done

    def _take(self, line: str, done: list[MarkdownBlock]) -> None:
        fence = _FENCE.match(line.rstrip("\n"))
        if self._opening:
            self._lines.append(line)
            if fence and _closes(self._opening, fence):
                is_nested = self._opening[:1].isspace()
                if not is_nested:
                    self._finish(done)
                self._opening = ""
            elif len(self._lines) >= _MANY_LINES and not self._opening[:1].isspace():
                self._finish(done)
                self._is_rest = True
            return
        if self._lines and self._is_apart(line):
            self._finish(done)
        self._lines.append(line)
        if fence:
            self._opening = line.rstrip("\n")
        elif _HEADING.match(line):
            self._finish(done)

    def _is_apart(self, line: str) -> bool:
        """Whether `line` begins a block of its own behind the lines at hand."""
        if not line.strip():
            return False
        was_blank = not self._lines[-1].strip()
        if _HEADING.match(line) or (_FENCE.match(line.rstrip("\n")) and not line[:1].isspace()):
            return True
        if was_blank:
            return not (line[:1].isspace() and any(_ITEM.match(earlier) for earlier in self._lines))
        return bool(_ITEM.match(line)) and len(self._lines) >= _MANY_LINES

    def _finish(self, done: list[MarkdownBlock]) -> None:
        source = "".join(self._lines)
        if source:
            done.append(MarkdownBlock(source, self._standalone(source)))
        self._lines, self._is_rest = [], False

    def _standalone(self, source: str) -> str:
        """The source as standalone Markdown: open fences are closed, continued ones reopened."""
        if not self._opening:
            return source
        opening = f"{self._opening}\n" if self._is_rest else ""
        mark = _FENCE.match(self._opening)
        is_closed = mark is not None and _is_closed(source, self._opening, is_rest=self._is_rest)
        closing = "" if mark is None or is_closed else f"{_newline(source)}{mark[1]}{mark[2]}\n"
        return f"{opening}{source}{closing}"


def _closes(opening: str, fence: re.Match[str]) -> bool:
    fence_start = _FENCE.match(opening)
    if fence_start is None or fence[3].strip():
        return False
    return fence[2][0] == fence_start[2][0] and len(fence[2]) >= len(fence_start[2])


def _is_closed(source: str, opening: str, *, is_rest: bool) -> bool:
    lines = source.rstrip("\n").split("\n")
    last = _FENCE.match(lines[-1])
    return last is not None and _closes(opening, last) and (is_rest or len(lines) > 1)


def _newline(source: str) -> str:
    return "" if not source or source.endswith("\n") else "\n"


_LEAST_WIDTH = 20
# Prose wider than this is hard to read, however wide the window is.
_MOST_WIDTH = 120
# Trailing blanks, also before the escape that ends a colour.
_PADDING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


class _PlainHeading(Heading):
    """A heading on the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text.plain, style="bold underline" if self.tag == "h1" else "bold")


class _PlainCode(CodeBlock):
    """Code in the terminal's own colours, set in by two, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        yield Syntax(
            code, self.lexer_name, theme="ansi_dark", word_wrap=True, padding=(0, 2), background_color="default"
        )


class _MarkdownPage(Markdown):
    elements: ClassVar[dict[str, type]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
        "fence": _PlainCode,
        "code_block": _PlainCode,
    }


def painted(markdown: str, *, width: int, is_color: bool) -> str:
    """The text with its escapes, each line ended; blank text gives none."""
    if not markdown.strip():
        return ""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(_LEAST_WIDTH, min(width, _MOST_WIDTH)),
        force_terminal=True,
        color_system="standard" if is_color else None,
        no_color=not is_color,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
    console.print(_MarkdownPage(safe(markdown), code_theme="ansi_dark", hyperlinks=False))
    return _PADDING.sub(r"\1", out.getvalue()).strip("\n") + "\n"
