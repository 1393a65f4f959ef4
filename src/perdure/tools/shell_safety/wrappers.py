"""Commands that run other commands: sudo, env, xargs, find, ssh, bash -c."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.limits import replace_bounded
from perdure.tools.shell_safety.taint import paths_of_find
from perdure.tools.shell_safety.types import UNKNOWN, Code, NestedCommand, Script, Words, has_taint


@dataclass(frozen=True, slots=True)
class Prefix:
    """A wrapper command: its options that take a value, and how many operands precede the nested command."""

    values: str = ""
    skips: int = 0
    script: str = ""
    is_remote: bool = False


PREFIXES: dict[str, Prefix] = {
    "sudo": Prefix("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --role --type --chroot"),
    "doas": Prefix("-u -C"),
    "nohup": Prefix(),
    "timeout": Prefix("-s -k --signal --kill-after", 1),
    "gtimeout": Prefix("-s -k --signal --kill-after", 1),
    "nice": Prefix("-n --adjustment"),
    "ionice": Prefix("-c -n -p -P -u --class --classdata"),
    "stdbuf": Prefix("-i -o -e --input --output --error"),
    "setsid": Prefix(),
    "time": Prefix("-f -o --format --output"),
    "exec": Prefix("-a"),
    "builtin": Prefix(),
    "strace": Prefix("-e -o -p -s -P -u -E"),
    "ltrace": Prefix("-e -o -p -s -u"),
    "chroot": Prefix("", 1, is_remote=True),
    "nsenter": Prefix("-t --target -S -G", is_remote=True),
    "unshare": Prefix("-S -G -R -w"),
    "flock": Prefix("-w -E --timeout", 1, "-c"),
    "busybox": Prefix(),
    "toybox": Prefix(),
    "caffeinate": Prefix("-t -w"),
    "proxychains": Prefix("-f"),
    "proxychains4": Prefix("-f"),
    "torsocks": Prefix(),
    "xvfb-run": Prefix("-e -f -n -s"),
    "dbus-run-session": Prefix("--config-file"),
    "systemd-run": Prefix("-p -u --unit --property --uid --gid -E"),
    "pkexec": Prefix("--user"),
    "gosu": Prefix("", 1),
    "su-exec": Prefix("", 1),
    "fakeroot": Prefix("-l -s -i"),
    "faketime": Prefix("", 1),
    "unbuffer": Prefix(),
    "rlwrap": Prefix(),
    "taskset": Prefix("", 1),
    "chrt": Prefix("", 1),
    "numactl": Prefix(),
    "firejail": Prefix(),
    "dotenv": Prefix("-f -e"),
    "cross-env": Prefix(),
    "chronic": Prefix(),
    "npx": Prefix("-p --package", 0, "-c"),
    "bunx": Prefix(),
    "uvx": Prefix("--from --with"),
    "watch": Prefix("-n --interval -d", 0),
    "entr": Prefix(),
    "script": Prefix("", 99, "-c"),
    "su": Prefix("", 99, "-c"),
    "runuser": Prefix("-u -g", 0, "-c"),
    "nix-shell": Prefix("", 99, "--run"),
    "hyperfine": Prefix("-w -r --warmup --runs"),
    "perf": Prefix("-e -o", 1),
    "valgrind": Prefix(),
    "coverage": Prefix("", 1),
    "setpriv": Prefix(),
    "sg": Prefix("", 1, "-c"),
    "start-stop-daemon": Prefix("", 99, "--exec"),
}
# Sub-commands that run another command.
SUBCOMMANDS: dict[tuple[str, ...], Prefix] = {
    ("bundle", "exec"): Prefix(),
    ("poetry", "run"): Prefix(),
    ("uv", "run"): Prefix("--with --python -p --extra --group --project --directory"),
    ("pipenv", "run"): Prefix(),
    ("pdm", "run"): Prefix(),
    ("rye", "run"): Prefix(),
    ("hatch", "run"): Prefix(),
    ("pipx", "run"): Prefix("--spec"),
    ("conda", "run"): Prefix("-n -p --name --prefix"),
    ("mamba", "run"): Prefix("-n -p"),
    ("npm", "exec"): Prefix("-p --package", 0, "-c"),
    ("pnpm", "exec"): Prefix(),
    ("pnpm", "dlx"): Prefix("--package"),
    ("yarn", "dlx"): Prefix("-p"),
    ("yarn", "exec"): Prefix(),
    ("direnv", "exec"): Prefix("", 1),
    ("mise", "exec"): Prefix(),
    ("asdf", "exec"): Prefix(),
    ("op", "run"): Prefix("--env-file"),
    ("doppler", "run"): Prefix("-p -c"),
    ("aws-vault", "exec"): Prefix("", 1),
    ("nix", "develop"): Prefix("", 99, "-c"),
    ("vagrant", "ssh"): Prefix("", 99, "-c", True),
    ("docker", "exec"): Prefix("-u -w -e --user --workdir --env --env-file", 1, is_remote=True),
    ("docker", "run"): Prefix(
        "-u -w -e -v -p -m -h -l --user --workdir --env --env-file --volume --publish --name --network --mount --memory"
        " --cpus --entrypoint --platform --add-host --label --hostname --gpus --device --cap-add --cap-drop --net",
        1,
        is_remote=True,
    ),
    ("docker", "compose", "exec"): Prefix("-u -w -e --user --workdir --env --index", 1, is_remote=True),
    ("docker", "compose", "run"): Prefix(
        "-u -w -e -v -p --user --workdir --env --name --entrypoint", 1, is_remote=True
    ),
    ("docker-compose", "exec"): Prefix("-u -w -e --user --workdir --env", 1, is_remote=True),
    ("docker-compose", "run"): Prefix("-u -w -e -v -p --user --workdir --env --name --entrypoint", 1, is_remote=True),
    ("kubectl", "exec"): Prefix("-n -c --namespace --container", 1, is_remote=True),
    ("oc", "exec"): Prefix("-n -c", 1, is_remote=True),
    ("lxc", "exec"): Prefix("", 1, is_remote=True),
    ("git", "bisect", "run"): Prefix(),
    ("heroku", "run"): Prefix("-a --app", 0, is_remote=True),
    ("fly", "ssh", "console"): Prefix("", 99, "-C", True),
}


def nested_commands(run: Invocation) -> Iterator[NestedCommand]:
    """Yield every command that this program would run."""
    name = {"podman": "docker", "nerdctl": "docker"}.get(run.name, run.name)
    special = _SPECIAL.get(name)
    if special is not None:
        yield from special(run)
    if name in PREFIXES:
        yield from _nested_after(run, run.args, PREFIXES[name])
    for words, prefix in SUBCOMMANDS.items():
        if words[0] == name and (rest := _after_subcommand(run.args, words[1:])) is not None:
            yield from _nested_after(run, rest, prefix)


def _after_subcommand(args: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the arguments after the sub-command, skipping options and their values before it."""
    at = 0
    for w in words:
        while at < len(args) and args[at] != w and (args[at].startswith("-") or (at and args[at - 1].startswith("-"))):
            at += 1
        if at >= len(args) or args[at] != w:
            return None
        at += 1
    return args[at:]


