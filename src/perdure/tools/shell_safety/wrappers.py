"""Commands that run other commands: sudo, env, xargs, find, ssh, bash -c."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perdure.tools.shell_safety.invocation import Invocation, cluster_value
from perdure.tools.shell_safety.rules.rule import git_subcommand
from perdure.tools.shell_safety.taint import paths_of_find
from perdure.tools.shell_safety.types import (
    UNKNOWN,
    Code,
    NestedCommand,
    Script,
    Words,
    has_taint,
    replace_bounded,
    word_set,
)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A wrapper command: its options that take a value, and how many operands precede the nested command."""

    values: str = ""
    skips: int = 0
    script: str = ""
    is_remote: bool = False
    # Whether it runs programs of the project's environment or of a container, which need not be known.
    is_own: bool = False


_CONTAINER = (
    "-u -w -e -v -p -m -h -l --user --workdir --env --env-file --volume --publish --name --network --mount --memory"
    " --cpus --entrypoint --platform --add-host --label --hostname --gpus --device --cap-add --cap-drop --net --index"
)
# Wrappers by name, or by name and sub-command with `.` in between.
_PREFIXES: dict[str, Prefix] = {
    name: prefix
    for names, prefix in {
        "nohup setsid spawn builtin coproc busybox toybox torsocks unbuffer rlwrap numactl firejail chronic bunx entr"
        " valgrind setpriv cross-env mise.exec asdf.exec git.bisect.run": Prefix(),
        "bundle.exec poetry.run pipenv.run pdm.run rye.run hatch.run pnpm.exec yarn.exec": Prefix(is_own=True),
        "run0": Prefix("-u -g -D --user --group --chdir --unit --property --setenv --nice"),
        "screen": Prefix("-S -t -c -h -p -s -T -e -r -x -X"),
        "ld.so": Prefix("--library-path --preload --audit --inhibit-rpath --argv0"),
        "proot": Prefix("-r -b -w -q"),
        "zellij.run": Prefix("-n --name --cwd -d --direction"),
        "sudo": Prefix(
            "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --role --type --chroot"
        ),
        "doas": Prefix("-u -C"),
        "timeout gtimeout": Prefix("-s -k --signal --kill-after", 1),
        "nice": Prefix("-n --adjustment"),
        "ionice": Prefix("-c -n -p -P -u --class --classdata"),
        "stdbuf": Prefix("-i -o -e --input --output --error"),
        "time": Prefix("-f -o --format --output"),
        "exec": Prefix("-a"),
        "strace ltrace": Prefix("-e -o -p -s -P -u -E"),
        "chroot": Prefix("", 1, is_remote=True),
        "nsenter": Prefix("-t --target -S -G", is_remote=True),
        "unshare": Prefix("-S -G -R -w"),
        "flock": Prefix("-w -E --timeout", 1, "-c --command"),
        "caffeinate": Prefix("-t -w"),
        "proxychains proxychains4": Prefix("-f"),
        "xvfb-run": Prefix("-e -f -n -s"),
        "dbus-run-session": Prefix("--config-file"),
        "systemd-run": Prefix("-p -u --unit --property --uid --gid -E"),
        "pkexec": Prefix("--user"),
        "coverage.run xcrun": Prefix("--sdk -sdk --toolchain", is_own=True),
        "gosu su-exec faketime taskset chrt direnv.exec aws-vault.exec": Prefix("", 1),
        "fakeroot": Prefix("-l -s -i"),
        "dotenv": Prefix("-f -e"),
        "npx npm.exec": Prefix("-p --package", 0, "-c"),
        "uvx": Prefix("--from --with"),
        "watch": Prefix("-n --interval -d"),
        "script": Prefix("-B -E -I -m -o -O -T", 1, "-c --command"),
        "su": Prefix("", 99, "-c --command"),
        "runuser": Prefix("-u -g", 0, "-c --command"),
        "nix-shell": Prefix("", 99, "--run"),
        "nu": Prefix("", 99, "-c"),
        "dotenv.run": Prefix("-f -e"),
        "hyperfine": Prefix("-w -r --warmup --runs"),
        "perf": Prefix("-e -o", 1),
        "sg": Prefix("", 1, "-c"),
        "start-stop-daemon": Prefix("", 99, "--exec"),
        "uv.run": Prefix("--with --python -p --extra --group --project --directory", is_own=True),
        "pipx.run": Prefix("--spec"),
        "conda.run mamba.run": Prefix("-n -p --name --prefix", is_own=True),
        "pnpm.dlx yarn.dlx": Prefix("--package -p"),
        "op.run": Prefix("--env-file"),
        "doppler.run": Prefix("-p -c"),
        "vagrant.ssh": Prefix("", 99, "-c", True),
        "docker.exec docker.run docker.compose.exec docker.compose.run docker-compose.exec docker-compose.run": Prefix(
            _CONTAINER, 1, is_remote=True, is_own=True
        ),
        "kubectl.exec oc.exec": Prefix("-n -c --namespace --container", 1, is_remote=True),
        "lxc.exec": Prefix("", 1, is_remote=True, is_own=True),
        "adb.shell": Prefix(is_remote=True),
        "heroku.run": Prefix("-a --app", is_remote=True),
        "fly.ssh.console": Prefix("", 99, "-C", True),
    }.items()
    for name in names.split()
}
_SUBCOMMANDS = [(name.split("."), prefix) for name, prefix in _PREFIXES.items() if "." in name]
_XARGS_VALUES = word_set("-I -n -P -L -d -s -E -a --max-args --max-procs --delimiter --arg-file")
_FD_VALUES = word_set(
    "-e -t -d -E -S -o -c -j --extension --type --max-depth --min-depth --exact-depth --exclude --size --owner --color "
    "--threads --changed-within --changed-before --max-results --base-directory --ignore-file"
)
_SSH_VALUES = word_set("-i -p -l -o -F -L -R -D -J -b -c -E -e -I -m -Q -S -W")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
# The dynamic loader, which runs the program that it is given.
_LOADER = re.compile(r"ld(?:-linux[\w.-]*|-musl[\w.-]*|64)?\.so(?:\.\d)?\Z")
# Commands of `cmake -E` by the program that does the same.
_CMAKE_COMMANDS = {
    "rm": ("rm",),
    "remove": ("rm",),
    "remove_directory": ("rm", "-r"),
    "copy": ("cp",),
    "copy_if_different": ("cp",),
    "copy_directory": ("cp", "-r"),
    "rename": ("mv",),
    "make_directory": ("mkdir",),
    "create_symlink": ("ln", "-s"),
    "touch": ("touch",),
    "tar": ("tar",),
    "cat": ("cat",),
    "env": ("env",),
    "time": ("time",),
}
# A line that a database client hands to the shell, and a program that reads or writes a table.
_CLIENT_SHELL = re.compile(r"\\!([^\n]{1,2000})|^[ \t]*system[ \t]([^\n]{1,2000})", re.M)
_CLIENT_PROGRAM = re.compile(r"\bprogram\s{1,4}'([^'\n]{1,2000})'", re.I)

