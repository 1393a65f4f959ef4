"""Permission modes and rules: which calls run without asking, which are asked about, and which are refused.

A mode is the user's general answer; a rule is about a tool, or about a tool and a pattern. `deny` beats `ask`, which
beats `allow`. The rules of a project come from `.perdure/permissions.yaml` in its folder. As long as the user has not
trusted that very file, they only make things stricter: `deny` and `ask` rules hold, `allow` rules do not, and its mode
counts only where it is stricter than the user's own. `tools.approval` applies both before it asks.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from perdure.config.load import read
from perdure.config.project import folders_above
from perdure.config.settings import PermissionMode, PermissionsSettings
from perdure.core.errors import ConfigError
from perdure.core.ports import KeyValue

# From the strictest to the freest, as a key cycles through them.
MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
MODE_MEANINGS: dict[PermissionMode, str] = {
    "plan": "changes nothing; runs only commands that look",
    "ask": "asks before edits and commands that change things",
    "edits": "edits files here; asks before what is dangerous",
    "all": "never asks, not even before what is dangerous",
}
# The state in which the store keeps the digests of trusted files.
TRUSTED_PROJECTS = "trusted_projects"
PROJECT_FILE = Path(".perdure") / "permissions.yaml"
_RULE = re.compile(r"\s*([\w*?.\[\]-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)

_MAX_SUGGESTED_CHARS = 200

# What a call does: nothing lasting, changes a file, runs a command that may change something, or anything else.
Effect = Literal["none", "edit", "run", "other"]
Verdict = Literal["deny", "ask", "allow"]


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """A permission rule; `pattern` None applies to every call of the tool."""

    text: str
    tool: str
    pattern: str | None
    # The file or settings it comes from.
    origin: str

    def is_about(self, tool_name: str) -> bool:
        return fnmatch.fnmatchcase(tool_name, self.tool)

    def matches(self, target: str) -> bool:
        """Whether the pattern matches a target of a call: a path, an argument or a command. No pattern matches all.

        `git push *` also matches `git push`.
        """
        if self.pattern is None:
            return True
        return any(fnmatch.fnmatchcase(t, self.pattern) for t in (target, f"{target} "))


@dataclass(frozen=True, slots=True)
class CallProfile:
    """The properties of a tool call that rules and modes decide by: targets, programs, what it may change."""

    tool_name: str
    effect: Effect
    # Ways to name what the call works on: a path, an argument, the command as written and every program it runs.
    targets: tuple[str, ...] = ()
    # The programs a command runs that may change something; None: not a command, or not known in full.
    commands: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PermissionRules:
    """The allow, ask and deny rules of one origin; deny is checked first, then ask, then allow."""

    allow: tuple[PermissionRule, ...] = ()
    ask: tuple[PermissionRule, ...] = ()
    deny: tuple[PermissionRule, ...] = ()

    def __add__(self, other: PermissionRules) -> PermissionRules:
        return PermissionRules(self.allow + other.allow, self.ask + other.ask, self.deny + other.deny)


class Permissions:
    """The current permission mode, which the user may change at any time, and the rules of user and project."""

    def __init__(
        self, mode: PermissionMode = "edits", rules: PermissionRules | None = None, warnings: Sequence[str] = ()
    ) -> None:
        self.mode: PermissionMode = mode
        self.rules = rules or PermissionRules()
        self.warnings = tuple(warnings)

    def find_rule(self, call: CallProfile) -> tuple[Verdict, PermissionRule] | None:
        """Return the rule that decides about a call, if there is one."""
        for verdict, rules in (("deny", self.rules.deny), ("ask", self.rules.ask)):
            for rule in rules:
                if rule.is_about(call.tool_name) and _matches_any(rule, call):
                    return ("deny" if verdict == "deny" else "ask"), rule
        allowed = [rule for rule in self.rules.allow if rule.is_about(call.tool_name)]
        covering = _find_covering_rule(allowed, call)
        return ("allow", covering) if covering is not None else None


def _matches_any(rule: PermissionRule, call: CallProfile) -> bool:
    return rule.pattern is None or any(rule.matches(target) for target in call.targets)


def _find_covering_rule(rules: Sequence[PermissionRule], call: CallProfile) -> PermissionRule | None:
    """Return an `allow` rule that covers the call; for a shell command, every program must be covered by one."""
    whole = next((rule for rule in rules if rule.pattern is None), None)
    if whole is not None:
        return whole
    if call.effect == "run":
        if not call.commands:
            return None
        covering = [next((rule for rule in rules if rule.matches(command)), None) for command in call.commands]
        return covering[0] if all(covering) else None
    return next((rule for rule in rules if any(rule.matches(t) for t in call.targets)), None)


def suggest_rules(call: CallProfile) -> tuple[str, ...]:
    """Return the narrowest rules that would allow a call; the tool alone where no pattern covers it."""
    targets = (call.commands or ()) if call.effect == "run" else call.targets[:1] if call.effect == "edit" else ()
    texts = tuple(dict.fromkeys(f"{call.tool_name}({_as_pattern(target)})" for target in targets))
    if not texts or any(not text.isprintable() or len(text) > _MAX_SUGGESTED_CHARS for text in texts):
        return (call.tool_name,)
    rules = parse_rules(PermissionsSettings(allow=texts), "suggested")
    return texts if _find_covering_rule(rules.allow, call) is not None else (call.tool_name,)


def _as_pattern(target: str) -> str:
    """Return a pattern that matches only this target, with any characters in place of its quotation marks."""
    # A rule is quoted in “…”, so that one with such a mark could pass for another rule.
    return re.sub("[“”]", "?", re.sub(r"([*?[])", r"[\1]", target))


def parse_rules(settings: PermissionsSettings, origin: str) -> PermissionRules:
    """Parse the rules of a settings section. Raises ConfigError naming the rule that cannot be read."""

    def parse_texts(texts: Iterable[str]) -> tuple[PermissionRule, ...]:
        rules = []
        for text in texts:
            match = _RULE.fullmatch(text)
            if match is None:
                raise ConfigError(f"{origin}: {text!r} is no rule; write a tool, or a tool(pattern)")
            rules.append(PermissionRule(text.strip(), match[1], match[2], origin))
        return tuple(rules)

    return PermissionRules(parse_texts(settings.allow), parse_texts(settings.ask), parse_texts(settings.deny))


@dataclass(frozen=True, slots=True)
class ProjectPermissions:
    """The permissions file of a project, and whether the user has trusted it as it is now."""

    path: Path
    settings: PermissionsSettings
    digest: str
    is_trusted: bool
    # Why it could not be read; its mode then is "ask".
    problem: str = ""
    rules: PermissionRules = field(default_factory=PermissionRules)


def find_project_file(folder: Path, user_home: Path) -> Path | None:
    """Return the nearest permissions file of the project; never that of the user's home, which holds their own."""
    for parent in reversed(folders_above(folder, user_home)):
        path = parent / PROJECT_FILE
        if parent != user_home and path.is_file():
            return path
    return None


