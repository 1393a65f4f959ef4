"""Asks the person before something dangerous runs, and remembers what they answered.

What is asked about: shell commands that `danger` finds something in, files written outside the workspace, credentials
that are read, and tools that claim to be dangerous. An answer holds for a *kind* of danger ("git-push", "database",
"tool:deploy"), not for one command: "once" for this call, "session" for as long as this guard lives, "always" for the
user, kept in state. A few kinds are so far-reaching that they are asked every time (`Kind.is_lasting`). Where nobody
can answer, the call is denied, and the model reads why and what to do instead.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.display import escape_invisible
from perdure.core.errors import ToolError
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Approver, KeyValue, Refusal
from perdure.tools.builtin.terminal import ShellState
from perdure.tools.runtime import ToolScope
from perdure.tools.shell_safety.paths import PathZones
from perdure.tools.shell_safety.types import KINDS, Danger, has_mark
from perdure.tools.tool import Tool
from perdure.tools.workspace import Workspace

# A longer action is shown without its middle: nobody reads a megabyte before answering.
_SHOWN_CHARS = 20_000
_SHOWN_END_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class ApprovalItem:
    """One thing to ask about; `key` is what an answer is remembered under."""

    key: str
    kind: str
    what: str

    @property
    def why(self) -> str:
        return KINDS[self.kind].why


class ApprovalGuard:
    """A Guard that asks. Without an approver everything dangerous is denied."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        home: Path,
        approver: Approver | None = None,
        remembered: KeyValue | None = None,
        shell_state: Callable[[str], ShellState] | None = None,
    ) -> None:
        self._workspace = workspace
        self._root = workspace.root.resolve()
        self._home = home
        self._approver = approver
        self._remembered = remembered
        self._shell_state = shell_state
        self._session: dict[str, set[str]] = {}
        # One question at a time: a person answers one, and an answer may settle the next.
        self._asking = asyncio.Lock()

    async def check(self, tool: Tool, arguments: Mapping[str, Any], scope: ToolScope) -> None:
        # In a thread: a command is foreign text, and paths are looked up on the disk.
        questions = await asyncio.to_thread(lambda: list(self._questions(tool, arguments, scope)))
        if not questions:
            return
        async with self._asking:
            always = await asyncio.to_thread(self._kept, scope.user_key)
            allowed = always | self._session.get(scope.user_key, set())
            open_questions = [q for q in questions if not (KINDS[q.kind].is_lasting and q.key in allowed)]
            if not open_questions:
                return
            answer = await self._ask(tool, arguments, open_questions)
            if isinstance(answer, Refusal) or answer not in ("once", "session", "always"):
                words = answer.words if isinstance(answer, Refusal) else ""
                raise ToolError(_denial(tool, open_questions, is_person=self._approver is not None, words=words))
            await self._remember(answer, open_questions, scope.user_key)

    def _questions(self, tool: Tool, arguments: Mapping[str, Any], scope: ToolScope) -> Iterator[ApprovalItem]:
        if tool.is_dangerous:
            yield ApprovalItem(f"tool:{tool.name}", "tool", tool.name)
        if tool.command_parameter is not None:
            command = str(arguments.get(tool.command_parameter, ""))
            yield from (ApprovalItem(d.kind, d.kind, d.what) for d in self._dangers(command, scope))
        if tool.written_path_parameter is not None:
            yield from self._writes(str(arguments.get(tool.written_path_parameter, "")))
        if tool.read_path_parameter is not None:
            yield from self._reads(str(arguments.get(tool.read_path_parameter, "")))

    def _dangers(self, command: str, scope: ToolScope) -> tuple[Danger, ...]:
        # The shell parser is imported with the first command, in this thread.
        from perdure.tools.shell_safety.analyzer import Surroundings, find_dangers

        key = scope.conversation_id or scope.task_id
        state = self._shell_state(key) if self._shell_state is not None else None
        where = Surroundings(
            workspace=self._root,
            folder=state.folder if state is not None else self._root,
            home=self._home,
            environment=state.environment if state is not None else None,
            follow_links=_LinkReader(),
        )
        return find_dangers(command, where)

    def _writes(self, path: str) -> Iterator[ApprovalItem]:
        target = self._workspace.resolve(path)
        zone = PathZones.at(self._root, target.parent, self._home).place(target.as_posix()).zone
        kind = {"system": "system-files", "startup": "startup-files", "device": "disk", "git": "git-internals"}.get(
            zone
        )
        if kind is None and not self._workspace.contains(target):
            kind = "write-outside"
        if kind is not None:
            yield ApprovalItem(kind, kind, str(target))

    def _reads(self, path: str) -> Iterator[ApprovalItem]:
        """The credentials that a shell command may not show are no less secret to a tool that reads files."""
        if not path.strip() or path.startswith("output:"):
            return
        target = self._workspace.resolve(path)
        places = PathZones.at(self._root, self._root, self._home)
        if places.holds_secret(target.as_posix()) or places.holds_secret(path):
            yield ApprovalItem("credentials", "credentials", str(target))

    async def _ask(
        self, tool: Tool, arguments: Mapping[str, Any], questions: list[ApprovalItem]
    ) -> ApprovalAnswer | Refusal:
        if self._approver is None:
            return "no"
        request = ApprovalRequest(
            action=_action(tool, arguments),
            reason=escape_invisible("; ".join(f"{q.why}: {q.what}" for q in questions)),
            covers=_covers(questions),
            dangerous=tuple(escape_invisible(q.what) for q in questions),
        )
        return await self._approver.approve(request)

    async def _remember(self, answer: ApprovalAnswer, questions: list[ApprovalItem], user_key: str) -> None:
        keys = {q.key for q in questions if KINDS[q.kind].is_lasting}
        if answer == "session":
            self._session.setdefault(user_key, set()).update(keys)
        elif answer == "always":
            self._session.setdefault(user_key, set()).update(keys)
            await asyncio.to_thread(self._keep, user_key, keys)

    def _kept(self, user_key: str) -> set[str]:
        known = self._remembered.get(user_key) if self._remembered is not None else None
        return {k for k in known if isinstance(k, str)} if isinstance(known, list) else set()

    def _keep(self, user_key: str, keys: set[str]) -> None:
        if self._remembered is not None:
            self._remembered.set(user_key, sorted(self._kept(user_key) | keys))


