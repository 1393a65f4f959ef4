"""Rules for what uses up the machine: processes without limit, disk space, memory, processors."""

from __future__ import annotations

import re

from perdure.tools.shell_safety.interpreters import SHELLS
from perdure.tools.shell_safety.invocation import Invocation, program_of
from perdure.tools.shell_safety.parse import Group, Loop, Node, Pipeline, Simple, Variable
from perdure.tools.shell_safety.rules.rule import RiskRule
from perdure.tools.shell_safety.types import Danger, word_set

_SIZE = re.compile(r"\+?(\d{1,18})([kKmMgGtTpP]?)(?:i?[bB])?\Z")
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
# Test images and fixtures are smaller.
_HUGE_BYTES = 20 * 1024**3
_ENDLESS_SOURCE = re.compile(r"/dev/(?:zero|full|u?random)\Z")


def calls_twice(node: Node, name: str) -> bool:
    """Match a body in which the function `name` starts itself more than once, or in the background."""
    if isinstance(node, Pipeline):
        calls = sum(program_name(c) == name for c in node.commands)
        return calls > 1 or bool(calls and node.is_background) or any(calls_twice(c, name) for c in node.commands)
    return isinstance(node, Group | Loop) and any(calls_twice(n, name) for n in node.body)


def runs_itself(node: Node) -> bool:
    """Match `$0`, and `$0` as an argument of a shell."""
    words = node.words if isinstance(node, Simple) else ()
    is_shell = program_name(node) in SHELLS
    return any(isinstance(p, Variable) and p.name == "0" for w in (words if is_shell else words[:1]) for p in w.parts)


# Programs that make a loop wait or end, programs that send requests, and programs that make files.
_PAUSES = word_set("sleep wait read inotifywait break exit timeout fswatch return")
_FETCHES = word_set("curl wget http https xh ab")
_MAKES_FILES = word_set("mktemp touch mkdir dd fallocate truncate split cp")


def loop_danger(group: Group) -> Danger | None:
    """Return the danger of an endless loop that only starts processes, or never waits and writes or sends requests."""
    body = group.body[-1] if group.is_endless and group.body else None
    nodes = body.body if isinstance(body, Group) else ()
    if nodes and all(_is_background(n) for n in nodes):
        return Danger("fork-bomb", "an endless loop that starts processes in the background")
    commands = [c for n in nodes for c in _simple_commands(n)]
    names = {program_name(c) for c in commands}
    is_busy = not names.isdisjoint(_FETCHES | _MAKES_FILES)
    is_busy = is_busy or any(r.operator == ">>" for c in commands for r in c.redirects)
    return Danger("exhaustion", "an endless loop that never waits") if is_busy and names.isdisjoint(_PAUSES) else None


def _simple_commands(node: Node) -> list[Simple]:
    if isinstance(node, Pipeline):
        return [c for n in node.commands for c in _simple_commands(n)]
    return [node] if isinstance(node, Simple) else []


def _is_background(node: Node) -> bool:
    return isinstance(node, Pipeline) and node.is_background


def program_name(node: Node) -> str:
    """Return the program of a command as written, empty if that is not known."""
    if isinstance(node, Group) and len(node.body) == 1:
        return program_name(node.body[0])
    return program_of(node.words[0].plain or "") if isinstance(node, Simple) and node.words else ""


def _bytes(text: str) -> int:
    """Return the number of bytes of a size such as `10G`, 0 if it is not a size."""
    match = _SIZE.match(text)
    return int(match[1]) * 1024 ** _UNITS[match[2].lower()] if match else 0


def _allocates_much(run: Invocation) -> bool:
    sizes = run.operands[:1] if run.name in ("mkfile", "xfs_mkfile") else run.all_values_of("-l", "--length")
    return any(_bytes(s) >= _HUGE_BYTES for s in sizes)


def _is_saved(run: Invocation) -> bool:
    return any(not path.startswith("/dev/") for path in run.writes)


def _copies_much(run: Invocation) -> bool:
    """Match `dd` from an endless source into a file, without a limit or with a huge one."""
    settings = dict(a.split("=", 1) for a in run.args if "=" in a)
    target = settings.get("of", "")
    if not _ENDLESS_SOURCE.match(settings.get("if", "")) or target.startswith("/dev/"):
        return False
    if "count" not in settings:
        return bool(target) or _is_saved(run)
    return _bytes(settings.get("bs", "512")) * max(_bytes(settings["count"]), 1) >= _HUGE_BYTES


def _saves_endless(run: Invocation) -> bool:
    """Match `yes > file`, `cat /dev/zero > file`, and a huge `head -c`."""
    sources = (*run.operands, *run.reads)
    is_endless = run.name == "yes" or any(_ENDLESS_SOURCE.match(s) for s in sources)
    # `yes | tee file`, without a program in between that stops.
    is_endless = is_endless or run.upstream[-1:] == ("yes",)
    if run.name == "tail":
        # It keeps the last line in memory, which never ends.
        return any(_ENDLESS_SOURCE.match(s) for s in sources)
    if run.name == "head":
        size = run.value_of("-c", "--bytes")
        return is_endless and size is not None and _bytes(size) >= _HUGE_BYTES
    return is_endless and (_is_saved(run) or (run.name == "tee" and bool(run.operands)))


RULES: tuple[RiskRule, ...] = (
    RiskRule("exhaustion", "fallocate mkfile xfs_mkfile", _allocates_much, "fallocate -l 900G big.img"),
    RiskRule("exhaustion", "dd", _copies_much, "dd if=/dev/zero of=big.img bs=1M"),
    RiskRule("exhaustion", "yes cat head tail tee pv", _saves_endless, "yes > fill.txt"),
)
