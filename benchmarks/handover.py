"""A real run that ends in a handoff: `python -m benchmarks.handover` shows it, `--write` puts it into the docs.

Perdure's own agent, with its default tools and settings, works on a small package in a folder of its own until the
conversation has outgrown its window. Commands run, files change, tests fail and pass for real. The assistant's side is
played back from `handover_task`; no summary model answers, so the handoff is written by code alone. Needs git.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.handover_task import FILES, PLAN, REQUESTS
from perdure.app import Agent
from perdure.context.handoff import parse_handoff
from perdure.core.events import CompactionFinished, CompactionStarted, Event
from perdure.core.messages import HANDOFF_FIRST_LINE
from perdure.testing.simulator import Fail, Say, ScriptRequest, Simulator, strict

PAGE = Path(__file__).parents[1] / "docs" / "compaction.md"
# Always the same: tracebacks name it, and the page states how many tokens they are.
FOLDER = Path("/tmp/parcels")
WINDOW = 16_000
# Commits of a fixed date have the same names wherever and whenever they are made.
GIT = {
    "GIT_AUTHOR_NAME": "Mara",
    "GIT_AUTHOR_EMAIL": "mara@parcels.example",
    "GIT_AUTHOR_DATE": "2026-03-02T09:00:00Z",
    "GIT_COMMITTER_NAME": "Mara",
    "GIT_COMMITTER_EMAIL": "mara@parcels.example",
    "GIT_COMMITTER_DATE": "2026-03-02T09:00:00Z",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
_RULE = "─" * 33
# What differs from run to run: when the notes were written.
_WHEN = re.compile(r" on \d{4}-\d\d-\d\d \d\d:\d\d UTC")


@dataclass(frozen=True)
class Run:
    """What came of it: the handoff word for word, and the figures around the compaction."""

    handoff: str
    # Prompts as the service counted them: the last before the compaction, the first after it.
    before_tokens: int
    after_tokens: int
    # Messages of the history that went into the two.
    before_messages: int
    after_messages: int
    head: int
    is_head_whole: bool
    tail: int
    violations: int

    @property
    def covered(self) -> int:
        """How many messages the handoff stands for."""
        parsed = parse_handoff(self.handoff)
        return parsed.message_count if parsed else 0


def run() -> Run:
    """Works through the task; the folder is made for it and removed."""
    with _new_folder() as folder, tempfile.TemporaryDirectory() as home, _inside(folder):
        _set_up(folder)
        with Simulator(strict(), window=WINDOW, script=_playback()) as service:
            return asyncio.run(_worked_through(_agent(Path(home), service), service))


def steady(text: str) -> str:
    """A handoff without what differs from run to run."""
    return _WHEN.sub("", text)


def picture(found: Run) -> str:
    """Before and after, as the page shows it."""
    rows = (
        ("system prompt", "system prompt      (same bytes)"),
        None,
        (
            f"head: the first {found.head} messages",
            "head               (same bytes)" if found.is_head_whole else "head, the longest shortened",
        ),
        None,
        ("", "handoff: 13 sections, a record"),
        (f"middle: {found.covered} messages", f"of all {found.covered} and their address"),
        ("requests, calls, long outputs", None),
        ("", "newest request, word for word"),
        None,
        (f"tail: the last {found.tail} messages", "tail               (same bytes)"),
    )
    before, after = f"before, {found.before_tokens:,} tokens", f"after, {found.after_tokens:,} tokens"
    lines = [f"{before:<42}{after}", f"┌{_RULE}┐      ┌{_RULE}┐"]
    for row in rows:
        if row is None:
            lines.append(f"├{_RULE}┤      ├{_RULE}┤")
        elif row[1] is None:
            lines.append(f"│ {row[0]:<31} │ ───► ├{_RULE}┤")
        else:
            lines.append(f"│ {row[0]:<31} │ {'───►' if row[0] else '    '} │ {row[1]:<31} │")
    return "\n".join((*lines, f"└{_RULE}┘      └{_RULE}┘"))


def written_into(page: str, found: Run) -> str:
    """The page with this run's picture, figures and handoff in their places."""
    page = re.sub(r"```\nbefore, .*?\n```", lambda _: f"```\n{picture(found)}\n```", page, flags=re.DOTALL)
    page = re.sub(r"\d+ messages became \d+", f"{found.before_messages} messages became {found.after_messages}", page)
    return re.sub(r"````markdown\n.*?\n````", lambda _: f"````markdown\n{found.handoff}\n````", page, flags=re.DOTALL)