class _LinkReader:
    """Follows symbolic links, for so many paths of one command: each lookup touches the disk."""

    def __init__(self, limit: int = 200) -> None:
        self._left = limit

    def __call__(self, path: str) -> str:
        if self._left <= 0 or has_mark(path):
            return path
        self._left -= 1
        try:
            return os.path.realpath(path)
        except (OSError, ValueError):
            return path


def _action(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """What the person sees: the command itself, or the tool with its arguments."""
    if tool.command_parameter is not None:
        text = str(arguments.get(tool.command_parameter, ""))
    else:
        text = f"{tool.name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
    if len(text) > _SHOWN_CHARS:
        left_out = len(text) - _SHOWN_CHARS
        start = text[: _SHOWN_CHARS - _SHOWN_END_CHARS]
        text = f"{start}\n[… {left_out:,} characters are not shown here …]\n{text[-_SHOWN_END_CHARS:]}"
    return escape_invisible(text)


def _covers(questions: list[ApprovalItem]) -> str:
    """What "session" and "always" would allow from now on, in a sentence."""
    kinds = list(dict.fromkeys(q.key for q in questions if KINDS[q.kind].is_lasting))
    if not kinds:
        return "This is asked every time: “session” and “always” allow it this once only."
    rest = "" if all(KINDS[q.kind].is_lasting for q in questions) else " The rest is asked every time."
    named = " and ".join(kinds)
    return (
        f"“always” allows everything of the kind {named}, in every folder and conversation, until revoked; "
        f"“session” until the program ends.{rest}"
    )


def _denial(tool: Tool, questions: list[ApprovalItem], *, is_person: bool, words: str = "") -> str:
    who = "the person said no" if is_person else "nobody is here to allow it"
    what = "; ".join(f"{q.why} ({q.what})" for q in questions)
    if words:
        return f"{tool.name} was not run, the person said no: “{words}”. It was asked about because: {what}"
    instead = " ".join(dict.fromkeys(KINDS[q.kind].instead for q in questions))
    return f"{tool.name} was not run, {who}: {what}. Do not try it in another form. {instead}"
