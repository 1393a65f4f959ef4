"""What a command is called: its program's name, however it is written."""

from __future__ import annotations

import fnmatch
import re

from perdure.tools.danger.budget import Unreadable
from perdure.tools.danger.marks import PROGRAM, UNKNOWN, has_mark
from perdure.tools.danger.run import Invocation
from perdure.tools.danger.syntax import Node, Simple

_MAX_PATTERN_CHARS = 200
# What a pattern in place of a name may stand for.
_DISGUISED = (
    "rm",
    "dd",
    "mkfs",
    "shred",
    "chmod",
    "chown",
    "kill",
    "sh",
    "bash",
    "curl",
    "wget",
    "sudo",
    "reboot",
    "nc",
)


def program_of(typed: str) -> str:
    """The program's name: without its folder, and without what Windows appends."""
    name = typed.rsplit("/", 1)[-1] if not typed.endswith("/") else typed
    return re.sub(r"(?i)\.(?:exe|cmd|bat)\Z", "", name) if len(name) > 4 else name


def matching_names(pattern: str) -> tuple[str, ...]:
    """The programs a pattern in place of a name may stand for; a plain name for itself."""
    if not re.search(r"[*?\[]", pattern):
        return (pattern,)
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise Unreadable
    return tuple(n for n in _DISGUISED if fnmatch.fnmatchcase(n, pattern)) or (pattern,)


def looks_recursive(run: Invocation) -> bool:
    """Whether a program nobody knows is given what `rm -r` is given."""
    if not any(re.fullmatch(r"-\w*[rR]\w*", a) for a in run.args):
        return False
    return any(p.is_wide or p.zone not in ("workspace", "unknown") for p in map(run.place, run.operands))


def is_command_unknown(text: str) -> bool:
    """Whether the unknown text may be the command itself and not only an argument of one that is known."""
    return any(has_mark(line.strip()[:1]) for line in re.split(r"[\n;|&]", text)) or PROGRAM + UNKNOWN in text


def name_of(node: Node) -> str:
    if isinstance(node, Simple) and node.words:
        return program_of(node.words[0].bare)
    return ""