def _nested_after(run: Invocation, args: tuple[str, ...], prefix: Prefix) -> Iterator[NestedCommand]:
    values, skips = prefix.values.split(), prefix.skips
    if prefix.script:
        text = Invocation(run.name, args, run.zones).value_of(prefix.script)
        if text is not None:
            yield Script(text, is_remote=prefix.is_remote)
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
            at += 2 if a in values else 1
        elif re.match(r"[A-Za-z_]\w*=", a) and run.name in ("sudo", "doas", "cross-env", "dotenv"):
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
        yield Script(" ".join(rest), is_remote=prefix.is_remote)
    else:
        yield Words(rest, run.stdin, prefix.is_remote)


def _env(run: Invocation) -> Iterator[NestedCommand]:
    at, args = 0, run.args
    while at < len(args):
        a = args[at]
        if a in ("-S", "--split-string") or a.startswith(("-S", "--split-string=")):
            text = args[at + 1] if a in ("-S", "--split-string") and at + 1 < len(args) else a.partition("S")[2]
            rest = " ".join(args[at + 2 :]) if a in ("-S", "--split-string") else " ".join(args[at + 1 :])
            yield Script(f"{text} {rest}")
            return
        if a in ("-u", "--unset", "-C", "--chdir"):
            at += 2
        elif a.startswith("-") or re.match(r"[A-Za-z_]\w*=", a):
            at += 1
        else:
            yield Words(args[at:], run.stdin)
            return