_Nested = Callable[[Invocation], Iterator[NestedCommand]]


# Options of any program whose value is a command, and words that start one; messages and patterns are not commands.
_COMMAND_OPTION = re.compile(
    r"--(?:[\w-]{1,20}-)?(?:exec|command|cmd|hook|shell|run|pre|program|on-change|upload-pack)(?:=|\Z)"
)
_COMMAND_START = re.compile(
    r"\s*(?:sudo|env|rm|dd|shred|curl|wget|chmod|chown|kill|killall|pkill|mv|git|docker|kubectl|terraform|aws|npm|psql|mysql|ssh|scp"
    r"|bash|sh|python3?|node|nc|tar|find|rsync|systemctl)\s+\S"
)
_QUOTES = word_set(
    "git gh glab echo printf grep egrep fgrep rg ag ack logger say notify-send alias test [ [[ jq yq sed awk"
)
_MAX_GUESSES = 20


def _guesses(run: Invocation) -> Iterator[NestedCommand]:
    """Yield the arguments that look like commands the program would run: `nodemon --exec 'rm -rf src'`."""
    if run.name in _QUOTES or not ("--" in run.args or any(" " in a for a in run.args[:_MAX_GUESSES])):
        return
    if "--" in run.args:
        rest = run.args[run.args.index("--") + 1 :]
        if len(rest) > 1 and _COMMAND_START.match(" ".join(rest[:2])):
            yield Words(rest, is_own=True)
    for before, text in zip(("", *run.args[:_MAX_GUESSES]), run.args[:_MAX_GUESSES], strict=False):
        value = text.partition("=")[2] if text.startswith("--") else text
        is_named = _COMMAND_OPTION.match(text if text.startswith("--") else before) is not None
        if " " in value and (is_named or _COMMAND_START.match(value)):
            yield Script(value, is_guess=True)


