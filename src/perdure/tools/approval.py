"""Ask the user before a dangerous tool call runs, and store the answers.

Approval is needed for shell commands in which `shell_safety` detects a risk, files written outside the workspace,
credentials read, and tools marked dangerous. An answer applies to a *kind* of risk ("git-push", "database",
"tool:deploy"), not to one command: "once" for this call, "session" for the lifetime of the guard, "always" stored for
the user. A few far-reaching kinds are asked about every time. Without an approver the call is denied, and
the model reads why and what to do instead. Before any of this, the permission mode and rules are held against the call
(`tools.permissions`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.core.display import edit_lines, escape_invisible
from perdure.core.errors import ToolError
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Approver, KeyValue, Refusal
from perdure.core.visibility import AnyUser
from perdure.tools.builtin.files import patch_diff
from perdure.tools.builtin.terminal import ShellState
from perdure.tools.call_targets import read_call_targets
from perdure.tools.permissions import CallProfile, Effect, Permissions, suggest_rules
from perdure.tools.runtime import ToolScope
from perdure.tools.shell_safety.paths import PathZones
from perdure.tools.shell_safety.types import KINDS, Unreadable, has_taint, strip_taints
from perdure.tools.standing_approvals import approved_kinds
from perdure.tools.tool import Tool
from perdure.tools.workspace import Workspace, write_diff

if TYPE_CHECKING:
    from perdure.tools.shell_safety.analyzer import CommandAnalysis

_PLAN_MODE = (
    "plan mode is on, in which nothing is changed: files are only read, and only commands that change nothing run."
    " Finish your plan and present it; the user decides when to leave plan mode."
)
# Longer actions are displayed without their middle.
_MAX_ACTION_CHARS = 20_000
_ACTION_END_CHARS = 6_000
# Longer dangerous parts are not searched for in the action.
_MAX_REVOKED_CHARS = 100
_MAX_LOCATED_CHARS = 500
# More files or commands of one kind of risk are counted in the question, not named.
_MAX_NAMED_ITEMS = 50


@dataclass(frozen=True, slots=True)
class ApprovalItem:
    """One risk of a call that the user must approve; the answer is stored under `key`."""

    key: str
    kind: str
    what: str
    reason: str = ""

    @property
    def why(self) -> str:
        return self.reason or KINDS[self.kind].why


@dataclass(frozen=True, slots=True)
class ExaminedAction:
    """One action of a call (a command, or a path written or read): what the rules decide by, and its risks."""

    profile: CallProfile
    risks: tuple[ApprovalItem, ...]


class ApprovalGuard:
    """Decides whether a tool call may run (the Guard port): by permission rules, stored approvals, else by asking.

    Without an approver every dangerous call is denied.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        home: Path,
        approver: Approver | None = None,
        approvals: KeyValue | None = None,
        shell_state: Callable[[str], ShellState] | None = None,
        permissions: Permissions | None = None,
    ) -> None:
        self._workspace = workspace
        self._root = workspace.root.resolve()
        self._home = home
        self._approver = approver
        self._approvals = approvals
        self._shell_state = shell_state
        self.permissions = permissions or Permissions()
        self._session: dict[AnyUser, set[str]] = {}
        # One prompt at a time: an answer may settle the next request as well.
        self._prompt_lock = asyncio.Lock()
        # The ids of the calls that wait for an answer.
        self._waiting: set[str] = set()

    async def check(self, tool: Tool, arguments: Mapping[str, Any], scope: ToolScope) -> None:
        # In a thread: commands are untrusted text, and paths are resolved on disk.
        actions = await asyncio.to_thread(self._examine, tool, arguments, scope)
        # All of them first: a rule that forbids one of them forbids the call.
        judged = [(action.profile, self._apply_permissions(tool, action)) for action in actions]
        items = _merge_items(item for _, needed in judged for item in needed)
        if not items:
            return
        async with self._queue(scope.call_id):
            always = await asyncio.to_thread(self._load_always, scope.user)
            allowed = always | self._session.get(scope.user, set())
            pending = [item for item in items if not (KINDS[item.kind].is_lasting and item.key in allowed)]
            if not pending:
                return
            answer = await self._ask(tool, arguments, pending, scope)
            if isinstance(answer, Refusal) or answer not in ("once", "session", "always"):
                words = answer.words if isinstance(answer, Refusal) else ""
                if self._approver is None:
                    advance = _describe_advance([profile for profile, needed in judged if needed], pending)
                    raise ToolError(f"{_denial_message(tool, pending, UNATTENDED)} {advance}")
                raise ToolError(_denial_message(tool, pending, USER_REFUSED, words=words))
            await self._store_answer(answer, pending, scope.user)

    @asynccontextmanager
    async def _queue(self, call_id: str) -> AsyncIterator[None]:
        """Wait until no other question is open, and keep others waiting meanwhile."""
        self._waiting.add(call_id)
        try:
            async with self._prompt_lock:
                yield
        finally:
            self._waiting.discard(call_id)

    def is_waiting(self, call_id: str) -> bool:
        """Whether a call waits for an answer, to its own question or first to that of another call."""
        return call_id in self._waiting

    def granted_kinds(self, user: AnyUser) -> tuple[Sequence[str], Sequence[str]]:
        """Return the kinds of risk that a user allowed with "always", and those allowed until the program ends."""
        return sorted(self._load_always(user)), sorted(self._session.get(user, ()))

    def _apply_permissions(self, tool: Tool, action: ExaminedAction) -> list[ApprovalItem]:
        """Return the risks of an action that still have to be asked about.

        Raises ToolError if a rule or the mode forbids it.
        """
        facts, risks = action.profile, list(action.risks)
        verdict, rule = self.permissions.find_rule(facts) or (None, None)
        if verdict == "deny" and rule is not None:
            why = f"the rule “{rule.text}” ({rule.origin}) forbids it"
            raise ToolError(f"{tool.name} was not run: {why}. Do not try it in another form.")
        mode = self.permissions.mode
        if mode == "plan" and facts.effect != "none":
            raise ToolError(f"{tool.name} was not run: {_PLAN_MODE}")
        if verdict == "ask" and rule is not None:
            item = ApprovalItem(f"rule:{rule.text}", "ask-rule", rule.text, f"the rule in {rule.origin} asks for it")
            return [item] if mode == "all" else [*risks, item]
        if mode == "all":
            return []
        if verdict == "allow":
            return [item for item in risks if not KINDS[item.kind].is_lasting]
        return risks or self._asked_by_mode(tool, facts)

    def _asked_by_mode(self, tool: Tool, facts: CallProfile) -> list[ApprovalItem]:
        if self.permissions.mode != "ask" or facts.effect == "none":
            return []
        target = facts.targets[0] if facts.targets else tool.name
        if facts.effect == "edit":
            return [ApprovalItem("edit-file", "edit-file", target)]
        if facts.effect == "run":
            return [ApprovalItem(f"command:{target}", "run-command", target)]
        return [ApprovalItem(f"tool:{tool.name}", "tool", tool.name, KINDS["run-command"].why)]

    def _examine(self, tool: Tool, arguments: Mapping[str, Any], scope: ToolScope) -> list[ExaminedAction]:
        """Return every action of the call, with its risks; at least one. Blocks: for a worker thread.

        Raises ToolError for an argument that cannot be judged.
        """
        targets = read_call_targets(tool, arguments)
        base = [ApprovalItem(f"tool:{tool.name}", "tool", tool.name)] if tool.is_dangerous else []
        is_harmless = tool.is_read_only or tool.is_internal
        actions = []
        for command in targets.commands:
            analysis = self._analysis(command, scope)
            actions.append(ExaminedAction(_command_facts(tool, command, analysis), (*base, *_command_risks(analysis))))
        for command in targets.possible_commands:
            analysis = self._analysis(command, scope)
            # Text that is no command has no risk, but a rule may name it.
            risks = [risk for risk in _command_risks(analysis) if risk.kind not in ("unknown-program", "unreadable")]
            profile = _command_facts(tool, command, analysis)
            profile = profile if risks else replace(profile, effect="none", commands=None)
            actions.append(ExaminedAction(profile, tuple(risks)))
        for path in targets.written_paths:
            actions.append(ExaminedAction(self._path_facts(tool, path, "edit"), (*base, *self._writes(path))))
        # A command or a written file is what the call changes; a file that is only read is not.
        reading: Effect = "none" if is_harmless or actions else "other"
        for path in targets.read_paths:
            actions.append(ExaminedAction(self._path_facts(tool, path, reading), (*base, *self._reads(path))))
        if not actions:
            texts = tuple(value for value in arguments.values() if isinstance(value, str))
            profile = CallProfile(tool.name, "none" if is_harmless else "other", texts)
            actions.append(ExaminedAction(profile, tuple(base)))
        return actions

    def _path_facts(self, tool: Tool, path: str, effect: Effect) -> CallProfile:
        resolved = self._workspace.resolve(path)
        return CallProfile(tool.name, effect, (self._workspace.display_path(resolved), str(resolved)))

    def _analysis(self, command: str, scope: ToolScope) -> CommandAnalysis:
        # The shell parser is imported with the first command, in this thread.
        from perdure.tools.shell_safety.analyzer import ShellContext, analyze_command

        state = self._state(scope)
        context = ShellContext(
            workspace=self._root,
            folder=state.folder if state is not None else self._root,
            home=self._home,
            environment=state.environment if state is not None else None,
            follow_links=_LinkResolver(),
            is_project_program=_ProjectPrograms(self._root, state),
        )
        return analyze_command(command, context)

    def _state(self, scope: ToolScope) -> ShellState | None:
        return self._shell_state(scope.conversation_id or scope.task_id) if self._shell_state is not None else None

    def _folder(self, scope: ToolScope) -> str:
        """Return the folder a command would run in, below the home folder from `~` on."""
        state = self._state(scope)
        folder = state.folder if state is not None else self._root
        if folder.is_relative_to(self._home):
            return escape_invisible((Path("~") / folder.relative_to(self._home)).as_posix())
        return escape_invisible(folder.as_posix())

    def _writes(self, path: str) -> Iterator[ApprovalItem]:
        """Yield the risks of writing to a path, judged like a redirect in the shell."""
        target = self._workspace.resolve(path)
        zones = self._zones()
        kind = zones.written_kind(zones.resolve_write(target.as_posix()))
        if kind is not None:
            yield ApprovalItem(kind, kind, str(target))

    def _reads(self, path: str) -> Iterator[ApprovalItem]:
        """Yield the risk of reading a path, if it is a credential file."""
        target = self._workspace.resolve(path)
        zones = self._zones()
        if zones.is_credential(target.as_posix()) or zones.is_credential(path):
            yield ApprovalItem("credentials", "credentials", str(target))

    def _zones(self) -> PathZones:
        return PathZones.at(self._root, self._root, self._home, _LinkResolver())

    async def _ask(
        self, tool: Tool, arguments: Mapping[str, Any], items: list[ApprovalItem], scope: ToolScope
    ) -> ApprovalAnswer | Refusal:
        if self._approver is None:
            return "no"
        lines = await asyncio.to_thread(self._changed_lines, tool, arguments)
        action = _action(tool, arguments, lines)
        request = ApprovalRequest(
            action=action,
            reason=escape_invisible("; ".join(f"{item.why}: {item.what}" for item in items)),
            covers=_describe_coverage(items),
            standing=_describe_standing(items),
            dangerous=tuple(self._locate(escape_invisible(item.what), action) for item in items),
            call_id=scope.call_id,
            is_lasting=any(KINDS[item.kind].is_lasting for item in items),
            has_diff=bool(lines),
            folder=self._folder(scope) if tool.command_parameter is not None else "",
        )
        return await self._approver.approve(request)

    def _changed_lines(self, tool: Tool, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the diff of a file edit for the question; empty for other calls.

        Blocks: reads the file as it is now.
        """
        match tool.name, dict(arguments):
            case "write_file", {"path": str(path), "content": str(content)} if path.strip():
                return write_diff(self._workspace.resolve(path), content, is_secret=self._is_secret(path))
            case "patch", {"path": str(path), "old": str(old), "new": str(new), **rest} if not self._is_secret(path):
                target, replace_all = self._workspace.resolve(path), rest.get("replace_all") is True
                return patch_diff(target, old, new, replace_all=replace_all) or edit_lines(tool.name, arguments)
            case _:
                return edit_lines(tool.name, arguments)

    def _is_secret(self, path: str) -> bool:
        """Whether a file's content must not be shown in a question, which may appear on a chat service."""
        zones = self._zones()
        return not path.strip() or any(map(zones.is_credential, (self._workspace.resolve(path).as_posix(), path)))

    def _locate(self, what: str, action: str) -> str:
        """Return the dangerous part as it is spelled in the action (with `~`, `$HOME` or quotes), to highlight it."""
        if what in action or len(what) > _MAX_LOCATED_CHARS:
            return what
        home = re.escape(self._home.as_posix())
        words = [re.escape(word).replace(home, rf"(?:{home}|~|\$HOME|\$\{{HOME\}})[\"']?") for word in what.split()]
        match = re.search(r"[\s\"'\\]+".join(words), action) if words else None
        return match.group() if match is not None else _locate_expanded(what, action) or what

    async def _store_answer(self, answer: ApprovalAnswer, items: list[ApprovalItem], user: AnyUser) -> None:
        keys = {item.key for item in items if KINDS[item.kind].is_lasting}
        if answer == "always" and self._approvals is not None:
            # Not in the session, too: a revoked approval must be asked about again.
            await asyncio.to_thread(self._store_always, user, keys)
        elif answer in ("session", "always"):
            self._session.setdefault(user, set()).update(keys)

    def _load_always(self, user: AnyUser) -> set[str]:
        return set(approved_kinds(self._approvals, user)) if self._approvals is not None else set()

    def _store_always(self, user: AnyUser, keys: set[str]) -> None:
        if self._approvals is not None:
            self._approvals.set(user.stored_key, sorted(self._load_always(user) | keys))


def _locate_expanded(what: str, action: str) -> str:
    """Return the part of the action that `what` is an expansion of, found by the text before its first variable."""
    name = what.partition(" ")[0]
    for match in re.finditer(rf"(?<![\w./-]){re.escape(name)}\s[^;&|\n]*", action):
        before, variable, _ = match.group().partition("$")
        if variable and what.startswith(re.sub(r"[\"'\\]", "", before)):
            return match.group().rstrip()
    return ""


class _LinkResolver:
    """Resolve symbolic links; raises Unreadable for a command that names too many paths, or on a slow disk."""

    def __init__(self, limit: int = 2_000, deadline_s: float = 0.5) -> None:
        self._limit = limit
        self._deadline_s = time.monotonic() + deadline_s
        self._resolved: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        if has_taint(path):
            return path
        if path not in self._resolved:
            if len(self._resolved) >= self._limit or time.monotonic() > self._deadline_s:
                raise Unreadable("it names too many files to check where they lead")
            self._resolved[path] = self._resolve(path)
        return self._resolved[path]

    def _resolve(self, path: str) -> str:
        folder, name = os.path.split(path)
        try:
            if name in ("", ".", "..") or os.path.islink(path):
                return os.path.realpath(path)
            # Most paths of a command are in few folders.
            if folder not in self._folders:
                self._folders[folder] = os.path.realpath(folder)
            return os.path.join(self._folders[folder], name)
        except (OSError, ValueError):
            return path


class _ProjectPrograms:
    """Looks up whether a program belongs to the project: in its environment, or by its list of dependencies."""

    _FOLDERS = ("node_modules/.bin", ".venv/bin", "venv/bin", "vendor/bin")
    _MAX_MANIFEST_BYTES = 1_000_000

    def __init__(self, root: Path, state: ShellState | None) -> None:
        starts = (root,) if state is None else (root, state.folder)
        self._manifests = [start / "package.json" for start in starts]
        self._folders = [start / folder for start in starts for folder in self._FOLDERS]
        environment = (state.environment if state is not None else None) or {}
        if active := environment.get("VIRTUAL_ENV"):
            self._folders.append(Path(active) / "bin")

    def __call__(self, name: str) -> bool:
        """Whether the program is one of the project's own. Blocks; never raises."""
        plain = name.partition("@")[0] if name[:1] != "@" else name
        try:
            if re.fullmatch(r"\w[\w.+-]{0,100}", plain) and any((f / plain).exists() for f in self._folders):
                return True
            return any(plain in self._dependencies(path) for path in self._manifests)
        except (OSError, ValueError):
            return False

    def _dependencies(self, path: Path) -> set[str]:
        if not path.is_file() or path.stat().st_size > self._MAX_MANIFEST_BYTES:
            return set()
        manifest = json.loads(path.read_bytes())
        lists = [manifest.get(key) for key in ("dependencies", "devDependencies")] if isinstance(manifest, dict) else []
        return {name for listed in lists if isinstance(listed, dict) for name in listed}


def _merge_items(items: Iterable[ApprovalItem]) -> list[ApprovalItem]:
    """Return each risk once; where a list names very many of a kind, the rest of them as one risk with their number."""
    groups: dict[tuple[str, str], list[ApprovalItem]] = {}
    for item in dict.fromkeys(items):
        groups.setdefault((item.key, item.reason), []).append(item)
    merged = []
    for group in groups.values():
        merged += group[:_MAX_NAMED_ITEMS]
        if rest := group[_MAX_NAMED_ITEMS:]:
            merged.append(replace(rest[0], what=f"and {len(rest):,} more"))
    return merged


def _command_risks(analysis: CommandAnalysis) -> list[ApprovalItem]:
    return [ApprovalItem(d.key, d.kind, d.what, d.reason) for d in analysis.dangers]


def _command_facts(tool: Tool, command: str, analysis: CommandAnalysis) -> CallProfile:
    """Return the profile of a shell command for permission rules; `commands` are programs that may change something."""
    from perdure.tools.shell_safety.read_only import is_read_only

    runs = [(run, " ".join((run.name, *run.args))) for run in analysis.invocations]
    changing = [(run, text) for run, text in runs if not is_read_only(run)]
    targets = (command.strip(), *(strip_taints(text) for _, text in runs))
    if analysis.is_complete and not changing:
        return CallProfile(tool.name, "none", targets)
    # What an "allow" rule covers must be known in full, and must not write anywhere else.
    is_certain = analysis.is_complete and not any(run.writes or has_taint(text) for run, text in changing)
    return CallProfile(tool.name, "run", targets, tuple(text for _, text in changing) if is_certain else None)


# Arguments that the diff of an edit shows.
_EDITED_TEXTS = ("content", "old", "new")


def _action(tool: Tool, arguments: Mapping[str, Any], lines: Sequence[str]) -> str:
    """Format the action for the user: the command itself, the diff of an edit, or the tool with its arguments."""
    targets = read_call_targets(tool, arguments)
    if targets.is_command_only:
        text = targets.command_text
    elif lines:
        others = ", ".join(f"{k}={v!r}" for k, v in arguments.items() if k not in _EDITED_TEXTS and v is not False)
        text = "\n".join([f"{tool.name}({others})", *lines])
    else:
        blocks = {k: v for k, v in arguments.items() if isinstance(v, str) and "\n" in v}
        text = f"{tool.name}({', '.join(f'{k}={v!r}' for k, v in arguments.items() if k not in blocks)})"
        text += "".join(f"\n{name}:\n{value.rstrip()}" for name, value in blocks.items())
    if len(text) > _MAX_ACTION_CHARS:
        omitted = len(text) - _MAX_ACTION_CHARS
        start = text[: _MAX_ACTION_CHARS - _ACTION_END_CHARS]
        text = f"{start}\n[… {omitted:,} characters are not shown …]\n{text[-_ACTION_END_CHARS:]}"
    return escape_invisible(text)


def _describe_coverage(items: list[ApprovalItem]) -> str:
    """Describe which later calls the answers "session" and "always" would allow as well."""
    kinds = list(dict.fromkeys(_coverage_name(item) for item in items if KINDS[item.kind].is_lasting))
    if not kinds:
        return "This is asked every time."
    rest = "" if all(KINDS[item.kind].is_lasting for item in items) else " The rest is asked every time."
    listed = " and ".join(kinds)
    return (
        f"“always” allows {listed}, in every folder and conversation, until revoked with {_revocation(items)}; "
        f"“session” until the program ends.{rest}"
    )


def _describe_standing(items: list[ApprovalItem]) -> str:
    """Describe what the answer "always" has allowed, with the command that revokes it; "" where it covers one call."""
    kinds = list(dict.fromkeys(_coverage_name(item) for item in items if KINDS[item.kind].is_lasting))
    return f"Allowed from now on: {' and '.join(kinds)}. Revoke it with {_revocation(items)}." if kinds else ""


def _revocation(items: list[ApprovalItem]) -> str:
    keys = " ".join(dict.fromkeys(shlex.quote(item.key) for item in items if KINDS[item.kind].is_lasting))
    if len(keys) <= _MAX_REVOKED_CHARS and "\n" not in keys:
        return f"`perdure approvals revoke {keys}`"
    return "`perdure approvals revoke`, by its name in `perdure approvals list`"


def _coverage_name(item: ApprovalItem) -> str:
    if item.kind == "unknown-program":
        return f"every call of {item.key.removeprefix('program:')}"
    return "this very command" if item.kind == "run-command" else f"everything of the kind {item.key}"


# In the denial of a call in a session without a user to ask.
UNATTENDED = "no one is available to approve it"
USER_REFUSED = "the user refused"


def _denial_message(tool: Tool, items: list[ApprovalItem], reason: str, *, words: str = "") -> str:
    what = "; ".join(f"{item.why} ({item.what})" for item in items)
    if words:
        return f"{tool.name} was not run, {USER_REFUSED}: “{words}”. Approval was needed because: {what}"
    instead = " ".join(dict.fromkeys(KINDS[item.kind].instead for item in items))
    # The reason of the question is not the user's reason.
    why = f"{reason}. Approval was needed because: {what}" if reason == USER_REFUSED else f"{reason}: {what}"
    return f"{tool.name} was not run, {why}. Do not try it in another form. {instead}"


# At the end only: before it a denial quotes the command, which may imitate this sentence.
_ADVANCE_RULES = re.compile(
    r"To allow it in advance: (“[^“”]+”(?:, “[^“”]+”)*) as (?:a rule|rules) in permissions\.allow\.\s*\Z"
)


def _describe_advance(profiles: Sequence[CallProfile], items: list[ApprovalItem]) -> str:
    """Describe the permission rules that would allow the call unattended; `advance_rules` parses this text."""
    if not all(KINDS[item.kind].is_lasting for item in items):
        return "It cannot be allowed in advance."
    rules = tuple(dict.fromkeys(rule for profile in profiles for rule in suggest_rules(profile)))
    whole_tools = tuple(rule for rule in rules if "(" not in rule)
    rules = whole_tools or rules
    listed = ", ".join(f"“{rule}”" for rule in rules)
    return f"To allow it in advance: {listed} as {'a rule' if len(rules) == 1 else 'rules'} in permissions.allow."


def advance_rules(denial: str) -> tuple[str, ...]:
    """Return the rules that would allow a denied call in advance, from the text of its denial."""
    match = _ADVANCE_RULES.search(denial)
    return tuple(match[1][1:-1].split("”, “")) if match is not None else ()
