"""Analyze a command: walk its tree, follow wrappers, match rules, return the dangers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from perdure.tools.shell_safety.expand import ShellVariables
from perdure.tools.shell_safety.interpreters import (
    SHELLS,
    CodeReading,
    code_of,
    language_of,
    read_code,
    runs_stdin,
    shell_script,
)
from perdure.tools.shell_safety.invocation import (
    Invocation,
    is_command_unknown,
    looks_recursive,
    matching_names,
    name_of,
    program_of,
)
from perdure.tools.shell_safety.limits import Budget, Unreadable
from perdure.tools.shell_safety.parse import parse
from perdure.tools.shell_safety.paths import PathZones
from perdure.tools.shell_safety.rules import data, files, git, remote, secrets, system
from perdure.tools.shell_safety.rules.data import destructive_statements
from perdure.tools.shell_safety.rules.rule import RiskRule
from perdure.tools.shell_safety.syntax import (
    Function,
    Group,
    Loop,
    Node,
    Pipeline,
    Redirect,
    Simple,
    Substitution,
    Variable,
)
from perdure.tools.shell_safety.taint import DOWNLOADERS, output_of
from perdure.tools.shell_safety.types import (
    DECODED,
    DOWNLOADED,
    FILE,
    SECRET,
    UNKNOWN,
    Code,
    Danger,
    NestedCommand,
    Script,
    Words,
    has_taint,
)
from perdure.tools.shell_safety.wrappers import nested_commands

_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_READING = ("read", "mapfile", "readarray")
# Builtins change the current shell; other commands run in a child.
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
    """Apply the effect of a builtin to the scope; no-op for other commands."""
    if run.name in _DECLARING:
        for name, sign, value in (a.partition("=") for a in run.args):
            if sign:
                scope.assign(name, [value])
    elif run.name == "unset":
        for o in run.operands:
            scope.unset(o)
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


def is_fork_bomb(function: Function) -> bool:
    return any(_calls_twice(n, function.name) for n in function.body)


def _calls_twice(node: Node, name: str) -> bool:
    if isinstance(node, Pipeline):
        calls = sum(isinstance(c, Simple) and bool(c.words) and c.words[0].bare == name for c in node.commands)
        if calls > 1 or (calls and node.is_background):
            return True
        return any(_calls_twice(c, name) for c in node.commands)
    if isinstance(node, Group | Loop):
        return any(_calls_twice(n, name) for n in node.body)
    return False


def runs_itself(node: Node) -> bool:
    if not isinstance(node, Simple) or not node.words:
        return False
    return any(isinstance(p, Variable) and p.name == "0" for p in node.words[0].parts)


MAX_STEPS = 2_500
_MAX_DEPTH = 24
_MAX_ITEMS = 8
# Cost of one more argument, in characters.
_CHARS_PER_ARGUMENT = 60

MatchRules = Callable[[Invocation], Iterable[Danger]]
MatchCodeRules = Callable[[CodeReading, Invocation], Iterable[Danger]]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The context of a node: scope, stdin, upstream commands, depth."""

    scope: ShellVariables
    stdin: str | None = None
    upstream: tuple[str, ...] = ()
    depth: int = 0
    is_background: bool = False

    def deeper(self) -> _Frame:
        return replace(self, depth=self.depth + 1)


