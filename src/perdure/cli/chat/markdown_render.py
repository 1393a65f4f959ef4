"""Render Markdown for a terminal with rich, which is imported only when there is something to show."""

from __future__ import annotations

import io
import re
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.syntax import Syntax
from rich.text import Text

from perdure.cli.style import safe

_LEAST_WIDTH = 20
# Prose wider than this is hard to read, however wide the window is.
_MOST_WIDTH = 120
# Trailing blanks, also before the escape that ends a colour.
_PADDING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


class _PlainHeading(Heading):
    """Renders a heading left-aligned, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text.plain, style="bold underline" if self.tag == "h1" else "bold")


class _PlainCode(CodeBlock):
    """Renders code in the terminal's own colours, indented by two, so that it can be copied."""

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


def render_markdown(markdown: str, *, width: int, is_color: bool) -> str:
    """Render Markdown as text with terminal escapes, each line ended; "" for blank text."""
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
