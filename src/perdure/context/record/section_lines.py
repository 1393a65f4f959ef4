"""Wording that the sections of a handoff share: addresses, whole sentences, names of files, test runs."""

from __future__ import annotations

import os.path
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from perdure.context.record.calls.shell import short_command
from perdure.context.record.task import LastTestRun, TaskState
from perdure.context.text import clip, has_wide, sentences, size_of, tidy

_COMMAND_CHARS = 100
_FAILURE_CHARS = 120
_FILTERED = re.compile(r"\| *(?:grep|egrep|rg|head|tail|awk|sed)\b")
_ROOT_SHARE = 0.7
# Paths with fewer folders in common are of different trees.
_LEAST_SHARED_PARTS = 3
_GAP = " … "


def address(*seqs: int) -> str:
    """Return the address of messages in the log, ` (m:12,14)`; "" where their positions are not known."""
    numbers = list(dict.fromkeys(s for s in seqs if s >= 0))
    return f" (m:{','.join(map(str, numbers))})" if numbers else ""


def whole_sentences(
    text: str,
    room: int,
    *,
    asks: Callable[[str], bool] | None = None,
    skips: Callable[[str], bool] | None = None,
) -> str:
    """Return the sentences of a text that fit: those that ask, else the first; … marks what is left out.

    A sentence that introduces the next one is excerpt with it or not at all. Of one that is too long itself, the first
    clauses remain.
    """
    pieces = [tidy(s) for s in sentences(text)]
    indexes = [n for n, s in enumerate(pieces) if skips is None or not skips(s)]
    if len(indexes) == len(pieces) and len(plain := tidy(text)) <= room:
        return plain
    requests = [n for n in indexes if asks is not None and asks(pieces[n])]
    is_short = sum(len(pieces[n]) + len(_GAP) for n in indexes) <= room
    # A message asks at its beginning or at its end.
    order = indexes if is_short or not requests else dict.fromkeys((requests[0], requests[-1], *requests))
    choice: list[int] = []
    for n in order:
        if len(pieces[n]) + len(_GAP) <= room:
            room -= len(pieces[n]) + len(_GAP)
            choice.append(n)
        elif not requests:
            break
    choice = sorted(n for n in choice if n + 1 in choice or not pieces[n].endswith((":", "：")))
    if not choice:
        return clip(pieces[next(iter(order))], room) if indexes else ""
    excerpt = pieces[choice[0]]
    for before, n in pairwise(choice):
        excerpt += (" " if n == before + 1 else _GAP) + pieces[n]
    return excerpt if choice[-1] == len(pieces) - 1 else f"{excerpt} …"


def fit_lines(lines: Sequence[str], room: int, *, newest_last: bool = False) -> str:
    """Return the first whole lines that fit, at least one."""
    chosen: list[str] = []
    for line in lines:
        if (room := room - (size_of(line) if has_wide(line) else len(line)) - 1) < 0 and chosen:
            break
        chosen.append(line)
    return "\n".join(reversed(chosen) if newest_last else chosen)


def join_names(names: Sequence[str], room: int) -> str:
    """List the names that fit, and the number of the others."""
    listed: list[str] = []
    for name in names:
        # A single long name is told whole: "and 1 more" alone says nothing.
        if (room := room - len(name) - 2) < 0 and listed:
            break
        listed.append(name)
    more = len(names) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")


def common_folder(paths: Iterable[str]) -> str:
    """Return the deepest folder that most paths share, at least three parts if absolute, two if not; else ""."""
    folders = [os.path.dirname(p) for p in paths]
    shared: Counter[str] = Counter()
    for folder in folders:
        parts = folder.split("/")
        shared.update("/".join(parts[:n]) for n in range(4 if folder.startswith("/") else 2, len(parts) + 1))
    most = [root for root, n in shared.items() if n >= 2 and n >= _ROOT_SHARE * len(folders)]
    return max(most, key=len, default="")


def relative_to(path: str, root: str) -> str:
    """Return a path as seen from the folder that most files share; one of another tree stays whole."""
    if not root or path.startswith(f"{root}/"):
        return path.removeprefix(f"{root}/") if root else path
    if not (path.startswith("/") and root.startswith("/")) or ".." in path.split("/"):
        return path
    shared = os.path.commonpath((path, root))
    return posixpath.relpath(path, root) if shared.count("/") >= _LEAST_SHARED_PARTS else path


def push_status(state: TaskState) -> str:
    """Whether the newest commit is pushed, in words."""
    if state.commits:
        return "pushed" if state.is_pushed and state.commits[-1].is_pushed else "not pushed"
    return "the last push succeeded" if state.is_pushed else "the last push was rejected"


def describe_tests(report: LastTestRun, room: int | None = None, *, has_failures: bool = True) -> str:
    """Tell the totals of a run and its first failures, as many as there is room for, at least one."""
    run = report.run
    # Of a runner that prints no total only what `grep` and `head` let through is counted.
    is_filtered = run.passed is None and bool(run.failed) and _FILTERED.search(report.target) is not None
    counts = [f"{n} {word}" for n, word in ((run.passed, "passed"), (run.failed, "failed")) if n is not None]
    counts = [f"at least {run.failed} failed (of filtered output)"] if is_filtered else counts
    totals = ", ".join(counts) if run.passed is not None or run.failed else "succeeded" if report.is_ok else "failed"
    named = [clip(failure, _FAILURE_CHARS) for failure in run.failures[:4]] if has_failures else []
    while len(named) > 1 and room is not None and sum(map(len, named)) > room:
        named.pop()
    failures = f"; failing: {'; '.join(named)}" if named else ""
    failures += "; written first, to fail until the change is made" if report.is_expected else ""
    command = f"`{short_command(report.target, _COMMAND_CHARS)}` → " if report.target else ""
    return f"{command}{totals}{failures}"
