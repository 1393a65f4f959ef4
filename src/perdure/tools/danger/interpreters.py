"""Shells and interpreters: where their program text comes from."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from perdure.tools.danger.found import Code
from perdure.tools.danger.marks import PROGRAM
from perdure.tools.danger.run import Invocation

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh"})

_LANGUAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "python": ("python", ("-c",)),
    "perl": ("perl", ("-e", "-E")),
    "ruby": ("ruby", ("-e",)),
    "node": ("node", ("-e", "--eval", "-p", "--print")),
    "nodejs": ("node", ("-e", "--eval", "-p", "--print")),
    "bun": ("node", ("-e", "--eval")),
    "php": ("php", ("-r",)),
    "lua": ("lua", ("-e",)),
    "osascript": ("applescript", ("-e",)),
    "Rscript": ("r", ("-e",)),
    "tclsh": ("tcl", ()),
    "emacs": ("lisp", ("--eval",)),
}


def language_of(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The language a program reads, and the options that take code."""
    plain = re.sub(r"[\d.]+\Z", "", name)
    return _LANGUAGES.get(name) or _LANGUAGES.get(plain) or (_LANGUAGES["python"] if plain in ("pypy", "py") else None)


def runs_stdin(run: Invocation) -> bool:
    """Whether a shell or interpreter takes its program from standard input."""
    return not run.operands or run.operands[0] in ("-", "/dev/stdin", "/dev/fd/0") or run.has("-s")


def shell_script(run: Invocation) -> tuple[str, tuple[str, ...]] | None:
    """The text of `sh -c`, and the arguments behind it; None without -c."""
    has_c, at = False, 0
    while at < len(run.args) and run.args[at][:1] in ("-", "+") and run.args[at] != "--":
        a = run.args[at]
        has_c = has_c or (not a.startswith("--") and "c" in a[1:]) or a == "--command"
        at += 2 if a in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
    at += at < len(run.args) and run.args[at] == "--"
    if not has_c or at >= len(run.args):
        return None
    return run.args[at], run.args[at + 1 :]


def code_of(run: Invocation) -> Iterator[Code]:
    """Code handed to an interpreter on its command line or through its input."""
    if run.name in ("awk", "gawk", "mawk", "nawk"):
        if run.operands and not run.has("-f"):
            yield Code("awk", run.operands[0] if run.value_of("-v") is None else " ".join(run.operands))
        return
    if run.name == "deno" and run.operands[:1] == ("eval",):
        yield Code("node", " ".join(run.operands[1:]))
        return
    known = language_of(posixpath.basename(run.name))
    if known is None:
        return
    language, options = known
    given = False
    for i, a in enumerate(run.args[:-1]):
        is_cluster = any(
            len(o) == 2 and re.fullmatch(rf"-[A-Za-z0-9]*{o[1]}", a) and not a.startswith("--") for o in options
        )
        if a in options or is_cluster:
            given = True
            yield Code(language, run.args[i + 1])
    for a in run.args:
        if found := next(
            (o for o in options if len(o) == 2 and a.startswith(o) and len(a) > 2 and not a[1:].isalnum()), None
        ):
            given = True
            yield Code(language, a[len(found) :])
    if not given and run.stdin and runs_stdin(run) and run.stdin != PROGRAM:
        yield Code(language, run.stdin)
