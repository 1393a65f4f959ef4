"""Split a shell command line into its commands and classify them.

This is for describing what ran, not for judging its safety: unusual quoting may be read wrongly without harm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.tool_calls.call_line import CallKind

_MAX_COMMAND_CHARS = 6_000
_MAX_COMMANDS = 40
_MAX_WORDS = 60

_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w{0,40})\1")
_TOKEN = re.compile(
    r"(?P<operator>&&|\|\|?|;+|\n|&(?![>&\d]))"
    r"|(?P<redirect>\d?(?:>>?|<)&?\s*(?:\"[^\"]*\"|[^\s;|&<>]+)|&>>?\s*[^\s;|&]+)"
    r"|(?P<word>(?:'[^']*'|\"(?:[^\"\\]|\\[\s\S])*\"|\$\([^()]*\)|\\[\s\S]|[^\s;|&<>'\"\\])+|['\"<])"
)
_QUOTED = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\[\s\S])*)\"|\\([\s\S])")
# What remains of `-m "$(cat <<EOF …)"` without its here-document.
_MESSAGE = re.compile(r"\"\$\(cat\s*\)\"")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NOISE = re.compile(
    r"\s*(?:2>&1|2>/dev/null|\|\s*(?:tail|head)\s+(?:-n\s*)?-?\d+|\|\s*cat|;\s*echo \"?exit:? ?\$\?\"?)(?=\s|$|\))"
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WRAPPERS = _names(
    "sudo time nice nohup command env exec stdbuf unbuffer timeout gtimeout xvfb-run caffeinate do then else !"
)
_RUNNERS = _names("npx bunx pnpx uvx pipx")
_FILTERS = _names(
    "grep egrep rg head tail awk sed sort uniq wc cut tr tee cat less column jq fold nl xargs python3 python"
)
_READERS = _names(
    "cat head tail less more bat nl sed awk jq wc stat file xxd od hexdump strings column diff cmp md5sum sha256sum"
)
_LISTERS = _names("ls find tree fd grep egrep fgrep rg ag ack which whereis du df pwd type")
_TESTERS = _names(
    "pytest py.test jest vitest mocha rspec ctest phpunit tox nox ava tap playwright cypress gotestsum behave unittest"
)
_BUILDERS = _names(
    "gcc g++ cc c++ clang clang++ ld make gmake ninja cmake meson bazel tsc tsgo eslint ruff mypy pyright flake8 "
    "pylint golangci-lint gofmt goimports prettier black isort staticcheck shellcheck biome webpack vite rollup "
    "esbuild gradle gradlew mvn xcodebuild javac rustc stylelint hadolint yamllint msbuild scons ant pre-commit"
)
_SILENT = _names(
    "cd echo printf true false sleep export set source . mkdir touch cp mv chmod chown ln test [ done fi for while if "
    "exit wait"
)
_TASK_RUNNERS = _names(
    "npm yarn pnpm bun deno mise just make task rake cargo go uv poetry hatch pdm gradle gradlew mvn dotnet swift zig "
    "sbt mix lerna nx turbo"
)
_TEST_TASK = re.compile(r"(?:^|[:_\-./])(?:test|tests|spec|e2e|nextest|unittest|verify)(?:$|[:_\-.])", re.I)
_BUILD_TASK = re.compile(
    r"(?:^|[:_\-.])(?:build|compile|lint|fmt|format|check|typecheck|type-check|tsc|vet|clippy|install|ci|generate|"
    r"bundle|doc)(?:$|[:_\-.])",
    re.I,
)
# Options of a test run that do not change which tests run, alone or with the word behind them.
_TEST_NOISE = _names(
    "-v -vv -vvv -q -qq -s -x -ra -rA -rf -race -count -timeout --timeout -n --tb --durations --no-header --verbose -p "
    "--silent --color --colors --no-cov --cov --maxfail --reporter --forceExit --runInBand -i -o --output --dist "
    "--json --nocapture --no-fail-fast --quiet --workspace -j --parallel --watch --watchAll --passWithNoTests --ci"
)
_WITH_VALUE = _names("-timeout --timeout -n --tb --durations -p --color --maxfail --reporter -o --output --dist -j")
# Options that choose tests by their names.
_SELECTING = _names("-run --run -k -t -m --grep -g --testNamePattern --filter --tests --test -bench -skip")
_PATH_ENDS = 4
_QUOTABLE = re.compile(r"[ |&;<>()$]")
_GIT_TOOLS = _names("git gh hub glab jj")
_WEB_TOOLS = _names("curl wget http https httpie xh")
_DELETERS = _names("rm rmdir unlink trash")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of a line: its words without quotes and wrappers, and whether it only filters another's output."""

    words: tuple[str, ...]
    kind: CallKind
    is_filter: bool = False
    is_background: bool = False
    # The file that its output was redirected to.
    output_file: str = ""
    # The command has a fallback behind `||`: that the line succeeded does not mean that it did.
    has_fallback: bool = False
    # What joins it to the next command: `&&`, `||`, `|`, `;`, a line break; "" for the last one.
    operator: str = ""

    @property
    def program(self) -> str:
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""

    def option(self, *names: str) -> str:
        """Return the value of an option given as `--name value` or `--name=value`."""
        for number, word in enumerate(self.words):
            for name in names:
                if word == name and number + 1 < len(self.words):
                    return self.words[number + 1]
                if name.startswith("--") and word.startswith(f"{name}="):
                    return word[len(name) + 1 :]
        return ""

    @property
    def operands(self) -> tuple[str, ...]:
        """The words after the program that are not options."""
        return tuple(w for w in self.words[1:] if not w.startswith("-"))


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A command line: its commands, and the bodies of its here-documents."""

    text: str
    commands: tuple[ShellCommand, ...]
    documents: tuple[str, ...] = ()
    folder: str = ""
    # Whether all of it was read: not where it is too long, or a quote is open.
    is_complete: bool = True

    def has_fallback(self, command: ShellCommand) -> bool:
        """Whether the failure of a command, or of one joined to it by `&&`, leads to another one behind `||`."""
        following = self.commands[self.commands.index(command) :] if command in self.commands else ()
        return any(c.has_fallback for c in following)

    def of_kind(self, *kinds: CallKind) -> list[ShellCommand]:
        return [c for c in self.commands if c.kind in kinds and not c.is_filter]


def parse_shell(command: str) -> ShellLine:
    """Split a command line; never fails, whatever the text."""
    text, documents = _take_documents(command[:200_000]) if "<<" in command else (command, [])
    commands: list[ShellCommand] = []
    words: list[str] = []
    output_file = ""
    is_piped = False
    is_complete = len(text) <= _MAX_COMMAND_CHARS
    for match in _TOKEN.finditer(text[:_MAX_COMMAND_CHARS]):
        if match.lastgroup == "word":
            is_complete = is_complete and match[0] not in ("'", '"') and len(words) < _MAX_WORDS
            if len(words) < _MAX_WORDS:
                words.append(match[0])
        elif match.lastgroup == "redirect":
            target = match[0].lstrip("012&")
            if target.startswith(">") and "/dev/null" not in target and ">&" not in target:
                output_file = _unquote(target.lstrip("> "))
        elif words:
            commands.append(_command(words, is_piped=is_piped, operator=match[0], output_file=output_file))
            words, output_file, is_piped = [], "", match[0] == "|"
            if len(commands) >= _MAX_COMMANDS:
                is_complete = False
                break
    if words and len(commands) < _MAX_COMMANDS:
        commands.append(_command(words, is_piped=is_piped, operator="", output_file=output_file))
    return ShellLine(text, tuple(commands), tuple(documents), _folder(commands), is_complete)


def _take_documents(command: str) -> tuple[str, list[str]]:
    """Separate the bodies of here-documents from the command line."""
    documents: list[str] = []
    pieces: list[str] = []
    position = 0
    for _ in range(12):
        match = _HEREDOC.search(command, position)
        if match is None:
            break
        start = command.find("\n", match.end())
        if start < 0:
            break
        stop = _document_end(command, start, match[2])
        documents.append(command[start + 1 : stop])
        end = command.find(match[2], stop) + len(match[2]) if stop < len(command) else len(command)
        pieces.append(command[position : match.start()].rstrip() + command[match.end() : start])
        position = end
    pieces.append(command[position:])
    return "".join(pieces), documents


def _document_end(command: str, start: int, tag: str) -> int:
    match = re.compile(rf"\n[ \t]*{tag}(?=\s|\)|$)").search(command, start)
    return match.start() if match is not None else len(command)


def _command(words: list[str], *, is_piped: bool, operator: str, output_file: str) -> ShellCommand:
    plain = _without_wrappers([_unquote(w) if w[0] in "'\"\\" or "'" in w or '"' in w else w for w in words])
    program = plain[0].rsplit("/", 1)[-1] if plain else ""
    return ShellCommand(
        words=tuple(plain),
        kind=_classify(program, plain),
        is_filter=is_piped and program in _FILTERS,
        is_background=operator == "&",
        output_file=output_file,
        has_fallback=operator == "||",
        operator=operator,
    )


def _unquote(word: str) -> str:
    return _QUOTED.sub(lambda m: m[1] or m[2] or m[3] or "", word)


def _without_wrappers(words: list[str]) -> list[str]:
    """Drop assignments and programs that run another one."""
    start = 0
    while start < len(words) - 1:
        word = words[start].lstrip("({")
        if not word or _ASSIGNMENT.match(word):
            start += 1
        elif word in _WRAPPERS or word in _RUNNERS:
            start += 1
            while start < len(words) - 1 and (words[start].startswith("-") or words[start].rstrip("smh").isdigit()):
                start += 1
        elif _runs_next(word, words[start + 1]) or (_PYTHON.fullmatch(word) and words[start + 1] == "-m"):
            start += 2
        else:
            break
    rest = words[start:] or words[-1:]
    return [rest[0].lstrip("({"), *rest[1:]] if rest else rest


def _runs_next(word: str, following: str) -> bool:
    """Whether two words run the program after them, as `uv run` does."""
    if word in ("uv", "poetry", "pdm", "hatch", "pipenv", "rye"):
        return following == "run"
    return word in ("bundle", "pnpm", "yarn", "npm") and following in ("exec", "dlx")


def _classify(program: str, words: list[str]) -> CallKind:
    if program in _GIT_TOOLS:
        return "git"
    if program in _TESTERS:
        return "test"
    if program in _TASK_RUNNERS and (kind := _task_kind(words)) is not None:
        return kind
    if program in _BUILDERS:
        return "build"
    if program == "sed" and any(w.startswith("-i") or w == "--in-place" for w in words[1:4]):
        return "edit"
    if program in _LISTERS:
        return "search"
    if program in _READERS:
        return "read"
    if program in _WEB_TOOLS:
        return "web"
    if program in _DELETERS:
        return "delete"
    if program.endswith((".sh", ".py", ".js", ".ts")) or program in ("bash", "sh", "python", "python3", "node"):
        return "test" if any(_TEST_TASK.search(w.rsplit("/", 1)[-1]) for w in words[:3]) else "shell"
    return "other" if program in _SILENT else "shell"


def _task_kind(words: list[str]) -> CallKind | None:
    """Return the kind of `npm run lint`, `go test ./…`, `make check` and the like, by the name of the task."""
    for word in [w for w in words[1:] if not w.startswith("-")][:3]:
        if word == "run":
            continue
        if _TEST_TASK.search(word) and not word.endswith((".md", ".txt")):
            return "test"
        if _BUILD_TASK.search(word):
            return "build"
    return None


def _folder(commands: list[ShellCommand]) -> str:
    """Return the folder of the last `cd` or `git -C`."""
    for command in reversed(commands):
        target = ""
        if command.program == "cd" and len(command.words) > 1:
            target = command.words[1]
        elif command.program == "git" and len(command.words) > 2 and command.words[1] == "-C":
            target = command.words[2]
        if target and target != "-" and "$" not in target:
            return target
    return ""


def command_label(line: ShellLine) -> str:
    """Return the command line without what is of no interest afterwards: `cd x &&`, `2>&1`, `| tail -20`."""
    text = line.text.strip()
    match = re.match(r"(?:cd\s+(?:\"[^\"]*\"|[^\s;&|]+)\s*(?:&&|;)\s*)+(?=\S)", text[:600])
    if match is not None:
        text = text[match.end() :]
    return " ".join(_NOISE.sub("", _MESSAGE.sub("…", text[:1_500]).replace("\n", " ; ")).split())


def test_label(line: ShellLine) -> str:
    """Return the tests that a command line runs: runner, files and filters, without what they do not depend on."""
    labels: list[str] = []
    for command in line.of_kind("test")[:3]:
        kept: list[str] = []
        words = iter(command.words)
        for word in words:
            name, equals, _ = word.partition("=")
            if name not in _TEST_NOISE or (name == "-p" and command.program == "cargo"):
                kept.append(f"'{word}'" if _QUOTABLE.search(word) else word)
            elif name in _WITH_VALUE and not equals:
                next(words, None)
        labels.append(" ".join(kept))
    return "; ".join(dict.fromkeys(labels))


def short_command(command: str, room: int) -> str:
    """Return a command within about `room` characters: a test run keeps the names and files that it is limited to."""
    if len(command) <= room and "\n" not in command:
        return command
    line = parse_shell(command)
    tests = test_label(line)
    label = tests or command_label(line)
    if len(label) > room:
        label = " ".join(map(_short_path, label.split(" ")))
    room = room if not tests else 2 * room
    return label if len(label) <= room else f"{label[: room // 2].rstrip()} … {label[-room // 3 :].lstrip()}"


def _short_path(word: str) -> str:
    parts = word.split("/")
    is_path = len(parts) > _PATH_ENDS and not word.startswith(("'", "-")) and "://" not in word
    return "/".join((*parts[:2], "…", *parts[-2:])) if is_path else word


def tested_paths(command: str) -> tuple[str, ...]:
    """Return the files, folders and packages that a command line limits its tests to; none where it runs all."""
    paths: list[str] = []
    for run in parse_shell(command).of_kind("test"):
        words = iter(run.words[1:])
        named: list[str] = []
        for word in words:
            if word.startswith("-"):
                if word in _WITH_VALUE or word in _SELECTING:
                    next(words, None)
            elif "/" in word or "." in word:
                named.append(word.partition("::")[0])
        if not named or any(w.strip("./") == "" for w in named):
            return ()
        paths += named
    return tuple(paths)


def covers(paths: Sequence[str], file: str) -> bool:
    """Return whether tests limited to these paths run those of a file."""
    return not paths or any(_is_below(path.removeprefix("./"), f"/{file}") for path in paths)


def _is_below(path: str, file: str) -> bool:
    if path.endswith("/...") or not file.endswith(".go"):
        return f"/{path.removesuffix('...').strip('/')}" in file
    # A package of Go without those below it.
    return f"/{file.rpartition('/')[0].strip('/')}".endswith(f"/{path.strip('/')}") or file.endswith(f"/{path}")
