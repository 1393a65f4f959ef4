"""Analyze a command: walk its tree, follow wrappers, match rules, return the dangers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from perdure.tools.shell_safety.expand import ShellVariables, production_variables
from perdure.tools.shell_safety.interpreters import SHELLS, code_of, language_of, read_code, runs_stdin, shell_script
from perdure.tools.shell_safety.invocation import (
    Invocation,
    is_installed,
    is_workspace_script,
    looks_recursive,
    matching_names,
    program_of,
)
from perdure.tools.shell_safety.parse import (
    Function,
    Group,
    Loop,
    Node,
    Pipeline,
    Redirect,
    Simple,
    Substitution,
    Variable,
    parse,
)
from perdure.tools.shell_safety.paths import PathZones
from perdure.tools.shell_safety.rules import files
from perdure.tools.shell_safety.rules.data import destructive_statements
from perdure.tools.shell_safety.rules.git import Repositories
from perdure.tools.shell_safety.rules.guards import unknown_program
from perdure.tools.shell_safety.rules.matching import rule_dangers
from perdure.tools.shell_safety.rules.resource_exhaustion import calls_twice, loop_danger, program_name, runs_itself
from perdure.tools.shell_safety.rules.system import ROOT_PROGRAMS, is_usual_as_root
from perdure.tools.shell_safety.taint import downloaded_files, is_computed, output_of
from perdure.tools.shell_safety.types import (
    ALL_TAINTS,
    DECODED,
    DEFAULTED,
    DOWNLOADED,
    FILE,
    FRESH,
    SECRET,
    SHELL_SETUP,
    TOO_LONG,
    UNKNOWN,
    Budget,
    Code,
    Danger,
    NestedCommand,
    Script,
    Unreadable,
    has_taint,
    strip_taints,
    word_set,
)
from perdure.tools.shell_safety.wrappers import nested_commands, recipes_of

_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_READING = ("read", "mapfile", "readarray")
# Builtins change the current shell; other commands run in a child.
_BUILTINS = frozenset(
    (
        *_DECLARING,
        *_READING,
        *["cd", "pushd", "popd", "unset", "set", "shift", "printf", "source", ".", "eval", "alias", "trap"],
    )
)
# Builtins that expand the index in the name of a variable: `printf -v 'a[$(command)]'`.
_EVALUATES_INDEX = word_set("printf test [ [[ read mapfile readarray unset declare local typeset export let wait")
_INDEX_THAT_RUNS = re.compile(r"^\w{1,200}\[.{0,200}?(?:\$\(|`)", re.S)
# Variables whose value is run as a command.
_RUN_VARIABLES = word_set("GIT_SSH_COMMAND GIT_PAGER GIT_EDITOR PAGER MANPAGER EDITOR VISUAL PROMPT_COMMAND LESSOPEN")
# Programs that hand variables to the command they run, and programs whose output is a list of paths or processes.
_SET_VARIABLES = word_set("env sudo doas cross-env dotenv")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PRINTS = word_set("echo printf base64 xxd od hexdump rev cat head tail fold cut")
_LISTS = word_set("pgrep pidof lsof find gfind")
MAX_STEPS = 2_500
_MAX_DEPTH = 24
_MAX_ITEMS = 8
_MAX_REDIRECTS = 500
# Cost of one more argument, in characters.
_CHARS_PER_ARGUMENT = 60
_MAX_WHAT_CHARS = 120
# The argument of an alias that is never called.
_ANY_WORD = "…"
_COMPUTED_NAME = "the name of the command is computed at run time"
_NAME_REFERENCE = "a variable stands for another one that is only known at run time"
_COMPUTED_INDEX = "the index of an array runs a command"
_COMPUTED_CODE = "it runs text that is only known at run time"


def _is_never_installed(name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ShellContext:
    """The context of a command: workspace, shell folder, home, and environment (None if unknown)."""

    workspace: Path
    folder: Path
    home: Path
    environment: Mapping[str, str] | None = None
    # Resolves symbolic links on disk; by default paths are not resolved.
    follow_links: Callable[[str], str] = str
    # Whether a program is installed in the project, so that it need not be known.
    is_project_program: Callable[[str], bool] = _is_never_installed


@dataclass(frozen=True, slots=True)
class CommandAnalysis:
    """Analysis of a command: what it does, as far as that can be read from it."""

    dangers: tuple[Danger, ...]
    # Every program it runs, nested ones too, and its redirects and assignments; a program run by path has the path.
    invocations: tuple[Invocation, ...]
    # False where a part of it could not be read, or was not looked at.
    is_complete: bool


def find_dangers(command: str, context: ShellContext) -> tuple[Danger, ...]:
    """Return the dangers in a shell command, the first of each kind. Executes nothing, never raises."""
    return analyze_command(command, context).dangers


def analyze_command(command: str, context: ShellContext) -> CommandAnalysis:
    """Analyze a shell command. Executes nothing, never raises."""
    dangers: list[Danger] = []
    invocations: list[Invocation] = []
    has_skipped = True
    try:
        budget = Budget(len(command))
        zones = PathZones.at(context.workspace, context.folder, context.home, context.follow_links)
        analyzer = _CommandAnalyzer(zones, budget, context.is_project_program)
        dangers, invocations = analyzer.dangers, analyzer.invocations
        # Text must not contain the markers of the analysis itself.
        plain = strip_taints(command, "\ufffd")
        analyzer.analyze(plain, ShellVariables(context.environment, context.home.as_posix(), budget))
        has_skipped = analyzer.has_skipped
    except Unreadable as reason:
        dangers.append(_unreadable(command, str(reason)))
    except RecursionError:
        dangers.append(_unreadable(command, "it is nested too deeply"))
    unique = {d.key: d for d in reversed(dangers)}
    displayed = tuple(replace(d, what=strip_taints(d.what, "…")) for d in reversed(unique.values()))
    return CommandAnalysis(displayed, tuple(invocations), not has_skipped and "unreadable" not in unique)


def _unreadable(what: str, reason: str) -> Danger:
    return Danger("unreadable", " ".join(what[:2_000].split())[:_MAX_WHAT_CHARS], reason)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The context of a node: scope, stdin, upstream commands, depth."""

    scope: ShellVariables
    stdin: str | None = None
    upstream: tuple[str, ...] = ()
    depth: int = 0
    is_background: bool = False
    # The command that changed the user, such as `sudo make`; empty without one.
    elevated_by: str = ""
    # Whether programs here need not be known: they belong to the project or a container, or are only a guess.
    is_own: bool = False

    def deeper(self) -> _Frame:
        return replace(self, depth=self.depth + 1)