class CommandAnalyzer:
    """Walk the syntax tree of one command and collect its `dangers`."""

    def __init__(
        self, zones: PathZones, budget: Budget, match_rules: MatchRules, match_code_rules: MatchCodeRules
    ) -> None:
        self.dangers: list[Danger] = []
        self._zones = zones
        self._budget = budget
        self._match_rules, self._match_code_rules = match_rules, match_code_rules
        self._files: dict[str, str] = {}
        self._functions: dict[str, Function] = {}
        self._called_functions: set[str] = set()
        self._steps = 0

    def analyze(self, text: str, scope: ShellVariables) -> None:
        """Analyze a command. Raises Unreadable over budget; `dangers` then has the findings so far."""
        scope.assign("PWD", [self._zones.folder or UNKNOWN])
        self._nodes(parse(text, self._budget), _Frame(scope))
        for name in [n for n in self._functions if n not in self._called_functions]:
            unknown = scope.child()
            unknown.is_open = True
            self._nodes(self._functions[name].body, _Frame(unknown, depth=1))

    def _nodes(self, nodes: Sequence[Node], frame: _Frame) -> str:
        if frame.depth > _MAX_DEPTH:
            raise Unreadable
        output = "".join([self._node(n, frame) for n in nodes])
        self._budget.spend_chars(len(output))
        return output

    def _node(self, node: Node, frame: _Frame) -> str:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Unreadable
        match node:
            case Simple():
                return self._simple(node, frame)
            case Pipeline():
                return self._pipeline(node, frame)
            case Group():
                return self._group(node, frame)
            case Loop():
                return self._loop(node, frame)
            case Function():
                self._functions[node.name] = node
                if is_fork_bomb(node):
                    self.dangers.append(Danger("fork-bomb", f"{node.name}() calls itself"))
                return ""

    def _pipeline(self, node: Pipeline, frame: _Frame) -> str:
        stdin, upstream = frame.stdin, frame.upstream
        if node.is_background and any(runs_itself(c) for c in node.commands):
            self.dangers.append(Danger("fork-bomb", "a script that starts itself in the background"))
        for command in node.commands:
            here = replace(frame, stdin=stdin, upstream=upstream, is_background=node.is_background)
            stdin = self._node(command, here if len(node.commands) == 1 else replace(here, scope=frame.scope.child()))
            upstream = (*upstream, name_of(command))
        return stdin or ""

    def _group(self, node: Group, frame: _Frame) -> str:
        stdin, writes, reads = self._redirects(node.redirects, frame)
        inner = replace(frame, stdin=stdin, scope=frame.scope.child() if node.is_subshell else frame.scope).deeper()
        before = self._zones
        out = self._nodes(node.body, inner)
        if node.is_subshell:
            self._zones = before
        if writes or reads:
            self._report(Invocation("{", (), self._zones, writes=tuple(writes), reads=tuple(reads)))
            self._record_files(writes, out)
        return "" if writes else out

    def _loop(self, node: Loop, frame: _Frame) -> str:
        items = [UNKNOWN]
        if node.words is not None:
            items = [f for w in node.words for f in frame.scope.fields(w, lambda s: self._substitution(s, frame))] or [
                UNKNOWN
            ]
        elif frame.scope.arguments[1:]:
            items = frame.scope.arguments[1:]
        out = ""
        for item in items[:_MAX_ITEMS]:
            frame.scope.assign(node.name, [item])
            out += self._nodes(node.body, frame.deeper())
        return out

    def _substitution(self, substitution: Substitution, frame: _Frame) -> str:
        stdin = UNKNOWN if substitution.kind == ">" else None
        before = self._zones
        out = self._nodes(substitution.body, _Frame(frame.scope.child(), stdin, depth=frame.depth + 1))
        self._zones = before
        if substitution.kind == "$":
            return out
        name = f"/dev/fd/{63 + len(self._files)}"
        self._files[name] = out
        return name

    def _redirects(self, redirects: Sequence[Redirect], frame: _Frame) -> tuple[str | None, list[str], list[str]]:
        """Return stdin, and the files written and read."""
        stdin, writes, reads = frame.stdin, [], []

        def run(s: Substitution) -> str:
            return self._substitution(s, frame)

        for r in redirects:
            if r.here is not None:
                stdin = frame.scope.text(r.here.body, run)
            elif r.operator == "<<<":
                stdin = frame.scope.text(r.target, run) + "\n"
            elif r.operator in ("<", "<&"):
                path = frame.scope.text(r.target, run)
                if not path.isdigit():
                    reads.append(path)
                    stdin = self._files.get(path, self._files.get(self._zones.classify(path).path))
                    stdin = stdin if stdin is not None else (SECRET if self._zones.is_private(path) else FILE)
            else:
                path = frame.scope.text(r.target, run)
                if not (r.operator == ">&" and (path.isdigit() or path == "-")):
                    writes.append(path)
        return stdin, writes, reads

    def _simple(self, node: Simple, frame: _Frame) -> str:
        def run(s: Substitution) -> str:
            return self._substitution(s, frame)

        fields = [f for w in node.words for f in frame.scope.fields(w, run)]
        declares = bool(fields) and fields[0] in ("export", "declare", "local", "readonly", "typeset")
        scope = frame.scope if not fields or declares else frame.scope.child()
        for a in node.assignments:
            values = (
                [f for v in a.values for f in scope.fields(v, run)] if a.is_array else [scope.text(a.values[0], run)]
            )
            scope.assign(a.name, values, is_added=a.is_added, is_array=a.is_array)
            if a.name in _RUN_VARIABLES:
                self._nested(Script(values[0] if values else ""), Invocation(a.name, (), self._zones), frame)
            if declares:
                fields.append(f"{a.name}={' '.join(values)}")
        stdin, writes, reads = self._redirects(node.redirects, frame)
        if not fields:
            if writes or reads:
                self._report(Invocation(">", (), self._zones, writes=tuple(writes), reads=tuple(reads)))
                self._record_files(writes, "")
            # `$(< file)` expands to the content of the file.
            return (stdin or "") if reads else ""
        # A builtin changes the current shell; other commands get the assignments in front of them.
        inner = replace(frame, scope=frame.scope if fields[0] in BUILTINS else scope, stdin=stdin)
        invocation = Invocation(
            program_of(fields[0]),
            tuple(fields[1:]),
            self._zones,
            stdin,
            tuple(writes),
            tuple(reads),
            frame.upstream,
            frame.is_background,
        )
        return self._run(invocation, inner, fields[0])

    def _run(self, run: Invocation, frame: _Frame, typed: str) -> str:
        self._steps += 1
        if frame.depth > _MAX_DEPTH or self._steps > MAX_STEPS:
            raise Unreadable
        # Words already counted once are analyzed again inside every `sudo` and `env`.
        self._budget.spend_chars(run.size + (_CHARS_PER_ARGUMENT * len(run.args) if frame.depth else 0))
        self._check_name(run, typed)
        self._report(run)
        self._builtin(run, frame)
        out = self._function_call(run, frame) if run.name in self._functions else None
        self._follow_nested(run, frame, typed)
        out = out if out is not None else output_of(run, self._files)
        self._budget.spend_chars(len(out))
        self._download(run)
        if run.name == "tee":
            self._record_files(run.operands, out)
        if run.writes:
            self._record_files(run.writes, out)
            return ""
        return out

    def _check_name(self, run: Invocation, typed: str) -> None:
        if DOWNLOADED in typed or DECODED in typed:
            self.dangers.append(Danger("hidden-code", run.summary))
        elif typed.startswith("/etc/init.d/") and "stop" in run.args:
            self.dangers.append(Danger("services", run.summary))
        elif (has_taint(run.name) or typed.startswith("./")) and looks_recursive(run):
            self.dangers.append(Danger("hidden-code", run.summary))

    def _report(self, run: Invocation) -> None:
        names = matching_names(run.name)
        for name in names:
            self.dangers += self._match_rules(replace(run, name=name))

    def _builtin(self, run: Invocation, frame: _Frame) -> None:
        if run.name in ("cd", "pushd", "popd"):
            target = UNKNOWN if run.name == "popd" else run.operands[0] if run.operands else self._zones.home
            self._zones = self._zones.after_cd(target)
            frame.scope.assign("PWD", [self._zones.folder or UNKNOWN])
        elif run.name == "printf" and run.args[:1] == ("-v",) and len(run.args) > 2:
            frame.scope.assign(run.args[1], [output_of(replace(run, args=run.args[2:]), self._files)])
        else:
            apply_builtin(run, frame.scope)

    def _function_call(self, run: Invocation, frame: _Frame) -> str:
        self._called_functions.add(run.name)
        function = self._functions.pop(run.name)
        scope = frame.scope.child()
        scope.arguments = [run.name, *run.args]
        try:
            return self._nodes(function.body, replace(frame, scope=scope).deeper())
        finally:
            self._functions[run.name] = function

    def _follow_nested(self, run: Invocation, frame: _Frame, typed: str) -> None:
        """Analyze everything that the program would run."""
        for inner in nested_commands(run):
            self._nested(inner, run, frame)
        for code in code_of(run):
            self._nested(code, run, frame)
        if run.name in SHELLS:
            self._shell(run, frame)
        elif (run.name in ("source", ".") and run.operands) or (run.operands and language_of(run.name) is not None):
            self._file_run(run.operands[0], run, frame)
        self._file_run(typed, run, frame)

    def _shell(self, run: Invocation, frame: _Frame) -> None:
        for option in ("--rcfile", "--init-file"):
            if (path := run.value_of(option)) is not None:
                self._file_run(path, run, frame)
        script = shell_script(run)
        if script is not None:
            self._nested(Script(script[0], script[1] or (run.name,)), run, frame)
        elif runs_stdin(run):
            if run.stdin:
                self._nested(Script(run.stdin, (run.name, *run.operands)), run, frame)
        else:
            self._file_run(run.operands[0], run, frame)

    def _file_run(self, path: str, run: Invocation, frame: _Frame) -> None:
        text = self._files.get(path, self._files.get(self._zones.classify(path).path) if path else None)
        text = run.stdin if path in ("/dev/stdin", "/dev/fd/0") else text
        if text is None:
            return
        is_code = language_of(run.name) is not None
        self._nested(Code("", text) if is_code else Script(text, (path, *run.args)), run, frame)

    def _nested(self, inner: NestedCommand, run: Invocation, frame: _Frame) -> None:
        before = self._zones
        if not isinstance(inner, Code) and inner.is_remote:
            self._zones = self._zones.remote()
        if isinstance(inner, Code):
            self._code(inner, run, frame)
        elif isinstance(inner, Words):
            if not inner.words:
                return
            typed = inner.words[0]
            invocation = Invocation(program_of(typed), inner.words[1:], self._zones, inner.stdin, upstream=run.upstream)
            self._run(invocation, frame.deeper(), typed)
        else:
            self._script(inner, run, frame)
        if not (isinstance(inner, Script) and run.name == "eval"):
            self._zones = before

    def _script(self, inner: Script, run: Invocation, frame: _Frame) -> None:
        text = inner.text
        if DOWNLOADED in text:
            self.dangers.append(Danger("remote-code", run.summary))
        if DECODED in text or (UNKNOWN in text and run.name in (*SHELLS, "eval") and is_command_unknown(text)):
            self.dangers.append(Danger("hidden-code", run.summary))
        scope = frame.scope if run.name == "eval" else frame.scope.child()
        scope.arguments = list(inner.arguments) or scope.arguments
        self._nodes(parse(text, self._budget, depth=1), _Frame(scope, None, depth=frame.depth + 1))

    def _code(self, code: Code, run: Invocation, frame: _Frame) -> None:
        self._budget.spend_chars(len(code.text))
        reading = read_code(code.text, self._zones, code.language)
        self.dangers += reading.dangers
        self.dangers += self._match_code_rules(reading, run)
        for script in reading.scripts:
            self._nodes(parse(script, self._budget, depth=1), _Frame(frame.scope.child(), None, depth=frame.depth + 1))

    def _download(self, run: Invocation) -> None:
        if run.name not in DOWNLOADERS:
            return
        path = run.value_of("-o", "--output", "-O", "--output-document", "-qO")
        urls = [o for o in run.operands if re.search(r"[/.]", o)]
        saves = run.name != "curl" or run.has("-O", "--remote-name", "-J")
        if (path is None or (run.name == "curl" and run.has("-O"))) and urls and saves:
            path = posixpath.basename(urls[-1].split("?")[0])
        if path and path != "-":
            self._record_files([path], DOWNLOADED)

    def _record_files(self, paths: Iterable[str], text: str) -> None:
        for p in paths:
            if p and not p.startswith("/dev/"):
                self._files[self._zones.classify(p).path] = text