def read_project(path: Path, trusted: KeyValue | None) -> ProjectPermissions:
    """Read a project's permissions file. Never raises: with an unreadable file, every change is asked about."""
    digest = ""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        settings = PermissionsSettings.model_validate(read(path).data)
        rules = parse_rules(settings, str(path))
    except (ConfigError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        return ProjectPermissions(path, PermissionsSettings(mode="ask"), digest, is_trusted=False, problem=reason)
    is_trusted = trusted is not None and trusted.get(str(path)) == digest
    return ProjectPermissions(path, settings, digest, is_trusted, rules=rules)


def load_permissions(
    settings: PermissionsSettings,
    *,
    is_never_asked: bool = False,
    project: ProjectPermissions | None = None,
) -> Permissions:
    """Combine the user's settings with a project's. Raises ConfigError for an invalid user rule."""
    mode: PermissionMode = "all" if is_never_asked else settings.mode
    rules = parse_rules(settings, "your settings")
    if project is None:
        return Permissions(mode, rules)
    project_rules, warnings = project.rules, []
    if project.problem:
        warnings.append(f"{project.path} cannot be read ({project.problem}); every change is asked about")
    if project.is_trusted:
        mode = project.settings.mode if "mode" in project.settings.model_fields_set else mode
    else:
        mode = min(mode, project.settings.mode, key=MODES.index) if _has_mode(project) else mode
        if project_rules.allow:
            many = f"{len(project_rules.allow)} rule{'s' if len(project_rules.allow) > 1 else ''}"
            warnings.append(f"{project.path} allows {many}: ignored until you run `perdure permissions trust`")
        project_rules = PermissionRules(ask=project_rules.ask, deny=project_rules.deny)
    return Permissions(mode, rules + project_rules, warnings)


def stricter_modes(mode: PermissionMode) -> tuple[PermissionMode, ...]:
    """Return the modes that allow less than this one."""
    return MODES[: MODES.index(mode)]


def _has_mode(project: ProjectPermissions) -> bool:
    return bool(project.problem) or "mode" in project.settings.model_fields_set
