"""Commands that change nothing: programs that only read, unless one of their options writes or runs something."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import git_subcommand
from perdure.tools.shell_safety.types import has_taint, word_set

# Whatever their options are.
_READERS = word_set(
    "cat head tail wc ls dir pwd cd echo true false test [ stat du df file basename dirname realpath readlink grep "
    "egrep fgrep cut tr nl comm cmp diff id whoami groups uname uptime free nproc arch which type sleep seq md5sum "
    "sha1sum sha256sum sha512sum cksum sum strings od hexdump jq column fold expand paste join ps printenv locale "
    "getconf tac rev time timeout xargs"
)
_GIT_READERS = word_set(
    "status log show diff blame ls-files ls-tree ls-remote rev-parse rev-list describe shortlog grep cat-file name-rev "
    "merge-base count-objects diff-tree diff-index for-each-ref whatchanged show-ref check-ignore var version help"
)
_GIT_LISTING = {"branch": ("-a", "-r", "-v", "-vv", "--list", "--all", "--show-current"), "remote": ("-v", "--verbose")}
_HARMLESS_FILES = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")


def is_read_only(run: Invocation) -> bool:
    """Whether an invocation changes nothing; False where that is not certain."""
    if has_taint(run.name) or any(target not in _HARMLESS_FILES for target in run.writes):
        return False
    name = run.name.removeprefix("/usr/bin/").removeprefix("/bin/")
    if name in ("{", ">") or name in _READERS:
        return True
    check = _CHECKS.get(name)
    # An argument that is only known at run time may be any option.
    return check is not None and not any(has_taint(a) for a in run.args) and check(run)


def _has_none(*options: str) -> Callable[[Invocation], bool]:
    return lambda run: not run.has(*options)


def _finds(run: Invocation) -> bool:
    return not any(a.startswith(("-exec", "-ok", "-delete", "-fprint", "-fls")) for a in run.args)


def _sorts(run: Invocation) -> bool:
    return not run.has("-o", "--output", "--compress-program", "-T", "--temporary-directory")


def _prints_lines(run: Invocation) -> bool:
    """`sed -n '10,20p' file`, and nothing else: other scripts of sed can write files and run commands."""
    script = run.operands[0] if run.operands else ""
    return run.options == ("-n",) and script.endswith("p") and set(script[:-1]) <= set("0123456789,$")


def _reads_history(run: Invocation) -> bool:
    name, sub = git_subcommand(run)
    # Settings given on the command line can name programs to run.
    if any(
        a == "-c" or a.startswith(("--exec-path", "--config-env")) for a in run.args[: len(run.args) - len(sub.args)]
    ):
        return False
    if sub.has("--output", "--ext-diff", "-O", "--open-files-in-pager", "--upload-pack"):
        return False
    if name in _GIT_LISTING:
        return not sub.operands and all(o in _GIT_LISTING[name] for o in sub.options)
    if name == "tag":
        return not sub.args or sub.options in (("-l",), ("--list",))
    if name in ("stash", "worktree"):
        return sub.operands[:1] == ("list",) or (name == "stash" and sub.operands[:1] == ("show",))
    if name == "config":
        return sub.options[:1] in (("--get",), ("--list",), ("-l",), ("--get-all",))
    return name in _GIT_READERS


_CHECKS: Mapping[str, Callable[[Invocation], bool]] = {
    "find": _finds,
    "sort": _sorts,
    "sed": _prints_lines,
    "git": _reads_history,
    "rg": _has_none("--pre", "--hostname-bin"),
    "ag": _has_none("--pager"),
    "tree": _has_none("-o"),
    "date": _has_none("-s", "--set"),
    "uniq": lambda run: len(run.operands) < 2,
    "xxd": lambda run: len(run.operands) < 2 and not run.has("-r"),
    "printf": _has_none("-v"),
    "hostname": lambda run: not run.operands,
}