def nested_commands(run: Invocation) -> Iterator[NestedCommand]:
    """Yield every command that this program would run."""
    name = {"podman": "docker", "nerdctl": "docker"}.get(run.name, run.name)
    name = "ld.so" if _LOADER.match(name) else name
    special = _SPECIAL.get(name)
    if special is not None:
        yield from special(run)
    if name in _PREFIXES:
        yield from _nested_after(run, run.args, _PREFIXES[name])
    for words, prefix in _SUBCOMMANDS:
        if words[0] == name and (rest := _after_subcommand(run.args, *words[1:])) is not None:
            yield from _nested_after(run, rest, prefix)
    if special is None and name not in _PREFIXES:
        yield from _guesses(run)


def _after_subcommand(args: tuple[str, ...], *words: str) -> tuple[str, ...] | None:
    """Return the arguments after the sub-command, skipping options and their values before it."""
    at = 0
    for w in words:
        while at < len(args) and args[at] != w and (args[at].startswith("-") or (at and args[at - 1].startswith("-"))):
            at += 1
        if at >= len(args) or args[at] != w:
            return None
        at += 1
    return args[at:]


def _ends_with_option(arg: str, values: list[str]) -> bool:
    """Whether the last letter of a cluster such as `-dmS` is an option whose value is the next argument."""
    if not re.fullmatch(r"-[A-Za-z]{2,}", arg):
        return False
    option, attached = cluster_value(arg, "".join(v[1] for v in values if len(v) == 2))
    return bool(option) and not attached


def _nested_after(run: Invocation, args: tuple[str, ...], prefix: Prefix) -> Iterator[NestedCommand]:
    values, skips = prefix.values.split(), prefix.skips
    if prefix.script:
        text = Invocation(run.name, args, run.zones).value_of(*prefix.script.split())
        if text is not None:
            yield Script(text, is_remote=prefix.is_remote, is_own=prefix.is_own)
            return
    at = 0
    while at < len(args):
        a = args[at]
        if a == "--":
            at += 1
            # Operands before the dashes belong to the wrapper.
            skips = 0 if prefix.is_remote else skips
            if skips == 0:
                break
        elif a.startswith("-") and len(a) > 1:
            at += 2 if a in values or _ends_with_option(a, values) else 1
        elif _ASSIGNMENT.match(a) and run.name in ("sudo", "doas", "cross-env", "dotenv"):
            at += 1
        elif skips:
            skips -= 1
            at += 1
        else:
            break
    rest = args[at:]
    if not rest:
        return
    if run.name in ("watch", "hyperfine") or (prefix.is_remote and len(rest) == 1):
        yield Script(" ".join(rest), is_remote=prefix.is_remote, is_own=prefix.is_own)
    else:
        yield Words(rest, run.stdin, prefix.is_remote, prefix.is_own)


def _env(run: Invocation) -> Iterator[NestedCommand]:
    at, args = 0, run.args
    while at < len(args):
        a = args[at]
        if a.startswith(("-S", "--split-string")):
            inline = a.partition("=")[2] if a.startswith("--") else a[2:]
            yield Script(" ".join((inline, *args[at + 1 :])))
            return
        if a in ("-u", "--unset", "-C", "--chdir"):
            at += 2
        elif a.startswith("-") or _ASSIGNMENT.match(a):
            at += 1
        else:
            yield Words(args[at:], run.stdin)
            return


