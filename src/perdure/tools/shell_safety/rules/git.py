"""Rules for version control: discarded work, rewritten history, overwritten remotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from perdure.tools.shell_safety.interpreters import SHELLS, language_of
from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.outputs import written_paths
from perdure.tools.shell_safety.rules.rule import RiskRule, git_subcommand
from perdure.tools.shell_safety.types import Danger

# A `git checkout NAME` that names a file, not a branch.
_FILE_NAME = re.compile(
    r"\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|vue|svelte|go|rs|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|bash|sql|html|css|scss"
    r"|less|json|ya?ml|toml|ini|cfg|conf|lock|md|rst|txt|xml|csv|ipynb|dart|lua|pl|r|ex|exs|erl|hs|tf|proto|gradle|mod|sum)\Z"
    r"|/\Z|\A\.{1,2}\Z|\A\./|[*?]|\A:|\A(?:Makefile|Dockerfile|README|LICENSE)\Z"
)


def _discards(run: Invocation) -> bool:
    name, sub = git_subcommand(run)
    if name == "reset":
        return sub.has("--hard", "--merge")
    if name == "clean":
        return sub.has("-f", "--force") and not sub.has("-n", "--dry-run")
    if name == "checkout":
        return _checkout_discards(sub)
    if name == "switch":
        return sub.has("-f", "--force", "--discard-changes")
    if name == "restore":
        return not sub.has("--staged", "-S") or sub.has("--worktree", "-W")
    if name == "stash":
        return sub.operands[:1] in (("drop",), ("clear",))
    if name == "rm":
        return sub.has("-f", "--force") and not sub.has("--cached", "--dry-run")
    if name == "worktree":
        return sub.operands[:1] == ("remove",) and sub.has("-f", "--force")
    if name == "submodule":
        return sub.operands[:1] == ("deinit",) and sub.has("-f", "--force")
    if name == "apply":
        return sub.has("-R", "--reverse") and not sub.has("--check", "--stat", "--numstat", "--cached")
    return (name == "read-tree" and sub.has("--reset")) or (name == "checkout-index" and sub.has("-f"))


def _checkout_discards(sub: Invocation) -> bool:
    if sub.has("-b", "-B", "--orphan", "--track", "-t"):
        return sub.has("-f", "--force")
    if sub.has("-f", "--force", "--ours", "--theirs", "-p", "--patch") or "--" in sub.args:
        return sub.args[-1:] != ("--",) or sub.has("-f", "--force")
    if len(sub.operands) > 1:
        return True
    return any(_FILE_NAME.search(o) for o in sub.operands)


def _rewrites(run: Invocation) -> bool:
    name, sub = git_subcommand(run)
    if name == "branch":
        forced = sub.has("-D") or (sub.has("-d", "--delete") and sub.has("-f", "--force"))
        return (
            forced
            or (sub.has("-M", "-C") and len(sub.operands) > 1)
            or (sub.has("-f", "--force") and len(sub.operands) > 0)
        )
    if name in ("filter-branch", "filter-repo", "replace", "fast-import"):
        return not sub.has("--help", "--analyze")
    if name == "rebase":
        return sub.has("--root")
    if name in ("checkout", "switch") and (branch := sub.value_of("-B") or (name == "switch" and sub.value_of("-C"))):
        return _SHARED_BRANCH.match(branch) is not None
    if name == "tag":
        return sub.has("-d", "--delete")
    if name == "fetch":
        return any(o.startswith("+") and ":" in o and not o.endswith("*") for o in sub.operands)
    if name in ("merge", "pull", "cherry-pick", "revert"):
        return (sub.value_of("-X", "--strategy-option") or sub.value_of("-s", "--strategy")) in ("ours", "theirs")
    if name == "reflog":
        return sub.operands[:1] in (("expire",), ("delete",))
    if name == "gc":
        return (sub.value_of("--prune") or "") in ("now", "all") or (sub.has("--aggressive") and sub.has("--prune"))
    if name == "prune":
        return not sub.has("-n", "--dry-run")
    if name == "update-ref":
        return sub.has("-d", "--stdin") or any(o.startswith("refs/heads/") for o in sub.operands)
    if name == "symbolic-ref":
        return sub.has("-d", "--delete")
    return name == "lfs" and sub.operands[:1] == ("migrate",)


def _overwrites_remote(run: Invocation) -> bool:
    name, sub = git_subcommand(run)
    if name == "push":
        if sub.has("-n", "--dry-run"):
            return False
        forced = sub.has(
            "-f", "--force", "--force-with-lease", "--force-if-includes", "--mirror", "--prune", "-d", "--delete"
        )
        return (
            forced
            or any(o.startswith((":", "+")) and len(o) > 1 for o in sub.operands[1:])
            or any(o.startswith(("+", ":")) for o in sub.operands)
        )
    return name in ("send-pack", "svn") and (sub.has("--force") or "dcommit" in sub.operands)


# Branches and remotes that a deployment follows.
_DEPLOYED = re.compile(
    r"(?:prod|prd|production|live|deploy(?:ment)?|gh-pages|heroku|dokku|piku)(?:[/-].{0,200})?\Z", re.I
)


_SHARED_BRANCH = re.compile(r"(?:main|master|trunk|develop|release(?:[/-].{0,200})?)\Z")


def _releases(run: Invocation) -> bool:
    """Match a push of every tag or branch, and one to a branch or remote that is deployed."""
    name, sub = git_subcommand(run)
    if name != "push" or sub.has("-n", "--dry-run"):
        return False
    refs = [o.rpartition(":")[2].removeprefix("refs/heads/") for o in sub.operands[1:]]
    # Another branch is pushed to one that everybody works from, or to the repository of others.
    is_crossed = any(
        src and dst and src != dst and _SHARED_BRANCH.match(dst.removeprefix("refs/heads/"))
        for src, _, dst in (o.partition(":") for o in sub.operands[1:])
    )
    if is_crossed or sub.operands[:1] == ("upstream",):
        return True
    return sub.has("--tags", "--follow-tags", "--all", "--branches") or any(
        _DEPLOYED.match(word) for word in (*sub.operands[:1], *refs)
    )


# Settings that disable checks, or whose value Git runs or trusts.
_RISKY_SETTING = re.compile(
    r"core\.(?:hookspath|fsmonitor|sshcommand|pager|editor|askpass|gitproxy)|.*\.sslverify|credential\.|.*\.insteadof"
    r"|.*\.pushinsteadof|init\.templatedir|filter\.|diff\..*(?:command|textconv|external)|include(?:if)?\.|gpg\..*program"
    r"|gpg\.program|sequence\.editor|pager\.|merge\..*driver|uploadpack|receive\.fsckobjects|transfer\.fsckobjects"
    r"|protocol\..*allow|safe\.directory|.*\.proxy\Z",
    re.I,
)
_READS_CONFIG = ("--get", "--get-all", "--get-regexp", "--get-urlmatch", "-l", "--list")


def _config(run: Invocation) -> Invocation | None:
    """Return the invocation of `git config` if it changes a setting."""
    name, sub = git_subcommand(run)
    if name != "config" or sub.has(*_READS_CONFIG) or sub.operands[:1] in (("get",), ("list",)):
        return None
    is_removal = sub.has("--unset", "--unset-all", "--remove-section") or sub.operands[:1] == ("unset",)
    return sub if len(sub.operands) > 1 or is_removal or sub.has("-e", "--edit") else None


def _changes_risky_setting(run: Invocation) -> bool:
    sub = _config(run)
    words = [o for o in sub.operands if o != "set"] if sub is not None else []
    return bool(words) and _RISKY_SETTING.match(words[0]) is not None


def _changes_user_config(run: Invocation) -> bool:
    sub = _config(run)
    if sub is None:
        return False
    file = sub.value_of("-f", "--file")
    is_outside = file is not None and run.zones.resolve_write(file).zone not in ("workspace", "fresh", "unknown")
    return sub.has("--global", "--system") or is_outside


_UNCHECKED = re.compile(
    r"(?:http|https)\..{0,200}sslverify=(?:false|0)|http\.sslverify=(?:false|0)"
    r"|(?:receive|transfer|fetch)\.fsckobjects=|protocol\..{0,200}allow=",
    re.I,
)


def _passes_risky_setting(run: Invocation) -> bool:
    """Match a setting for one command that disables a check: `git -c http.sslVerify=false clone …`."""
    return any(option == "-c" and _UNCHECKED.match(value) for option, value in pairwise(run.args))


_MAX_CLONES = 20


class Repositories:
    """The remotes that a command adds and the folders it clones, and what it does with them afterwards."""

    def __init__(self) -> None:
        self._remotes: set[str] = set()
        self._clones: list[str] = []

    def dangers(self, run: Invocation, typed: str) -> Iterator[Danger]:
        """Yield the dangers of pushing to a new remote, and of running what was just cloned."""
        if run.name != "git":
            if self._clones and self._runs_clone(run, typed):
                yield Danger("remote-code", run.summary)
            return
        words = run.operands
        if words[:1] == ("remote",) and words[1:2] in (("add",), ("set-url",)) and len(words) > 3:
            self._remotes.add(words[2])
        elif words[:1] == ("push",) and (words[1:2] or ("origin",))[0] in self._remotes:
            yield Danger("send-data", run.summary)
        name, sub = git_subcommand(run)
        if name == "clone" and any("://" in o or "@" in o for o in sub.operands) and len(self._clones) < _MAX_CLONES:
            self._clones += [run.classify(path).path for path in written_paths(run)]

    def _runs_clone(self, run: Invocation, typed: str) -> bool:
        is_code = run.name in SHELLS or language_of(run.name) is not None
        paths = [typed] if "/" in typed else list(run.operands[:1]) if is_code else []
        paths += [*run.all_values_of("-C", "--directory"), "."] if run.name in ("make", "gmake") else []
        paths += run.operands[1:] if run.name in ("pip", "pip3", "pipx") and run.starts("install") else ()
        return any(f"{run.classify(p).path}/".startswith(f"{c}/") for p in paths for c in self._clones)


def _pulls_from_url(run: Invocation) -> bool:
    """Match `git pull https://…`: code of a repository that is not a remote of this one."""
    name, sub = git_subcommand(run)
    return name == "pull" and any(re.match(r"\w{2,10}://|[\w.-]+@[\w.-]+:", o) for o in sub.operands[:1])


RULES = (
    RiskRule("package-source", "git", _pulls_from_url, "git pull https://git.example/fork.git main"),
    RiskRule("security", "git", _passes_risky_setting, "git -c http.sslVerify=false clone https://git.example/r"),
    RiskRule("git-discard", "git", _discards, "git reset --hard HEAD~3"),
    RiskRule("git-rewrite", "git", _rewrites, "git branch -D feature"),
    RiskRule("git-push", "git", _overwrites_remote, "git push --force origin main"),
    RiskRule("publish", "git", _releases, "git push origin --tags"),
    RiskRule("security", "git", _changes_risky_setting, "git config http.sslVerify false"),
    RiskRule("write-outside", "git", _changes_user_config, "git config --global alias.st status"),
    RiskRule(
        "git-discard",
        "hg sl",
        lambda r: r.operands[:1] in (("update",), ("up",), ("checkout",), ("goto",)) and r.has("-C", "--clean"),
        "hg update --clean",
    ),
    RiskRule(
        "hidden-code", "git", lambda r: any(o.startswith("ext::") for o in r.operands), "git clone 'ext::./helper %S'"
    ),
)