def _agent(home: Path, service: Simulator) -> Agent:
    return Agent(
        model="played-back",
        provider="custom",
        base_url=service.base_url,
        api_key="none",
        settings={"model": {"context_length": WINDOW}},
        store=home / "perdure.db",
        home=home,
    )


async def _worked_through(agent: Agent, service: Simulator) -> Run:
    heard: list[Event] = []
    calls_before = 0
    for request in REQUESTS:
        async for event in agent.stream(request):
            heard.append(event)
            if isinstance(event, CompactionStarted):
                calls_before = len(service.billed)
    (done,) = [e for e in heard if isinstance(e, CompactionFinished)]
    assert done.outcome == "digest"
    agent.close()
    # A summary was asked for once, and refused: that request is no prompt of the conversation's.
    sent = [r.body["messages"][1:] for r in service.requests if r.body.get("tools")]
    before, after = sent[calls_before - 1], sent[calls_before]
    at = next(i for i, m in enumerate(after) if _text(m).startswith(HANDOFF_FIRST_LINE))
    prompts = [usage.prompt_tokens for usage in service.billed]
    return Run(
        handoff=_text(after[at]),
        before_tokens=prompts[calls_before - 1],
        after_tokens=prompts[calls_before],
        before_messages=len(before),
        after_messages=len(after),
        head=at,
        is_head_whole=before[:at] == after[:at],
        tail=len(after) - at - 1,
        violations=len(service.violations),
    )


def _text(message: dict[str, Any]) -> str:
    """What a message on the wire says first."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else str(content[0].get("text", ""))


def _playback() -> Callable[[ScriptRequest], Say | Fail]:
    """The assistant's next step for every request with tools; a summary, which comes without, is never given."""
    steps: Iterator[Say] = iter(step for turn in PLAN for step in turn)

    def answer(asked: ScriptRequest) -> Say | Fail:
        return (
            next(steps) if asked.body.get("tools") else Fail(status=401, body={"error": {"message": "no such model"}})
        )

    return answer


@contextmanager
def _new_folder() -> Iterator[Path]:
    """The folder, empty. Runs of other checkouts on this machine take turns; what a killed one left is removed."""
    with Path(f"{FOLDER}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        try:
            yield FOLDER
        finally:
            shutil.rmtree(FOLDER)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """The folder as the present one, its shell with this interpreter's `python` and commits of a fixed date."""
    old, environment = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    # Tests print more where they believe themselves watched by nobody; the page must not depend on where it is made.
    for name in [n for n in environment if n in ("CI", "BUILD_NUMBER") or n.startswith("PYTEST_")]:
        del os.environ[name]
    path = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", "")))
    os.environ.update(GIT, PATH=path, PYTHONDONTWRITEBYTECODE="1", PYTEST_ADDOPTS="-p no:cacheprovider", COLUMNS="100")
    # The plug-ins of our own environment take longer to import than the task's tests to run.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        os.chdir(old)
        os.environ.clear()
        os.environ.update(environment)


def _set_up(folder: Path) -> None:
    """The package under version control: the rates as they used to be, then as finance sent them."""
    for name, text in FILES.items():
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    rates = folder / "rates.csv"
    header, *rows = FILES["rates.csv"].splitlines()
    by_weight = sorted(rows, key=lambda row: [int(n) for n in row.split(",")])
    rates.write_text("\n".join((header, *by_weight)) + "\n", encoding="utf-8")
    _git("init", "-q", "-b", "main")
    _git("add", ".")
    _git("commit", "-q", "-m", "Quotes for parcels")
    rates.write_text(FILES["rates.csv"], encoding="utf-8")
    _git("commit", "-q", "-am", "Rates of the second quarter, from finance")


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)


if __name__ == "__main__":
    ended = run()
    print(ended.handoff, picture(ended), sep="\n\n")
    if "--write" in sys.argv:
        PAGE.write_text(written_into(PAGE.read_text(encoding="utf-8"), ended), encoding="utf-8")