class _CommandAnalyzer:
    """Walk the syntax tree of one command and collect its `dangers`."""

    def __init__(self, zones: PathZones, budget: Budget, is_project_program: Callable[[str], bool]) -> None:
        self._is_project_program = is_project_program
        self.dangers: list[Danger] = []
        self.invocations: list[Invocation] = []
        # Whether a loop has more items than were followed.
        self.has_skipped = False
        self._zones = zones
        self._budget = budget
        self._files: dict[str, str] = {}
        self._functions: dict[str, Function] = {}
        self._aliases: set[str] = set()
        self._called_functions: set[str] = set()
        self._repositories = Repositories()
        self._steps = 0

    def analyze(self, text: str, scope: ShellVariables) -> None:
        """Analyze a command. Raises Unreadable over budget; `dangers` then has the findings so far."""
        scope.assign("PWD", [self._zones.folder or UNKNOWN])
        scope.inherit_targets()
        self._parse_and_walk(text, _Frame(scope))
        for name in [n for n in self._functions if n not in self._called_functions]:
            unknown = scope.child()
            unknown.is_open = True
            unknown.arguments = [name, _ANY_WORD] if name in self._aliases else unknown.arguments
            self._nodes(self._functions[name].body, _Frame(unknown, depth=1))

    def _parse_and_walk(self, text: str, frame: _Frame, *, is_guess: bool = False) -> None:
        """Parse and walk a script; a guess that the parser rejects is ignored."""
        self._budget.spend_chars(len(text) if frame.depth else 0)
        script = parse(text, self._budget, depth=frame.depth)
        self._nodes(script.nodes, frame)
        if script.error is not None and not is_guess:
            near = strip_taints(script.error, "…")
            self.dangers.append(
                _unreadable(strip_taints(text[:2_000], "…"), f"its syntax cannot be read near “{near}”")
            )

    def _nodes(self, nodes: Sequence[Node], frame: _Frame) -> str:
        if frame.depth > _MAX_DEPTH:
            raise Unreadable("it is nested too deeply")
        texts = [self._node(n, frame) for n in nodes]
        if not frame.depth:
            for node, text in zip(nodes, texts, strict=True):
                self._check_printed(node, text)
        self._budget.spend_chars(sum(map(len, texts)))
        return "".join(texts)

    def _check_printed(self, node: Node, text: str) -> None:
        """Match `echo "$API_KEY"` and `echo "$API_KEY" | base64`: a secret that nothing reads but the model."""
        commands = node.commands if isinstance(node, Pipeline) and node.commands else (node,)
        first, last = program_name(commands[0]), program_name(commands[-1])
        if SECRET in text and first in ("echo", "printf") and last in _PRINTS:
            self.dangers.append(Danger("credentials", f"{first} {strip_taints(text, '…')[:_MAX_WHAT_CHARS]}".strip()))

    def _node(self, node: Node, frame: _Frame) -> str:
        self._count_step()
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
                if any(calls_twice(n, node.name) for n in node.body):
                    self.dangers.append(Danger("fork-bomb", f"{node.name}() calls itself"))
                return ""

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Unreadable(TOO_LONG)

    @contextmanager
    def _keep_folder(self, *, is_kept: bool = True) -> Iterator[None]:
        """Restore the working folder when the block returns, as at the end of a subshell."""
        before = self._zones
        try:
            yield
        finally:
            self._zones = before if is_kept else self._zones

    def _pipeline(self, node: Pipeline, frame: _Frame) -> str:
        stdin, upstream = frame.stdin, frame.upstream
        if node.is_background and any(runs_itself(c) for c in node.commands):
            self.dangers.append(Danger("fork-bomb", "a script that starts itself in the background"))
        for command in node.commands:
            here = replace(frame, stdin=stdin, upstream=upstream, is_background=node.is_background)
            stdin = self._node(command, here if len(node.commands) == 1 else replace(here, scope=frame.scope.child()))
            upstream = (*upstream, program_name(command))
        return stdin or ""

    def _group(self, node: Group, frame: _Frame) -> str:
        if (danger := loop_danger(node)) is not None:
            self.dangers.append(danger)
        stdin, writes, reads = self._redirects(node.redirects, frame)
        inner = replace(frame, stdin=stdin, scope=frame.scope.child() if node.is_subshell else frame.scope).deeper()
        with self._keep_folder(is_kept=node.is_subshell):
            out = self._nodes(node.body, inner)
        if writes or reads:
            self._report_redirects("{", writes, reads)
            self._record_files(writes, out)
        return "" if writes else out

    def _loop(self, node: Loop, frame: _Frame) -> str:
        items = [f for w in node.words for f in frame.scope.fields(w, lambda s: self._substitution(s, frame))]
        items = items if node.words else frame.scope.arguments[1:]
        out = ""
        self.has_skipped = self.has_skipped or len(items) > _MAX_ITEMS
        for item in items[:_MAX_ITEMS] or [UNKNOWN]:
            frame.scope.assign(node.name, [item])
            out += self._nodes(node.body, frame.deeper())
        return out

    def _substitution(self, substitution: Substitution, frame: _Frame) -> str:
        stdin = UNKNOWN if substitution.kind == ">" else None
        with self._keep_folder():
            inner = replace(frame.deeper(), scope=frame.scope.child(), stdin=stdin, upstream=(), is_background=False)
            # A single word in backticks is most often a name in a text.
            inner = replace(inner, is_own=inner.is_own or _is_word(substitution.body))
            out = self._nodes(substitution.body, inner)
        if substitution.kind == "$":
            return out
        name = f"/dev/fd/{63 + len(self._files)}"
        self._files[name] = out
        return name

    def _redirects(self, redirects: Sequence[Redirect], frame: _Frame) -> tuple[str | None, list[str], list[str]]:
        """Return stdin, and the files written and read."""
        if len(redirects) > _MAX_REDIRECTS:
            raise Unreadable(TOO_LONG)
        stdin, writes, reads = frame.stdin, [], []
        for r in redirects:
            target = frame.scope.text(r.target, lambda s: self._substitution(s, frame))
            if r.operator in ("<<", "<<<"):
                stdin = target if r.operator == "<<" else target + "\n"
            elif r.operator in ("<", "<&"):
                if not target.isdigit():
                    reads.append(target)
                    stdin = self._files.get(target, self._files.get(self._zones.classify(target).path))
                    stdin = stdin if stdin is not None else (SECRET if self._zones.is_private(target) else FILE)
            elif not (r.operator == ">&" and (target.isdigit() or target == "-")):
                writes.append(target)
        return stdin, writes, reads

    def _simple(self, node: Simple, frame: _Frame) -> str:
        fields = [f for w in node.words for f in frame.scope.fields(w, lambda s: self._substitution(s, frame))]
        # The program of `${PYTHON:-python3} x` is the one that is written out.
        fields[:1] = [f.removeprefix(DEFAULTED) for f in fields[:1]]
        declares = bool(fields) and fields[0] in _DECLARING
        scope = frame.scope if not fields or declares else frame.scope.child()
        assigned = self._assign(node, frame, scope)
        fields += assigned if declares else []
        stdin, writes, reads = self._redirects(node.redirects, frame)
        if not fields:
            if any(isinstance(p, Variable) for w in node.words for p in w.parts):
                self.dangers.append(_unreadable("", "it runs a variable that has no value here"))
            if writes or reads:
                self._report_redirects(">", writes, reads)
                self._record_files(writes, "")
            # `$(< file)` expands to the content of the file.
            return (stdin or "") if reads else ""
        # A builtin changes the current shell; other commands get the assignments in front of them.
        inner = replace(frame, scope=frame.scope if fields[0] in _BUILTINS else scope, stdin=stdin)
        invocation = Invocation(
            program_of(fields[0]),
            tuple(fields[1:]),
            self._zones,
            stdin,
            tuple(writes),
            tuple(reads),
            frame.upstream,
            frame.is_background,
            (*scope.targets(), *production_variables(node)),
        )
        return self._run(invocation, inner, fields[0])

    def _assign(self, node: Simple, frame: _Frame, scope: ShellVariables) -> list[str]:
        """Assign the variables of a command, and return them as arguments of `export`."""
        out = []
        for a in node.assignments:
            run = partial(self._substitution, frame=frame)
            fields = (
                [f for v in a.values for f in scope.fields(v, run)] if a.is_array else [scope.text(a.values[0], run)]
            )
            scope.assign(a.name, fields, is_added=a.is_added, is_array=a.is_array)
            out.append(f"{a.name}={' '.join(fields)}")
            exported = Invocation("export", (out[-1],), self._zones)
            self.invocations.append(exported)
            self._report(exported, is_own=True)
            if a.name in _RUN_VARIABLES and fields and fields[0]:
                self._enter_nested(Script(fields[0]), Invocation(a.name, (), self._zones), frame)
        return out

    def _run(self, run: Invocation, frame: _Frame, typed: str) -> str:
        self._count_step()
        if frame.depth > _MAX_DEPTH:
            raise Unreadable("it is nested too deeply")
        # Words already counted once are analyzed again inside every `sudo` and `env`.
        self._budget.spend_chars(run.size + (_CHARS_PER_ARGUMENT * len(run.args) if frame.depth else 0))
        self._check_name(run, typed)
        self.invocations.append(replace(run, name=typed) if "/" in typed else run)
        dangers_before = len(self.dangers)
        is_script = is_workspace_script(typed, self._zones)
        is_own = frame.is_own or is_script or run.name in self._functions or run.name == _ANY_WORD or has_taint(typed)
        self._report(run, is_own=is_own or self._is_project_program(typed), is_script=is_script)
        if "/" in typed and not (is_own or is_installed(typed)):
            self.dangers.append(unknown_program(strip_taints(typed), run.summary))
        if frame.elevated_by and len(self.dangers) == dangers_before:
            self._check_root(run, frame)
        self.dangers += self._repositories.dangers(run, typed)
        self._note_link(run)
        self._builtin(run, frame)
        out = self._function_call(run, frame) if run.name in self._functions else None
        self._follow_nested(run, frame, typed)
        out = out if out is not None else output_of(run, self._files)
        self._budget.spend_chars(len(out))
        self._record_files(downloaded_files(run), DOWNLOADED)
        if run.name == "tee":
            self._record_files(run.operands, out)
        if run.writes:
            self._record_files(run.writes, out)
            return ""
        return out

    def _check_name(self, run: Invocation, typed: str) -> None:
        if DOWNLOADED in typed or DECODED in typed:
            self.dangers.append(Danger("hidden-code", run.summary))
        elif (has_taint(run.name) and run.name not in (FRESH, SHELL_SETUP)) or "**/" in typed or not typed.strip():
            self.dangers.append(_unreadable(run.summary, _COMPUTED_NAME))
        elif typed.startswith("/etc/init.d/") and "stop" in run.args:
            self.dangers.append(Danger("services", run.summary))
        elif run.name in _EVALUATES_INDEX and any(_INDEX_THAT_RUNS.search(a) for a in run.args):
            self.dangers.append(_unreadable(run.summary, _COMPUTED_INDEX))
        elif typed.startswith("./") and looks_recursive(run):
            self.dangers.append(Danger("hidden-code", run.summary))

    def _check_root(self, run: Invocation, frame: _Frame) -> None:
        """Match a command that runs as root, unless that is usual; a script of a shell is read itself."""
        is_script = run.name in SHELLS and shell_script(run) is not None
        if not (is_script or run.name == _ANY_WORD or is_usual_as_root(run)):
            self.dangers.append(Danger("privileges", frame.elevated_by))

    def _note_link(self, run: Invocation) -> None:
        """Resolve a link that the command makes in what follows: `ln -s ~/photos build; rm -rf build/*`."""
        if run.name == "ln" and len(run.operands) == 2 and run.has("-s", "--symbolic"):
            self._zones = self._zones.with_link(run.operands[1], run.operands[0])

    def _report_redirects(self, name: str, writes: Sequence[str], reads: Sequence[str]) -> None:
        run = Invocation(name, (), self._zones, writes=tuple(writes), reads=tuple(reads))
        self.invocations.append(run)
        self._report(run, is_own=True)

    def _report(self, run: Invocation, *, is_own: bool, is_script: bool = False) -> None:
        for name in matching_names(run.name):
            matched = run if name == run.name else replace(run, name=name)
            self.dangers += rule_dangers(matched, is_own=is_own, is_script=is_script)

    def _builtin(self, run: Invocation, frame: _Frame) -> None:
        """Apply the effect of a builtin; no-op for other commands."""
        scope = frame.scope
        if run.name in ("cd", "pushd", "popd"):
            target = UNKNOWN if run.name == "popd" else run.operands[0] if run.operands else self._zones.home
            self._zones = self._zones.after_cd(target)
            scope.assign("PWD", [self._zones.folder or UNKNOWN])
        elif run.name == "printf" and run.args[:1] == ("-v",) and len(run.args) > 2:
            scope.assign(run.args[1], [output_of(replace(run, args=run.args[2:]), self._files)])
        elif run.name in _DECLARING:
            if run.name in ("declare", "local", "typeset") and run.has("-n"):
                self.dangers.append(_unreadable(run.summary, _NAME_REFERENCE))
            for name, sign, value in (a.partition("=") for a in run.args):
                if sign:
                    scope.assign(name, [value])
        elif run.name == "unset":
            for name in run.operands:
                scope.assign(name, [""])
        elif run.name == "set" and "--" in run.args:
            scope.arguments = [*(scope.arguments[:1] or ["bash"]), *run.args[run.args.index("--") + 1 :]]
        elif run.name == "shift":
            scope.arguments = [*scope.arguments[:1], *scope.arguments[2:]]
        elif run.name in _READING:
            for name in [o for o in run.operands if re.fullmatch(r"\w+", o)] or ["REPLY"]:
                # `find / -name x | while read file`: paths and processes are known by name.
                is_listed = bool(run.upstream) and run.upstream[0] in _LISTS
                scope.assign(name, [(run.stdin or UNKNOWN).split("\n")[0] if is_listed else UNKNOWN])
        elif run.name in ("source", "."):
            scope.is_open = True
            scope.add_target("source", "".join(run.operands[:1]))
        elif run.name == "alias":
            for name, sign, value in (a.partition("=") for a in run.args):
                if sign and value.strip():
                    script = parse(f'{value} "$@"', self._budget, depth=frame.depth)
                    self._functions[name] = Function(name, script.nodes)
                    self._aliases.add(name)

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
        for inner in (*nested_commands(run), *code_of(run)):
            self._enter_nested(inner, run, frame)
        if run.name in SHELLS:
            self._shell(run, frame)
        elif run.name in ("make", "gmake"):
            self._makefile(run, frame)
        elif (run.name in ("source", ".") and run.operands) or (run.operands and language_of(run.name) is not None):
            if not run.operands[0].strip(ALL_TAINTS.replace(FRESH, "")):
                self.dangers.append(_unreadable(run.summary, _COMPUTED_CODE))
            self._file_run(run.operands[0], run, frame)
        self._file_run(typed, run, frame)

    def _shell(self, run: Invocation, frame: _Frame) -> None:
        for option in ("--rcfile", "--init-file"):
            if (path := run.value_of(option)) is not None:
                self._file_run(path, run, frame)
        script = shell_script(run)
        if script is not None:
            self._enter_nested(Script(script[0], script[1] or (run.name,)), run, frame)
        elif runs_stdin(run):
            # A file piped into a shell is the same as a script that is run by its name.
            if run.stdin and run.stdin.strip(FILE):
                self._enter_nested(Script(run.stdin, (run.name, *run.operands)), run, frame)
        else:
            self._file_run(run.operands[0], run, frame)

    def _makefile(self, run: Invocation, frame: _Frame) -> None:
        """Analyze the recipes of a makefile that the same command has written."""
        for path in run.all_values_of("-f", "--file", "--makefile") or ("Makefile", "makefile", "GNUmakefile"):
            if (text := self._files.get(self._zones.classify(path).path)) is not None:
                self._enter_nested(Script(recipes_of(text)), run, frame)

    def _file_run(self, path: str, run: Invocation, frame: _Frame) -> None:
        if path in ("/dev/stdin", "/dev/fd/0"):
            text = run.stdin
        else:
            text = self._files.get(path, self._files.get(self._zones.classify(path).path)) if self._files else None
        if text is not None:
            is_code = language_of(run.name) is not None
            self._enter_nested(Code("", text) if is_code else Script(text, (path, *run.args)), run, frame)

    def _enter_nested(self, inner: NestedCommand, run: Invocation, frame: _Frame) -> None:
        with self._keep_folder(is_kept=not (isinstance(inner, Script) and run.name == "eval")):
            if isinstance(inner, Code):
                self._code(inner, run, frame)
                return
            if inner.is_remote:
                self._zones = self._zones.remote()
            if isinstance(inner, Script):
                self._script(inner, run, frame)
            elif inner.words:
                typed, *rest = inner.words
                assigned = [a for a in run.args if _ASSIGNMENT.match(a)] if run.name in _SET_VARIABLES else ()
                words = replace(run, name=program_of(typed), args=tuple(rest), zones=self._zones, stdin=inner.stdin)
                words = replace(words, writes=(), reads=(), environment=(*run.environment, *assigned))
                elevated_by = frame.elevated_by or (run.summary if run.name in ROOT_PROGRAMS else "")
                is_own = frame.is_own or inner.is_own
                self._run(words, replace(frame.deeper(), elevated_by=elevated_by, is_own=is_own), typed)

    def _script(self, inner: Script, run: Invocation, frame: _Frame) -> None:
        text = inner.text
        if DOWNLOADED in text:
            self.dangers.append(Danger("remote-code", run.summary))
        elif DECODED in text:
            self.dangers.append(Danger("hidden-code", run.summary))
        elif (run.name in SHELLS or run.name in ("eval", "source", ".")) and is_computed(text):
            self.dangers.append(_unreadable(run.summary, _COMPUTED_CODE))
        scope = frame.scope if run.name == "eval" else frame.scope.child()
        scope.arguments = list(inner.arguments) or scope.arguments
        # What is unknown as a whole has been reported.
        self._parse_and_walk(
            text if text.strip(ALL_TAINTS + " \n") else "",
            _Frame(
                scope,
                depth=frame.depth + 1,
                elevated_by=frame.elevated_by,
                is_own=frame.is_own or inner.is_own or inner.is_guess,
            ),
            is_guess=inner.is_guess,
        )

    def _code(self, code: Code, run: Invocation, frame: _Frame) -> None:
        self._budget.spend_chars(len(code.text))
        if not code.text.strip(ALL_TAINTS + " \n"):
            is_file = code.text and not code.text.strip(FILE + "\n")
            self.dangers += [] if is_file else [_unreadable(run.summary, _COMPUTED_CODE)]
        reading = read_code(code.text, self._zones, code.language)
        self.dangers += reading.dangers
        self.dangers += files.write_dangers(Invocation(run.name, (), self._zones, writes=reading.writes))
        for path in reading.deletes:
            self.dangers += files.tree_dangers(run, path)
        if any(next(destructive_statements(s), None) for s in reading.statements):
            self.dangers.append(Danger("database", run.summary))
        for script in reading.scripts:
            self._parse_and_walk(script, _Frame(frame.scope.child(), depth=frame.depth + 1, is_own=True), is_guess=True)

    def _record_files(self, paths: Iterable[str], text: str) -> None:
        for p in paths:
            if p and (not p.startswith("/dev/") or p.startswith("/dev/shm/")):
                self._files[self._zones.classify(p).path] = text


def _is_word(body: Sequence[Node]) -> bool:
    return len(body) == 1 and isinstance(body[0], Simple) and len(body[0].words) == 1