def _xargs(run: Invocation) -> Iterator[NestedCommand]:
    at, placeholder = 0, ""
    while at < len(run.args) and run.args[at].startswith("-"):
        a = run.args[at]
        if a.startswith("-I"):
            placeholder = a[2:] or (run.args[at + 1] if at + 1 < len(run.args) else "{}")
        at += 2 if a in _XARGS_VALUES else 1
    words = run.args[at:] or ("echo",)
    arguments = (run.stdin or "").split()
    # Unknown items: deleting them is treated as deleting a tree.
    items = [f"**/{g}" if has_taint(g) else g for g in arguments[:20]] or [f"**/{UNKNOWN}"]
    if placeholder:
        for item in items[:5]:
            yield Words(tuple(replace_bounded(w, placeholder, item) for w in words))
    else:
        yield Words((*words, *items))


_MAX_PARALLEL = 10


def _parallel(run: Invocation) -> Iterator[NestedCommand]:
    at = 0
    while at < len(run.args) and run.args[at].startswith("-"):
        at += 1
        at += at < len(run.args) and re.fullmatch(r"\d+%?", run.args[at]) is not None
    words = run.args[at:]
    split = next((i for i, w in enumerate(words) if w.startswith(":::")), len(words))
    template, listed = " ".join(words[:split]), [w for w in words[split + 1 :] if not w.startswith(":::")]
    if not template.strip():
        # Without a template every item is a command of its own.
        yield from (Script(item) for item in (listed or (run.stdin or UNKNOWN).split("\n"))[:_MAX_PARALLEL])
        return
    for item in (listed or (run.stdin or "").split() or [f"**/{UNKNOWN}"])[:_MAX_PARALLEL]:
        filled = replace_bounded(re.sub(r"\{[./]{0,3}\}", "{}", template), "{}", item)
        yield Script(filled if "{" in template else f"{template} {item}")


def _find(run: Invocation) -> Iterator[NestedCommand]:
    for i, a in enumerate(run.args):
        if a not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        words = []
        for w in run.args[i + 1 :]:
            if w in (";", "+"):
                break
            words.append(w)
        for path in paths_of_find(run)[:5]:
            yield Words(tuple(replace_bounded(w, "{}", path) for w in words))


def _fd(run: Invocation) -> Iterator[NestedCommand]:
    for i, a in enumerate(run.args):
        if a in ("-x", "-X", "--exec", "--exec-batch"):
            rest = run.args[i + 1 :]
            for many in _paths_of_fd(run.args[:i])[:5]:
                filled = tuple(replace_bounded(w, "{}", many) for w in rest)
                yield Words(filled if any("{" in w for w in rest) else (*filled, many))
            return


def _paths_of_fd(args: tuple[str, ...]) -> list[str]:
    """Return the paths that `fd` would match, as patterns: every start folder with the pattern or the extension."""
    words, extension, at = [], "", 0
    while at < len(args):
        a = args[at]
        following = args[at + 1] if at + 1 < len(args) else ""
        if a in ("-e", "--extension"):
            extension = following
        if not a.startswith("-"):
            words.append(a)
        at += 2 if a in _FD_VALUES else 1
    pattern = words[0] if words and words[0] not in (".", "") else f"*.{extension}" if extension else "*"
    return [f"{folder.rstrip('/') or '/'}/**/{pattern}" for folder in words[1:] or ["."]]


def _ssh(run: Invocation) -> Iterator[NestedCommand]:
    at = 0
    while at < len(run.args) and run.args[at].startswith("-"):
        at += 2 if run.args[at] in _SSH_VALUES else 1
    for setting in run.all_values_of("-o"):
        name, _, value = setting.partition("=")
        if name.lower() in ("proxycommand", "localcommand", "knownhostscommand"):
            yield Script(value)
    rest = run.args[at + 1 :]
    rest = rest[1:] if rest[:1] == ("--",) else rest
    if rest:
        yield Script(" ".join(rest), is_remote=True)
    elif run.stdin and not has_taint(run.stdin):
        yield Script(run.stdin, is_remote=True)


