"""Records docs/demo.svg: `perdure demo` in a real terminal, `python -m benchmarks.demo`.

The picture has the turns in `SHOWN`; where others are left out, a row gives their number. Needs tmux.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS, ROWS = 104, 46
RUN_LIMIT_S = 180.0
# A spilled output, a refused command, two of the three compactions, and a question about the first message.
SHOWN = (2, 4, 7, 10, 11)
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def record(picture: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.tmux import terminal

    with tempfile.TemporaryDirectory(prefix="perdure-picture-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        with terminal(home, columns=COLUMNS, rows=ROWS, folder=Path(folder)) as term:
            term.run("demo", "--folder", str(Path(folder) / "demo"))
            term.see("Remove it:", "[exit status] 0", within_s=RUN_LIMIT_S)
            screen = term.colored
    picture.write_text(as_svg(select_rows(screen.split("\n"))), encoding="utf-8")


def select_rows(rows: list[str]) -> list[str]:
    """Return the introduction, the turns of `SHOWN`, the figures and the quiz."""
    plain = [_STYLE.sub("", row) for row in rows]
    starts = [i for i, row in enumerate(plain) if row.startswith("> ") and not plain[i - 1].strip()]
    figures = next(i for i, row in enumerate(plain) if re.match(r"\d+ turns, \d+ compactions", row))
    end = next(i for i, row in enumerate(plain) if row.startswith("Open it;"))
    bounds = [*starts, figures]
    selected, previous = rows[: starts[0]], -1
    for turn in SHOWN:
        if skipped := turn - previous - 1:
            selected += [f"\x1b[2m⋮ {skipped} more turn{'s' if skipped > 1 else ''}\x1b[0m", ""]
        selected += rows[bounds[turn] : bounds[turn + 1]]
        previous = turn
    return ["$ perdure demo", *selected, *rows[figures:end]]


def as_svg(rows: list[str]) -> str:
    """The rows with their colours, as one picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    # The folder of this recording is of no interest, and would differ every time.
    text = re.sub(r"/tmp/perdure-picture-[^/\s]+/demo", "/tmp/perdure-demo", "\n".join(rows).rstrip())
    console.print(Text.from_ansi(text), soft_wrap=True)
    return console.export_svg(title="perdure demo", theme=MONOKAI, unique_id="perdure")


if __name__ == "__main__":
    record(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/demo.svg"))