# Variables whose value is run as a command.
_RUN_VARIABLES = frozenset(
    {
        "GIT_SSH_COMMAND",
        "GIT_PAGER",
        "GIT_EDITOR",
        "PAGER",
        "MANPAGER",
        "EDITOR",
        "VISUAL",
        "PROMPT_COMMAND",
        "LESSOPEN",
    }
)


RULES: tuple[RiskRule, ...] = (*files.RULES, *git.RULES, *system.RULES, *data.RULES, *remote.RULES, *secrets.RULES)


@dataclass(frozen=True, slots=True)
class ShellContext:
    """The context of a command: workspace, shell folder, home, and environment (None if unknown)."""

    workspace: Path
    folder: Path
    home: Path
    environment: Mapping[str, str] | None = None
    # Resolves symbolic links on disk; by default paths are not resolved.
    follow_links: Callable[[str], str] = str


def find_dangers(command: str, context: ShellContext) -> tuple[Danger, ...]:
    """Return the dangers in a shell command, the first of each kind. Executes nothing, never raises."""
    dangers: list[Danger] = []
    try:
        budget = Budget(len(command))
        zones = PathZones.at(context.workspace, context.folder, context.home, context.follow_links)
        analyzer = CommandAnalyzer(zones, budget, _rule_dangers, _code_dangers)
        dangers = analyzer.dangers
        analyzer.analyze(command, ShellVariables(context.environment, context.home.as_posix(), budget))
    except (Unreadable, RecursionError):
        dangers.append(Danger("unreadable", " ".join(command[:2_000].split())[:120]))
    unique = {d.kind: d for d in reversed(dangers)}
    return tuple(reversed(unique.values()))


def _rule_dangers(run: Invocation) -> Iterator[Danger]:
    for rule in _by_program().get(run.name, ()):
        if rule.when(run):
            yield Danger(rule.kind, run.summary)
    yield from files.delete_dangers(run)
    yield from files.write_dangers(run)
    yield from data.statement_dangers(run)
    yield from secrets.secret_dangers(run)
    if run.name.startswith("mkfs."):
        yield Danger("disk", run.summary)


def _code_dangers(reading: CodeReading, run: Invocation) -> Iterable[Danger]:
    for path in reading.deletes:
        yield from files.tree_dangers(run, path)
    if any(next(destructive_statements(s), None) for s in reading.statements):
        yield Danger("database", run.summary)


@cache
def _by_program() -> dict[str, tuple[RiskRule, ...]]:
    table: dict[str, tuple[RiskRule, ...]] = {}
    for rule in RULES:
        for name in rule.programs.split():
            table[name] = (*table.get(name, ()), rule)
    return table