def _xargs(run: Invocation) -> Iterator[NestedCommand]:
    values = (
        "-I",
        "-n",
        "-P",
        "-L",
        "-d",
        "-s",
        "-E",
        "-a",
        "-i",
        "--max-args",
        "--max-procs",
        "--delimiter",
        "--arg-file",
    )
    at, placeholder = 0, ""
    while at < len(run.args) and run.args[at].startswith("-"):
        a = run.args[at]
        if a.startswith("-I"):
            placeholder = a[2:] or (run.args[at + 1] if at + 1 < len(run.args) else "{}")
        at += 2 if a in values and a != "-i" else 1
    words = run.args[at:] or ("echo",)
    arguments = (run.stdin or "").split()
    # Unknown items: deleting them is treated as deleting a tree.
    items = [f"**/{g}" if has_taint(g) else g for g in arguments[:20]] or [f"**/{UNKNOWN}"]
    if placeholder:
        for item in items[:5]:
            yield Words(tuple(replace_bounded(w, placeholder, item) for w in words))
    else:
        yield Words((*words, *items))


def _parallel(run: Invocation) -> Iterator[NestedCommand]:
    at = 0
    while at < len(run.args) and run.args[at].startswith("-"):
        at += 1
        at += at < len(run.args) and re.fullmatch(r"\d+%?", run.args[at]) is not None
    template, _, rest = " ".join(run.args[at:]).partition(":::")
    items = rest.split() or (run.stdin or "").split() or [f"**/{UNKNOWN}"]
    for item in items[:10]:
        text = item if not template.strip() else template
        filled = replace_bounded(re.sub(r"\{[./]{0,3}\}", "{}", text), "{}", item)
        yield Script(filled if "{" in text else f"{text} {item}")


def _find(run: Invocation) -> Iterator[NestedCommand]:
    flags = ("-exec", "-execdir", "-ok", "-okdir")
    for i, a in enumerate(run.args):
        if a not in flags:
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
            pattern = next((x for x in run.args[:i] if not x.startswith("-")), "*")
            rest = run.args[i + 1 :]
            many = f"./**/{pattern}"
            yield Words(
                tuple(replace_bounded(w, "{}", many) for w in rest) + (() if any("{" in w for w in rest) else (many,))
            )
            return


def _ssh(run: Invocation) -> Iterator[NestedCommand]:
    values = (
        "-i",
        "-p",
        "-l",
        "-o",
        "-F",
        "-L",
        "-R",
        "-D",
        "-J",
        "-b",
        "-c",
        "-E",
        "-e",
        "-I",
        "-m",
        "-Q",
        "-S",
        "-W",
    )
    at = 0
    while at < len(run.args) and run.args[at].startswith("-"):
        at += 2 if run.args[at] in values else 1
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
    if (rest := _after_subcommand(run.args, ("submodule", "foreach"))) is not None:
        yield Script(" ".join(a for a in rest if a != "--recursive"))
    if "rebase" in run.args:
        yield from (Script(t) for t in run.all_values_of("-x", "--exec"))
    if "filter-branch" in run.args:
        yield from (Script(t) for t in run.all_values_of("--tree-filter", "--index-filter", "--msg-filter"))


def _editor(run: Invocation) -> Iterator[NestedCommand]:
    for a in run.args:
        if match := re.match(r"\+?:?(?:silent\s+|execute\s+['\"])?!(.*)", a, re.S):
            yield Script(match.group(1))


def _tar(run: Invocation) -> Iterator[NestedCommand]:
    for text in run.all_values_of("--checkpoint-action", "--to-command", "-I", "--use-compress-program", "-F"):
        yield Script(text.removeprefix("exec="))


def _sed(run: Invocation) -> Iterator[NestedCommand]:
    for text in (*run.all_values_of("-e", "--expression"), *run.operands[:1]):
        yield from (Script(match) for match in re.findall(r"(?:^|[;{}\d$/])\s*e\s+(.+)", text))
        if match := re.search(r"s([/|#,])(?:\\.|(?!\1).)*\1((?:\\.|(?!\1).)*)\1[gipI\d]*e", text):
            yield Script(re.sub(r"\\(.)", r"\1", match.group(2)))


