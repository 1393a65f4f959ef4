"""Runs `perdure` as a user does: an empty home, and where it matters a process and a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import time
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from perdure.cli.main import cli
from support.forked import fork, run_forked

CTRL_C = "\x03"
PATIENCE_S = 60


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    err: str = ""


def perdure(home: Path, *arguments: str, **environ: str) -> Run:
    """One command with `PERDURE_HOME` at `home`, in this process: quick, and anything but a plain error is raised."""
    strangers = dict.fromkeys(
        name for name in os.environ if name.startswith("PERDURE_") or name in ("VISUAL", "EDITOR")
    )
    given = {**strangers, "HOME": str(home.parent), "PERDURE_HOME": str(home), **environ}
    done = CliRunner(env=given).invoke(cli, arguments, prog_name="perdure")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Run(done.exit_code, done.stdout, done.stderr)


def perdure_process(home: Path, *arguments: str, **environ: str) -> Run:
    """The same as a process of its own, with nothing else of this machine's environment but PATH."""
    given = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PERDURE_HOME": str(home), **environ}
    done = run_forked(["-m", "perdure", *arguments], env=given, cwd=Path.cwd(), timeout=PATIENCE_S)
    return Run(done.returncode, done.stdout, done.stderr)


def perdure_in_terminal(
    home: Path, *arguments: str, typed: str, prompt: str, then: tuple[str, str] | None = None
) -> Run:
    """The same in a pseudo-terminal: `typed` is typed once `prompt` has appeared; `then` is another such pair."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PERDURE_HOME": str(home), "TERM": "dumb"}
    terminal, theirs = pty.openpty()
    process = fork(["-m", "perdure", *arguments], env=environ, cwd=Path.cwd(), terminal=theirs)
    os.close(theirs)
    shown, is_typed = b"", False
    give_up = time.monotonic() + PATIENCE_S
    while True:
        if not select.select([terminal], [], [], 1.0)[0]:
            if time.monotonic() > give_up:
                process.kill()
                break
            # A Ctrl-C just before the process waits for input may pass unseen; a person presses it again, too.
            if is_typed and typed == CTRL_C:
                os.write(terminal, typed.encode())
            continue
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how a pseudo-terminal says that the other side is gone
            break
        if not piece:
            break
        shown += piece
        if not is_typed and prompt.encode() in shown:
            os.write(terminal, typed.encode())
            is_typed = True
        elif is_typed and then is not None and then[0].encode() in shown:
            os.write(terminal, then[1].encode())
            then = None
    os.close(terminal)
    return Run(process.wait(PATIENCE_S), shown.decode().replace("\r\n", "\n"))