def _git(run: Invocation) -> Iterator[NestedCommand]:
    for setting in run.all_values_of("-c"):
        value = setting.partition("=")[2]
        if value.startswith("!"):
            yield Script(value[1:])
        elif re.match(r"core\.(?:pager|editor|sshcommand|fsmonitor|hookspath)", setting, re.I):
            yield Script(value)
    if run.operands[:1] == ("config",):
        yield from (Script(o[1:]) for o in run.operands if o.startswith("!"))
    if (rest := _after_subcommand(run.args, "submodule", "foreach")) is not None:
        yield Script(" ".join(a for a in rest if a != "--recursive"))
    yield from (Script(o.removeprefix("ext::")) for o in run.operands if o.startswith("ext::"))
    yield from (Script(text) for text in run.all_values_of("--upload-pack", "--receive-pack", "--extcmd"))
    name, sub = git_subcommand(run)
    if (option := {"clone": "-u", "difftool": "-x", "grep": "-O"}.get(name)) is not None:
        yield from (Script(text, is_guess=True) for text in sub.all_values_of(option) if text)
    if "rebase" in run.args:
        yield from (Script(t) for t in run.all_values_of("-x", "--exec"))
    if "filter-branch" in run.args:
        yield from (Script(t) for t in run.all_values_of("--tree-filter", "--index-filter", "--msg-filter"))


def _embedded_commands(run: Invocation) -> Iterator[NestedCommand]:
    """Yield the arguments of an editor, terminal multiplexer or debugger that may be commands, without their prefix."""
    for text in (*run.args, run.stdin or ""):
        for line in text.split("\n"):
            command = re.sub(r"^[+:!.\s]*(?:silent|execute|shell|system|spawn|exec|send)?[!\s'\"]*", "", line)
            if " " in command and (run.name != "sqlite3" or line.lstrip().startswith(".")):
                yield Script(command, is_guess=True)


def _database_client(run: Invocation) -> Iterator[NestedCommand]:
    """Yield the shell commands in the statements of a database client."""
    for text in (*run.args, run.stdin or ""):
        yield from (Script(shell or system) for shell, system in _CLIENT_SHELL.findall(text)[:_MAX_PARALLEL])
        yield from (Script(program) for program in _CLIENT_PROGRAM.findall(text)[:_MAX_PARALLEL])


def _cmake(run: Invocation) -> Iterator[NestedCommand]:
    rest = _after_subcommand(run.args, "-E")
    if rest and (words := _CMAKE_COMMANDS.get(rest[0])) is not None:
        yield Words((*words, *rest[1:]))
    elif rest and rest[0] == "chdir":
        yield Words(rest[2:])


def _nix(run: Invocation) -> Iterator[NestedCommand]:
    at = next((i for i, a in enumerate(run.args) if a in ("-c", "--command")), len(run.args))
    if run.args[at + 1 :]:
        yield Words(run.args[at + 1 :])


def _less(run: Invocation) -> Iterator[NestedCommand]:
    yield from (Script(a.lstrip("+!")) for a in run.args if a.startswith("+!"))


def _values(*options: str) -> _Nested:
    """Return a function that yields the values of these options, which are commands."""
    return lambda run: (Script(text) for text in run.all_values_of(*options) if text)


def _tar(run: Invocation) -> Iterator[NestedCommand]:
    for text in run.all_values_of("--checkpoint-action", "--to-command", "-I", "--use-compress-program", "-F"):
        yield Script(text.removeprefix("exec="))


