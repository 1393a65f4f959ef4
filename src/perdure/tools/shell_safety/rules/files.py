"""Rules for files: deletion, overwriting, permissions, writes to protected paths."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.paths import ShellPath
from perdure.tools.shell_safety.rules.outputs import tar_archive, written_paths
from perdure.tools.shell_safety.rules.rule import RiskRule, both, is_help, unless
from perdure.tools.shell_safety.taint import paths_of_find
from perdure.tools.shell_safety.types import DECODED, PROGRAM, Danger, strip_taints, word_set

_TREE_DELETERS = word_set("rimraf rimraf-cli del-cli deltree rmtree srm")
_MAX_PATH_CHARS = 200
_SCRATCH_ROOT = re.compile(r"/(?:private/)?(?:tmp|var/tmp|var/folders|dev/shm)/?")
# Below the first folder of the system, such as /srv/app or /etc/nginx.
_BELOW_SYSTEM = re.compile(r"/[^/]+/[^/]")
_DELETES_BELOW_SYSTEM = "it deletes files outside the workspace, in a folder of the system"
# A folder that a program prints: `$(python3 -m site --user-site)/x.py`.
_COMPUTED_FOLDER = re.compile(f"[^/]{{0,200}}[{PROGRAM}{DECODED}][^/]{{0,200}}/")
_DATABASE = re.compile(r"(?<!test)(?<!tmp)(?<!temp)(?<!cache)(?<!dev)\.(?:db|sqlite3?|mdb)\Z", re.I)
# Source, documents and settings, as against logs, marks and results; an empty module is usual.
_VALUED_FILE = re.compile(
    r"(?<!__init__)\.(?:py|js|jsx|ts|tsx|vue|go|rs|java|kt|c|h|cc|cpp|cs|rb|php|swift|scala|sh|sql|html|css|scss|json|ya?ml|toml|ini"
    r"|cfg|conf|md|rst|xml|csv|ipynb|tf|env|key|pem)\Z|(?:^|/)\.env[\w.]{0,20}\Z|(?:^|/)(?:Makefile|Dockerfile|README|LICENSE)\Z"
)
_SITE_FOLDER = re.compile(r"/(?:public|public_html|www|wwwroot|htdocs|html)\Z")
_THROWAWAY_IMAGE = re.compile(r"\.(?:img|iso|bin|dat|raw|swap|tmp|qcow2)\Z|/dev/null\Z|(?:^|/)te?mp|test")


def delete_dangers(run: Invocation) -> Iterator[Danger]:
    """Yield the dangers of deletions by their paths: `rm`, `find -delete`, and programs like `rm -r`."""
    if is_help(run):
        return
    if run.name in ("rm", "grm", "unlink", "del", "erase"):
        is_tree = run.has("-r", "-R", "--recursive") or "/s" in [a.lower() for a in run.args]
        for o in run.operands:
            yield from _path_dangers(run, o, is_tree=is_tree)
    elif run.name in _TREE_DELETERS or (run.name in ("rd", "rmdir") and "/s" in [a.lower() for a in run.args]):
        for o in run.operands:
            yield from _path_dangers(run, o, is_tree=True)
    elif run.name in ("find", "gfind") and "-delete" in run.args:
        for path in paths_of_find(run):
            yield from _path_dangers(run, path, is_tree=True)
    elif run.name in ("tar", "bsdtar", "gtar") and run.has("--remove-files"):
        own_values = (tar_archive(run), run.value_of("-C", "--directory"), run.args[0])
        for o in (o for o in run.operands if o not in own_values):
            yield from _path_dangers(run, o, is_tree=True)
    elif run.name == "zip" and run.has("-m", "--move"):
        for o in run.operands[1:]:
            yield from _path_dangers(run, o, is_tree=True)
    elif run.name in ("trash", "trash-put", "mv") or (run.name == "gio" and run.starts("trash")):
        yield from _find_moves_away(run)
    elif (
        run.name == "rsync"
        and not run.has("-n", "--dry-run")
        and any(o.startswith("--delete") or o == "--remove-source-files" for o in run.options)
    ):
        for o in run.operands[-1:] if not _publishes_build(run) else ():
            yield from _path_dangers(run, o if ":" not in o else "/outside", is_tree=True)


def _publishes_build(run: Invocation) -> bool:
    """Match `rsync --delete build/ public/`: both folders of the workspace are generated."""
    if any(":" in o for o in run.operands):
        return False
    *sources, target = map(run.classify, run.operands or ("",))
    is_generated = bool(sources) and all(s.is_artefact for s in sources)
    return is_generated and target.zone == "workspace" and bool(_SITE_FOLDER.search(target.path))


def tree_dangers(run: Invocation, path: str) -> Iterator[Danger]:
    """Yield the dangers of a tree deleted by nested code."""
    yield from _path_dangers(run, path, is_tree=True)


def _find_moves_away(run: Invocation) -> Iterator[Danger]:
    """Yield the dangers of moving something away, which is a deletion at its old path.

    In the workspace that holds for all files of a folder, elsewhere for everything but a file fetched into it.
    """
    sources, is_fetched, target = run.operands, False, ""
    if run.name == "mv":
        target = run.value_of("-t", "--target-directory") or "".join(run.operands[-1:])
        is_fetched = run.zones.resolve_write(target).zone == "workspace"
        sources = tuple(o for o in run.operands if o != target)
    for o in sources:
        location = run.classify(o)
        is_outside = run.zones.is_outside(location) and not (is_fetched and location.is_file)
        if is_fetched and not is_outside:
            continue
        is_folder = location.zone == "workspace" and not (location.is_file or location.is_artefact)
        if run.name == "mv" and is_folder and not re.search(r"\.\w{1,8}\Z", o) and _leaves_workspace(run, target):
            yield Danger("delete-tree", run.summary, "it moves a folder out of the workspace")
            continue
        is_trashed = run.name != "mv" and location.zone not in ("workspace", "unknown")
        if is_outside or is_trashed or (location.is_wide and location.zone in ("workspace", "home", "system")):
            yield from _path_dangers(run, o, is_tree=True)


def _leaves_workspace(run: Invocation, target: str) -> bool:
    location = run.zones.resolve_write(target)
    return run.zones.workspace is not None and location.zone == "outside"


def _path_dangers(run: Invocation, path: str, *, is_tree: bool) -> Iterator[Danger]:
    if not path:
        # A variable that is not set here may be set where the command runs.
        if is_tree:
            yield Danger("delete-tree", run.summary)
        return
    if path.startswith("/") and len(path) == 2 and run.name in ("del", "erase", "rd", "rmdir"):
        return
    location = run.classify(path.replace("**/", "")) if "**/" in path else run.zones.resolve_delete(path)
    is_tree = (is_tree and not location.is_file) or "**" in path
    is_scratch = location.is_scratch and not location.is_wide and not _SCRATCH_ROOT.fullmatch(location.path)
    if location.is_artefact or location.zone == "fresh" or (is_scratch and "**" not in path):
        return
    if kind := _protected_kind(location, is_tree):
        is_below = location.zone == "system" and _BELOW_SYSTEM.match(location.path) and not location.is_wide
        is_partial = is_below and kind == "delete-everything" and not run.zones.contains_home(location.path)
        yield Danger(kind, run.summary, _DELETES_BELOW_SYSTEM if is_partial else "")
    elif is_tree:
        kind = "delete-outside" if location.zone == "outside" else "delete-tree"
        if (
            location.is_wide
            and location.zone == "workspace"
            and location.path == run.zones.workspace
            and "**" not in path
        ):
            kind = "delete-everything"
        yield Danger(kind, run.summary)
    elif location.is_wide or location.zone == "git" or _is_many_or_much(location, path):
        yield Danger("delete-tree", run.summary)
    elif run.zones.is_outside(location):
        yield Danger("delete-outside", run.summary)


def _is_many_or_much(location: ShellPath, path: str) -> bool:
    """Whether a pattern matches files of the workspace, or the file is a database."""
    return location.zone == "workspace" and (re.search(r"[*?\[]", path) is not None or bool(_DATABASE.search(path)))


def _protected_kind(location: ShellPath, is_tree: bool) -> str | None:
    if location.zone == "system":
        return "delete-everything" if is_tree or location.is_wide else "system-files"
    if location.zone == "home" and (is_tree or location.is_wide):
        return "delete-everything"
    if location.zone == "startup":
        return "startup-files"
    return "disk" if location.zone == "device" else None


def write_dangers(run: Invocation) -> Iterator[Danger]:
    """Yield the dangers of writes, by redirection or by program: outside the workspace, devices, startup files."""
    preserved = _not_overwritten(run)
    for path in (*run.writes, *written_paths(run)):
        if re.match(r"/dev/(?:tcp|udp)/", path):
            yield Danger("reverse-shell", f"{run.summary} > {path}")
            continue
        location = run.zones.resolve_write(path)
        zone = location.zone
        kind = run.zones.written_kind(location)
        if kind == "write-outside" and path in preserved:
            kind = "system-files" if zone == "home" and run.name == "mv" else None
        if kind is None and _COMPUTED_FOLDER.match(path):
            yield Danger("write-outside", _describe_write(run, path), "where it writes is only known at run time")
            continue
        if (
            kind is None
            and path in run.writes
            and _prints_nothing(run)
            and (re.search(r"[*?]|" + _DATABASE.pattern, path) or _VALUED_FILE.search(path))
        ):
            kind = None if location.is_artefact or location.is_scratch else "delete-tree"
        if kind and not (run.name in ("rm", "unlink", "mkdir", "touch") and zone == "git"):
            yield Danger(kind, _describe_write(run, path))
    for path in run.reads:
        if re.match(r"/dev/(?:tcp|udp)/", path):
            yield Danger("reverse-shell", run.summary)


def _prints_nothing(run: Invocation) -> bool:
    if run.name == "cat":
        return run.operands == ("/dev/null",)
    return (run.name in (">", ":", "true") and not run.reads) or (
        run.name in ("echo", "printf") and not "".join(run.operands)
    )


def _describe_write(run: Invocation, path: str) -> str:
    """Format the command with the target of its redirect, for the approval request."""
    if path not in run.writes:
        return run.summary
    command = run.summary if run.name not in (">", "{") or run.reads else ""
    return f"{command} > {strip_taints(path[:_MAX_PATH_CHARS], '…')}".strip()


def _not_overwritten(run: Invocation) -> tuple[str, ...]:
    """Return the operands that are not overwritten: the sources of `mv`, the targets of `mkdir`."""
    if run.name == "mv":
        target = run.value_of("-t", "--target-directory") or "".join(run.operands[-1:])
        return tuple(o for o in run.operands if o != target)
    return run.operands if run.name in ("mkdir", "rm", "unlink", "rmdir", "chattr", "setfacl", "xattr") else ()


def _dd_overwrites(run: Invocation) -> bool:
    target = next((a[3:] for a in run.args if a.startswith("of=")), None)
    if target is None:
        return False
    location = run.classify(target)
    return location.zone in ("device", "unknown", "system", "startup") or not _THROWAWAY_IMAGE.search(target)


def _is_broad(run: Invocation) -> bool:
    """Whether permissions change recursively beyond a folder of the workspace."""
    if not run.has("-R", "--recursive"):
        return False
    targets = run.operands[1:]
    return any(p.is_wide or p.zone not in ("workspace", "fresh") for p in map(run.classify, targets)) or not targets


def _opens_to_all(run: Invocation) -> bool:
    mode = run.operands[0] if run.operands else next((o for o in run.args if re.match(r"-[rwx]", o)), "")
    if re.fullmatch(r"0?[0-7]{3,4}", mode):
        digits = mode[-3:]
        return digits[2] in "2367" or digits == "000" or (len(mode) == 4 and mode[0] in "24567") or digits in ("776",)
    return any(
        re.search(r"(?:[ao][ugoa]{0,3}|^)\+[rx]{0,2}w|[ug]\+[rwx]{0,3}s|[ao]=[rx]{0,2}w", m) for m in mode.split(",")
    )


def _installs_setuid(run: Invocation) -> bool:
    mode = run.value_of("-m", "--mode") or ""
    return bool(re.fullmatch(r"0?[24567][0-7]{3}|[ugoa]{0,3}[+=][rwx]{0,3}s\S{0,10}", mode))


def _overwrites_with_nothing(run: Invocation) -> bool:
    return run.name == "mv" and run.operands[-1:] == ("/dev/null",)


def _empties_trash(run: Invocation) -> bool:
    return run.has("--empty") or (run.name == "trash" and run.has("-e"))


def _empties(run: Invocation) -> bool:
    size = run.value_of("-s", "--size")
    return size in ("0", "0K") and not all(
        fnmatch.fnmatch(o, "*.log*") or run.classify(o).is_artefact for o in run.operands if o != size
    )


def _empties_in_place(run: Invocation) -> bool:
    """Match `sed -i d` and `perl -i -ne ''`, which leave nothing of a file."""
    if not any(o.startswith("-i") for o in run.options) and not run.has("--in-place"):
        return False
    scripts = run.all_values_of("-e", "--expression") or [o for o in run.operands if o][:1]
    # The empty operand of `sed -i '' script` is the suffix of a backup.
    return any(re.fullmatch(r"\s*(?:1,\$)?d\s*", s) for s in scripts) or (run.name == "perl" and "" in run.args)


def _edits_to_nothing(run: Invocation) -> bool:
    """Match an editor that deletes every line of a file: `vim -c '%d' -c wq file`, `ed file <<< ',d'`."""
    texts = (*run.args[:50], *(run.stdin or "")[:2_000].split("\n"))
    return any(re.match(r"[+:]?(?:%|,|1,\$)\s{0,2}d(?:\s{0,3}\||\s{0,3}\Z)", text) for text in texts)


def _links_over(run: Invocation) -> bool:
    return run.name == "cp" and run.operands[:1] == ("/dev/null",) and len(run.operands) > 1


def _changes_protected(run: Invocation) -> bool:
    if run.name == "chmod" and re.fullmatch(
        r"0?[4-7]00|(?:u=rwx?,)?go[-=](?:rwx)?", run.operands[0] if run.operands else ""
    ):
        # Restricting to the owner is the proper mode for keys.
        return any(run.classify(o).zone == "system" for o in run.operands[1:])
    # The mode of `chmod -x file` looks like an option.
    is_option = run.name == "chmod" and any(re.match(r"-[rwxXst]{1,4}\Z", a) for a in run.args[:1])
    paths = run.operands if is_option else run.operands[1:]
    return any(run.classify(o).zone in ("system", "startup", "git") for o in paths)


def _changes_access(run: Invocation) -> bool:
    """Match access lists and attributes outside the workspace, and of the workspace as a whole."""
    if run.name == "setfacl":
        changes = run.has(
            "-m", "-M", "-x", "-X", "-b", "-k", "--modify", "--remove", "--set", "--set-file", "--restore"
        )
        changes = (changes or run.has("--remove-all", "--remove-default")) and not run.has("--test")
        values = run.all_values_of("-m", "-x", "--modify", "--remove", "--set", "-M", "-X", "--set-file")
    else:
        changes = run.has("-w", "-d", "-c", "-r", "-s") if run.name == "xattr" else run.has("-n", "-x", "-h")
        changes = changes and run.args[:1] != ("-l",)
        values = []
    targets = [run.classify(o) for o in run.operands if o not in values and ("/" in o or "~" in o or ":" not in o)]
    if run.name == "setfacl" and run.has("-R", "--recursive") and any(t.is_wide for t in targets):
        return changes
    return changes and any(t.zone not in ("workspace", "fresh", "unknown") and not t.is_scratch for t in targets)


def _extracts_absolute(run: Invocation) -> bool:
    """Match `tar xP`, which writes wherever the archive says."""
    first = run.args[0] if run.args and re.fullmatch(r"[A-Za-z]+", run.args[0]) else ""
    extracts = "x" in first or run.has("-x", "--extract", "--get")
    return extracts and ("P" in first or run.has("-P", "--absolute-names"))


RULES = (
    RiskRule("disk", "dd", _dd_overwrites, "dd if=/dev/zero of=/dev/sda bs=1M"),
    RiskRule("permissions", "chmod", both(_opens_to_all, unless(is_help)), "chmod 777 server.key"),
    RiskRule("permissions", "chmod chown chgrp", both(_is_broad, unless(is_help)), "chown -R nobody ~"),
    RiskRule("permissions", "chmod chown chgrp", _changes_protected, "chown me /etc/passwd"),
    RiskRule("permissions", "install", _installs_setuid, "install -m 4755 /bin/bash /tmp/b"),
    RiskRule("permissions", "setfacl setfattr xattr", _changes_access, "setfacl -R -m u:www-data:rwx ~/Documents"),
    RiskRule("delete-tree", "mv", _overwrites_with_nothing, "mv report.txt /dev/null"),
    RiskRule("delete-outside", "gio trash ktrash ktrash5 ktrash6", _empties_trash, "gio trash --empty"),
    RiskRule("delete-tree", "cp", _links_over, "cp /dev/null database.sqlite"),
    RiskRule("delete-tree", "sed gsed perl", _empties_in_place, "sed -i d src/main.py"),
    RiskRule("delete-tree", "vim vi nvim ex ed", _edits_to_nothing, "vim -es -c %d -c wq src/main.py"),
    RiskRule("delete-tree", "truncate", _empties, "truncate -s 0 users.db"),
    RiskRule("write-outside", "tar bsdtar gtar", _extracts_absolute, "tar -xPf backup.tar"),
)
