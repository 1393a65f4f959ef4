"""What the shell's own commands do to its variables."""

from __future__ import annotations

import re

from perdure.tools.danger.marks import UNKNOWN
from perdure.tools.danger.run import Invocation
from perdure.tools.danger.scope import ShellVariables

_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_READING = ("read", "mapfile", "readarray")
# They change the shell they run in; everything else runs beside it.
BUILTINS = frozenset(
    (
        *_DECLARING,
        *_READING,
        "cd",
        "pushd",
        "popd",
        "unset",
        "set",
        "shift",
        "printf",
        "source",
        ".",
        "eval",
        "alias",
        "trap",
    )
)


def apply_builtin(run: Invocation, scope: ShellVariables) -> None:
    """The scope after the command; nothing for a command that is no builtin."""
    if run.name in _DECLARING:
        for name, sign, value in (a.partition("=") for a in run.args):
            if sign:
                scope.assign(name, [value])
    elif run.name == "unset":
        for o in run.operands:
            scope.forget(o)
    elif run.name == "set" and "--" in run.args:
        scope.arguments = [*(scope.arguments[:1] or ["bash"]), *run.args[run.args.index("--") + 1 :]]
    elif run.name == "shift":
        scope.arguments = [*scope.arguments[:1], *scope.arguments[2:]]
    elif run.name in _READING:
        _read(run, scope)
    elif run.name in ("source", "."):
        scope.is_open = True


def _read(run: Invocation, scope: ShellVariables) -> None:
    names = [o for o in run.operands if re.fullmatch(r"\w+", o)] or ["REPLY"]
    line = (run.stdin if run.stdin is not None else UNKNOWN).strip("\n").split("\n")[0]
    if run.has("-a") or run.name != "read":
        scope.assign(names[-1], line.split(), is_array=True)
        return
    pieces = line.split(None, len(names) - 1)
    for i, name in enumerate(names):
        scope.assign(name, [pieces[i] if i < len(pieces) else ""])