def _sed(run: Invocation) -> Iterator[NestedCommand]:
    for text in (*run.all_values_of("-e", "--expression"), *run.operands[:1]):
        yield from (Script(match, is_guess=True) for match in re.findall(r"(?:^|[;{}\d$/])\s*e\s+(.+)", text))
        if match := re.search(r"s([/|#,])(?:\\.|(?!\1).)*\1((?:\\.|(?!\1).)*)\1[gipI\d]*e", text):
            yield Script(re.sub(r"\\(.)", r"\1", match.group(2)))


def recipes_of(makefile: str) -> str:
    """Return the commands of a makefile, with its variables in the syntax of the shell."""
    recipes = "\n".join(line for line in makefile.split("\n") if line.startswith("\t")) or makefile
    recipes = re.sub(r"(?m)^\t[@+-]+", "\t", recipes)
    return re.sub(r"\$\((\w{1,60})\)", r"${\1}", recipes).replace("$$", "$")


def _make(run: Invocation) -> Iterator[NestedCommand]:
    if run.value_of("-f", "--file") in ("-", "/dev/stdin") and run.stdin:
        yield Script(recipes_of(run.stdin))
    yield from (Script(o[6:]) for o in run.operands if o.startswith("SHELL="))
    for text in run.all_values_of("--eval"):
        yield Script(re.sub(r"^\S*:\s*;?", "", text))


def _pwsh(run: Invocation) -> Iterator[NestedCommand]:
    text = run.value_of("-c", "-Command", "-command")
    yield Code("powershell", text if text else " ".join(run.args))


def _cmd(run: Invocation) -> Iterator[NestedCommand]:
    if rest := _after_subcommand(run.args, "/c") or _after_subcommand(run.args, "/C"):
        yield Script(" ".join(rest), is_guess=True)


def _python_module(run: Invocation) -> Iterator[NestedCommand]:
    for i, a in enumerate(run.args[:-1]):
        if a == "-m":
            yield Words((run.args[i + 1], *run.args[i + 2 :]), run.stdin, is_own=True)
            return
        if not a.startswith("-"):
            return


def _java(run: Invocation) -> Iterator[NestedCommand]:
    """Yield the program of `java -jar tool.jar`, which is known by the name of its file."""
    if (jar := run.value_of("-jar")) and jar in run.args:
        name = re.sub(r"(?:-[\d.]+)?(?:-(?:all|jar-with-dependencies|SNAPSHOT))?\.jar\Z", "", jar)
        yield Words((name.rpartition("/")[2], *run.args[run.args.index(jar) + 1 :]), run.stdin, is_own=True)


def _command(run: Invocation) -> Iterator[NestedCommand]:
    if not run.has("-v", "-V"):
        yield from _nested_after(run, run.args, Prefix())


_SPECIAL: dict[str, _Nested] = {
    name: nested
    for names, nested in {
        "env": _env,
        "xargs gxargs": _xargs,
        "parallel": _parallel,
        "find gfind": _find,
        "fd fdfind": _fd,
        "ssh": _ssh,
        "git": _git,
        "vim vi nvim ex view tmux screen gdb expect sqlite3": _embedded_commands,
        "tar bsdtar": _tar,
        "rsync": lambda run: (Script(text) for text in run.all_values_of("-e", "--rsh")),
        "sed gsed": _sed,
        "trap": lambda run: (Script(o) for o in run.operands[:1] if o not in ("-", "")),
        "eval": lambda run: iter([Script(" ".join(run.args))]),
        "alias": lambda run: (Script(a.partition("=")[2]) for a in run.args if "=" in a),
        "command": _command,
        "at batch": lambda run: iter([Script(run.stdin)] if run.stdin else []),
        "make": _make,
        "pwsh powershell": _pwsh,
        "cmd": _cmd,
        "nix": _nix,
        "psql mysql mariadb": _database_client,
        "cmake": _cmake,
        "less more": _less,
        "man": _values("-P", "--pager", "-H", "--html"),
        "split gsplit": _values("--filter"),
        "sort gsort": _values("--compress-program"),
        "zip": _values("-TT", "--unzip-command"),
        "mapfile readarray": _values("-C"),
        "python python3 python2 py": _python_module,
        "java": _java,
    }.items()
    for name in names.split()
}