def _rsync(run: Invocation) -> Iterator[NestedCommand]:
    for text in run.all_values_of("-e", "--rsh"):
        yield Script(text)


def _tmux(run: Invocation) -> Iterator[NestedCommand]:
    if run.operands[:1] in (("send-keys",), ("send",)):
        keys = [a for a in run.args[1:] if a not in ("Enter", "C-m") and not a.startswith("-")]
        yield from (Script(k) for k in keys)
        yield Script(" ".join(keys))
    else:
        yield from (Script(o) for o in run.operands if " " in o)


def _trap(run: Invocation) -> Iterator[NestedCommand]:
    if run.operands and run.operands[0] not in ("-", ""):
        yield Script(run.operands[0])


def _eval(run: Invocation) -> Iterator[NestedCommand]:
    yield Script(" ".join(run.args))


def _alias(run: Invocation) -> Iterator[NestedCommand]:
    yield from (Script(a.partition("=")[2]) for a in run.args if "=" in a)


def _command(run: Invocation) -> Iterator[NestedCommand]:
    if not run.has("-v", "-V"):
        yield from _nested_after(run, run.args, Prefix())


def _at(run: Invocation) -> Iterator[NestedCommand]:
    if run.stdin:
        yield Script(run.stdin)


def _make(run: Invocation) -> Iterator[NestedCommand]:
    for text in run.all_values_of("--eval"):
        yield Script(re.sub(r"^\S*:\s*;?", "", text))


def _gdb(run: Invocation) -> Iterator[NestedCommand]:
    for text in run.all_values_of("-ex"):
        if text.startswith(("shell ", "!")):
            yield Script(text.removeprefix("shell ").removeprefix("!"))


def _sqlite(run: Invocation) -> Iterator[NestedCommand]:
    for text in (*run.args, run.stdin or ""):
        for match in re.finditer(r"^[ \t]*\.(?:shell|system)\s+(.*)", text, re.M):
            yield Script(match.group(1))


def _expect(run: Invocation) -> Iterator[NestedCommand]:
    for text in run.all_values_of("-c"):
        yield from (Script(match) for match in re.findall(r"(?:spawn|exec|send)\s+(.*)", text))


def _pwsh(run: Invocation) -> Iterator[NestedCommand]:
    text = run.value_of("-c", "-Command", "-command")
    yield Code("powershell", text if text else " ".join(run.args))


def _cmd(run: Invocation) -> Iterator[NestedCommand]:
    rest = _after_subcommand(run.args, ("/c",)) or _after_subcommand(run.args, ("/C",))
    if rest:
        yield Script(" ".join(rest))


def _python_module(run: Invocation) -> Iterator[NestedCommand]:
    for i, a in enumerate(run.args[:-1]):
        if a == "-m":
            yield Words((run.args[i + 1], *run.args[i + 2 :]), run.stdin)
            return
        if not a.startswith("-"):
            return


_SPECIAL: dict[str, Callable[[Invocation], Iterator[NestedCommand]]] = {
    "env": _env,
    "xargs": _xargs,
    "gxargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "ssh": _ssh,
    "git": _git,
    "vim": _editor,
    "vi": _editor,
    "nvim": _editor,
    "ex": _editor,
    "view": _editor,
    "tar": _tar,
    "bsdtar": _tar,
    "rsync": _rsync,
    "sed": _sed,
    "gsed": _sed,
    "tmux": _tmux,
    "screen": _tmux,
    "trap": _trap,
    "eval": _eval,
    "alias": _alias,
    "command": _command,
    "at": _at,
    "batch": _at,
    "make": _make,
    "gdb": _gdb,
    "sqlite3": _sqlite,
    "expect": _expect,
    "pwsh": _pwsh,
    "powershell": _pwsh,
    "powershell.exe": _pwsh,
    "cmd": _cmd,
    "cmd.exe": _cmd,
    "python": _python_module,
    "python3": _python_module,
    "python2": _python_module,
    "py": _python_module,
}
