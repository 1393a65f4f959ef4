"""Read effects of git and gh: commits, branches, pushes, conflicts, the state of the work tree, pull requests, runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, Commit
from perdure.context.tool_calls.edits import read_patch
from perdure.context.tool_calls.output import (
    CallFinding,
    OutputView,
    count_noun,
    join_rows,
    list_names,
    merge_facts,
    one_line,
    unique,
)
from perdure.context.tool_calls.shell import ShellCommand, ShellLine

_HASH = r"[0-9a-f]{7,40}"
_COMMITTED = re.compile(rf"^\[([^\]\n]{{1,120}}?)(?: \(root-commit\))? ({_HASH})\] (.*)$", re.M)
_CHANGED = re.compile(r"^ ?(\d+ files? changed.*)$", re.M)
_CONFLICT = re.compile(r"^CONFLICT \([^)]*\): (.*)$", re.M)
_CONFLICT_PATH = re.compile(r"(?:Merge conflict in |: )?(\S+)$")
_UNAPPLIED = re.compile(rf"^error: could not apply ({_HASH})\.* (.*)$", re.M)
_ON_BRANCH = re.compile(
    r"^(?:On branch (\S+)|HEAD detached (?:at|from) (\S+)|"
    r"## (?:No commits yet on )?(\S+?)(?:\.\.\.(\S+))?(?: \[(.*)\])?)$",
    re.M,
)
_TRACKING = re.compile(
    r"^Your branch (?:is (ahead of|behind) '(\S+)' by (\d+) commits?|is (up to date) with '(\S+)'|"
    r"and '(\S+)' have (diverged))",
    re.M,
)
_STATUS_FILE = re.compile(
    r"^\s+(modified|new file|deleted|renamed|both modified|both added|deleted by \w+):\s+(.+)$", re.M
)
_SHORT_STATUS = re.compile(r"^([ MADRCUT?!]{2}) (\S.*)$|^([MADRCU?]{1,2}) (\S.*)$", re.M)
_CLEAN = re.compile(r"nothing to commit, working tree clean|nothing to commit|no changes added to commit")
_SWITCHED = re.compile(r"^(?:Switched to (?:and reset |a new )?branch|Already on|Reset branch|branch) '([^']+)'", re.M)
_HEAD_AT = re.compile(rf"^HEAD is now at ({_HASH}) ?(.*)$", re.M)
_PUSHED = re.compile(
    r"^\s*+(?:[*+=-]\s+)?(\[new (?:branch|tag)\]|\[deleted\]|[0-9a-f]{7,40}\.{2,3}[0-9a-f]{7,40})\s+(\S+) +-> +(\S+)",
    re.M,
)
_REJECTED = re.compile(r"^\s*!\s+\[(?:remote )?rejected\]\s+(\S+) +-> +(\S+)(?: \((.*)\))?", re.M)
_REMOTE_URL = re.compile(r"^To (\S+)", re.M)
_ONELINE = re.compile(rf"^(?:[*|\\/ ]*)({_HASH}) (?:\([^)\n]*\) )?(\S.*)$", re.M)
_LOG_COMMIT = re.compile(rf"^(?:[*| ]*)commit ({_HASH})(?: \(([^)]*)\))?$")
_QUIET = re.compile(r"--quiet|-[a-zA-Z]*q[a-zA-Z]*")
_STAT = re.compile(r" \S[^|]* \|\s+(?:\d+|Bin)")
_DIFF_FILE = re.compile(r"^diff --git a/(\S+) b/(\S+)$", re.M)
_FATAL = re.compile(r"^(?:fatal|error): (?!failed to push some refs)(.*)$", re.M)
_FAILS = re.compile(r"(?i)\b(?:fail(?:ed|ure|s)?|errors?|rejected|denied|aborted|exited with code [1-9]\d*)\b")
_STEPS = (
    (re.compile(r"^Successfully rebased and updated (?:refs/heads/)?(\S+?)\.?$", re.M), "rebased {0}"),
    (re.compile(r"^(Fast-forward|Already up to date\.|Already up-to-date\.|Everything up-to-date)$", re.M), "{0}"),
    (re.compile(r"^Merge made by the '?([\w-]+)'?", re.M), "merged ({0})"),
    (re.compile(rf"^Updating ({_HASH}\.\.{_HASH})$", re.M), "updated {0}"),
    (re.compile(r"^Automatic merge failed", re.M), "merge failed"),
    (re.compile(r"^Saved working directory and index state (.*)$", re.M), "stashed ({0})"),
    (re.compile(r"^Dropped (\S+)", re.M), "dropped {0}"),
    (re.compile(r"^Deleted branch (\S+)", re.M), "deleted branch {0}"),
    (re.compile(r"^Cloning into '([^']+)'", re.M), "cloned into {0}"),
    (re.compile(r"^Preparing worktree \((.*)\)$", re.M), "worktree ({0})"),
    (
        re.compile(r"^(The previous cherry-pick is now empty.*|No local changes to save|No stash entries.*)$", re.M),
        "{0}",
    ),
)
_FAST_FORWARD = re.compile(rf"^Updating {_HASH}\.\.({_HASH})\nFast-forward", re.M)
_REBASED = re.compile(r"^Successfully rebased and updated ", re.M)
_MERGED = re.compile(r"^Merge made by ", re.M)
# What a reset moves HEAD to: a revision, not a path.
_REVISION = re.compile(
    rf"(?:HEAD|ORIG_HEAD|@)(?:[~^]\d*|@?\{{[^}}]+\}})+|ORIG_HEAD|@\{{u\}}|{_HASH}(?:[~^]\d*)*|origin/\S+"
)
_PLAIN_LOG = re.compile(
    r"--oneline|-\d+|-n\d*|\d+|--max-count=\d+|--decorate\S*|--stat|--no-pager|--abbrev-commit|HEAD|log"
)
# Filters that leave the first line of a log the first one, and commands that may print commits before it.
_WHOLE_FILTERS = frozenset(("head", "cat", "less"))
_PRINTS_COMMITS = frozenset(("log", "show", "reflog", "cherry", "rev-list", "shortlog", "blame"))
_LONE_HASH = re.compile(rf"^{_HASH}$", re.M)
_ACTS = frozenset(
    """commit merge rebase cherry-pick revert pull am stash checkout switch reset push worktree clone restore
    fetch""".split()  # noqa: SIM905  # a table of words reads better than a list of quotes
)
_GITHUB_URL = re.compile(
    r"https://[\w.-]+/[\w.-]+/[\w.-]+/(?:-/)?(pull|issues|merge_requests|releases/tag|actions/runs)/([\w.-]+)(#[\w-]+)?"
)
_THING = {
    "pull": "PR #",
    "issues": "issue #",
    "merge_requests": "MR !",
    "releases/tag": "release ",
    "actions/runs": "run ",
}
_CHECK = re.compile(r"^(.+?)\t(fail|pass|pending|skipping|cancelled)\t(.*)$", re.M)
_GH_FIELD = re.compile(
    r"^(title|state|number|author|url|labels|milestone|reviewers|isDraft|mergeable|headRefName|baseRefName):\t+(.+)$",
    re.M,
)
_SETTLES = {"merge": "merged", "close": "closed", "reopen": "reopened"}
_HUB_THINGS = {"pr": "PR #", "issue": "issue #", "mr": "MR !"}
_GH_DONE = re.compile(r"^([✓X!] .+)$", re.M)


def read_git(line: ShellLine, view: OutputView) -> CallFinding | None:
    """Return what the git and gh commands of a line came to; None where nothing was recognised."""
    commands = [c for c in line.commands if c.kind == "git"]
    findings = [
        f for c in commands if c.program in ("gh", "hub", "glab") and (f := _read_hub(c, line, view)) is not None
    ]
    subcommands = unique(name for c in commands if c.program in ("git", "jj") and (name := git_subcommand(c)))
    if subcommands:
        findings += _read_subcommands(line, subcommands, view)
    if "rev-parse" in subcommands and len(line.commands) > 1 and not any(f.facts.commit for f in findings):
        findings += _read_head(commands, view)
    if not findings:
        if view.exit_code or view.text or not (target := _reset_target(commands)):
            return None
        findings.append(CallFinding(f"reset to {target}", worth=0.5))
    combined = combine_findings(findings)
    if combined.is_failure or combined.facts.commit is not None or view.exit_code:
        return combined
    return replace(combined, facts=merge_facts([combined.facts, _read_moved_head(line, commands, view)]))


def _read_moved_head(line: ShellLine, commands: Sequence[ShellCommand], view: OutputView) -> CallFacts:
    """Read the commit at HEAD after a merge, a pull, a rebase or a reset, or from the beginning of a log."""
    log_head = _log_head(commands[-1], view) if _begins_with_head(line, commands) else ""
    moved = ""
    if (heads := _HEAD_AT.findall(view.text)) and not _REBASED.search(view.text):
        moved = f"{heads[-1][0]} {one_line(heads[-1][1], 90)}".rstrip()
    elif (forward := _FAST_FORWARD.search(view.text)) is not None:
        moved = forward[1]
    elif _REBASED.search(view.text) is not None:
        moved = "rebased; its hash was not printed"
    elif _MERGED.search(view.text) is not None:
        moved = "a merge commit; its hash was not printed"
    elif (reset := _reset_target(commands)) and "fatal:" not in view.text:
        moved = f"reset to {reset}"
    return CallFacts(head=(log_head or moved) if moved else "", shown_head=log_head)


def _begins_with_head(line: ShellLine, commands: Sequence[ShellCommand]) -> bool:
    """Whether the first commit printed is that of the last command: no filter chose it, no other command shows one."""
    last = len(line.commands) - 1 - line.commands[::-1].index(commands[-1])
    is_whole = all(c.program in _WHOLE_FILTERS for c in line.commands[last + 1 :] if c.is_filter)
    return is_whole and not any(git_subcommand(c) in _PRINTS_COMMITS for c in commands[:-1])


def _log_head(command: ShellCommand, view: OutputView) -> str:
    """Return the newest commit of a log that begins at HEAD, if it is the last of the commands."""
    if git_subcommand(command) != "log" or not all(map(_PLAIN_LOG.fullmatch, command.words[1:])):
        return ""
    number = next((n for n, x in enumerate(view.lines) if _LOG_COMMIT.match(x)), None)
    if number is not None and (match := _LOG_COMMIT.match(view.lines[number])) is not None:
        title = next((x.strip() for x in view.lines[number + 1 : number + 6] if x.startswith("    ")), "")
        return f"{match[1][:10]} {one_line(title, 90)}".rstrip()
    match = _ONELINE.search(view.text)
    return f"{match[1][:10]} {one_line(match[2], 90)}" if match is not None else ""


def _reset_target(commands: Sequence[ShellCommand]) -> str:
    """Return the revision that a `git reset` without a report moved HEAD to."""
    for command in reversed(commands):
        if git_subcommand(command) == "reset" and "--" not in command.words:
            operands = [w for w in command.operands if w != "reset"]
            return operands[0] if len(operands) == 1 and _REVISION.fullmatch(operands[0]) else ""
    return ""


def _read_head(commands: Sequence[ShellCommand], view: OutputView) -> list[CallFinding]:
    """Return the commit that `git rev-parse HEAD` printed beside the output of another command."""
    is_head = any(git_subcommand(c) == "rev-parse" and "HEAD" in c.words for c in commands)
    match = _LONE_HASH.search(view.text) if is_head else None
    return [CallFinding(f"HEAD {match[0][:12]}")] if match is not None else []


def git_subcommand(command: ShellCommand) -> str:
    words = iter(command.words[1:])
    for word in words:
        if word in ("-C", "-c", "--git-dir", "--work-tree"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def combine_findings(findings: Sequence[CallFinding]) -> CallFinding:
    """Several findings about one output as one."""
    return CallFinding(
        headline="; ".join(unique(f.headline for f in findings if f.headline)),
        rows=tuple(r for f in findings for r in f.rows),
        facts=merge_facts([f.facts for f in findings]),
        is_failure=any(f.is_failure for f in findings),
        worth=max(f.worth for f in findings),
        title="; ".join(unique(t for f in findings if (t := f.headline if f.title is None else f.title))),
    )


def _read_subcommands(line: ShellLine, subcommands: list[str], view: OutputView) -> list[CallFinding]:
    findings: list[CallFinding] = []
    names = set(subcommands)
    if names & _ACTS:
        findings += filter(None, (reader(line, view) for reader in _ACTION_READERS))
    if "status" in names or names & {"commit", "stash", "merge", "rebase"}:
        findings += filter(None, (_read_status(view, is_short="status" in names),))
    for name in subcommands:
        if (reader := _VIEW_READERS.get(name)) is not None and (finding := reader(view)) is not None:
            findings.append(finding)
    fatal = unique(m[1] for m in _FATAL.finditer(view.text))
    # The files and commits that are shown may hold lines like these, too.
    is_own = view.text.startswith(("fatal:", "error:")) or not names <= {"show", "diff", "log"}
    if fatal and is_own and not any(f.is_failure for f in findings):
        findings.append(_failure(fatal, is_push="push" in names))
    if not view.exit_code and not any(f.is_failure for f in findings):
        findings += _read_quiet(line, view, has_commit=any(f.facts.commit for f in findings))
    return findings


def _read_quiet(line: ShellLine, view: OutputView, *, has_commit: bool) -> list[CallFinding]:
    """Commits and pushes with -q print nothing; the hash may come from a `git rev-parse` or `git log` beside them."""
    findings: list[CallFinding] = []
    quiet = [c for c in line.commands if c.program == "git" and any(_QUIET.fullmatch(w) for w in c.words)]
    quiet = [c for c in quiet if not _is_dry_run(c)]
    if not quiet:
        return findings
    others = [x for x in view.lines if _ONELINE.match(x) is None]
    if any(_FAILS.search(x) for x in others) or (others and any(map(line.has_fallback, quiet))):
        # What was printed may be the failure of the quiet command.
        return findings
    commits = [c for c in quiet if git_subcommand(c) == "commit"]
    if commits and not has_commit and "nothing to commit" not in view.text:
        title = commits[-1].option("-m", "--message", "-am", "-qm", "-qam", "-aqm").split("\n", 1)[0]
        if not title or title.startswith("$("):
            title = line.documents[0].strip().split("\n", 1)[0] if line.documents else ""
        commit_hash = _commit_hash(view.text, title)
        facts = CallFacts(commit=Commit(commit_hash, title)) if commit_hash else NO_FACTS
        label = f"commit {commit_hash}" if commit_hash else "committed"
        findings.append(CallFinding(f"{label} “{one_line(title, 90)}”" if title else label, (), facts, False, 0.8))
    if any(git_subcommand(c) == "push" for c in quiet):
        findings.append(CallFinding("pushed", (), CallFacts(pushed=True), False, 0.8))
    return findings


def _is_dry_run(command: ShellCommand) -> bool:
    return "--dry-run" in command.words or (git_subcommand(command) == "push" and "-n" in command.words)


def _commit_hash(text: str, title: str) -> str:
    """Return the hash of a quiet commit: of the line with its title in a log, else the last that is printed alone."""
    for line in text.splitlines() if title else ():
        first, _, rest = line.strip().partition(" ")
        if title in rest and re.fullmatch(_HASH, first):
            return first
    alone = [line.strip() for line in text.splitlines() if re.fullmatch(_HASH, line.strip())]
    return alone[-1] if alone else ""


def _failure(messages: list[str], *, is_push: bool) -> CallFinding:
    facts = CallFacts(error=one_line(messages[0], 240), pushed=False if is_push else None)
    return CallFinding(one_line(messages[0], 140), tuple(messages[:4]), facts, True, 0.6)


def _read_commit(line: ShellLine, view: OutputView) -> CallFinding | None:
    matches = list(_COMMITTED.finditer(view.text))
    if not matches:
        return None
    rows, commits = [], []
    for match in matches[-6:]:
        branch = "" if match[1].startswith("detached HEAD") else match[1]
        commits.append(Commit(match[2], match[3].strip(), branch))
        rows.append(f"commit {match[2]} “{one_line(match[3], 160)}” on {match[1]}")
    changed = _CHANGED.search(view.text, matches[-1].end())
    files = f" ({one_line(changed[1], 60)})" if changed is not None else ""
    body = _message_body(line)
    last = commits[-1]
    return CallFinding(
        headline=f"commit {last.hash} “{one_line(last.title, 90)}” on {matches[-1][1]}{files}",
        rows=(*rows[:-1], *([f"message: {one_line(body, 500)}"] if body else [])),
        facts=CallFacts(commit=last, branch=last.branch),
        worth=0.85,
    )


def _message_body(line: ShellLine) -> str:
    """Return the body of a commit message, from a here-document or from `-m`."""
    message = line.documents[0] if line.documents else ""
    if not message:
        message = next((c.option("-m", "--message", "-am") for c in line.commands if git_subcommand(c) == "commit"), "")
    lines = [
        x
        for x in message.strip().split("\n")[1:]
        if x.strip() and not re.match(r"(?i)co-authored-by|🤖|signed-off-by", x)
    ]
    return " / ".join(x.strip() for x in lines)


def _read_push(line: ShellLine, view: OutputView) -> CallFinding | None:
    if not any(git_subcommand(c) == "push" for c in line.commands if c.program == "git"):
        return None
    url = _REMOTE_URL.search(view.text)
    remote = f" to {url[1]}" if url is not None else ""
    rejected = [f"{m[1]} -> {m[2]} ({m[3] or 'rejected'})" for m in _REJECTED.finditer(view.text)]
    if rejected or "failed to push" in view.text:
        messages = unique(
            x
            for x in view.lines
            if x.startswith(("remote:", "error:", "fatal:", "hint: Updates")) and x.strip() != "remote:"
        )
        return CallFinding(
            headline=f"push REJECTED: {list_names(rejected, 120) or one_line(' '.join(messages), 120)}",
            rows=tuple([one_line(x, 200) for x in messages[:6]]),
            facts=CallFacts(pushed=False, error=f"push rejected: {list_names(rejected, 200)}"),
            is_failure=True,
            worth=0.85,
        )
    pushed = [f"{m[3]} ({m[1].strip('[]')})" for m in _PUSHED.finditer(view.text)]
    if all(_is_dry_run(c) for c in line.commands if git_subcommand(c) == "push" and c.program == "git"):
        return CallFinding(f"dry run, would push {list_names(pushed, 100)}{remote}" if pushed else "dry run", worth=0.4)
    if pushed or "Everything up-to-date" in view.text:
        links = tuple(unique(re.findall(r"https://\S+/(?:pull/new|merge_requests/new|compare)\S*", view.text)))
        return CallFinding(
            f"pushed {list_names(pushed, 100)}{remote}" if pushed else "push: everything up to date",
            links,
            CallFacts(pushed=True),
            False,
            0.8,
        )
    return None


def _read_conflicts(line: ShellLine, view: OutputView) -> CallFinding | None:
    conflicts = [m[1] for m in _CONFLICT.finditer(view.text)]
    if not conflicts:
        return None
    paths = unique(m[1] for c in conflicts if (m := _CONFLICT_PATH.search(c)) is not None)
    step = _UNAPPLIED.search(view.text)
    at = f" applying {step[1]} “{one_line(step[2], 60)}”" if step is not None else ""
    error = f"merge conflicts{at} in {list_names(paths, 300)}"
    return CallFinding(
        f"CONFLICT{at} in {list_names(paths, 110)}", tuple(unique(conflicts)[:10]), CallFacts(error=error), True, 0.8
    )


def _read_steps(line: ShellLine, view: OutputView) -> CallFinding | None:
    """Branch switches, merges, rebases, stashes and resets."""
    parts = [
        form.format(*[one_line(g or "", 80) for g in match.groups()])
        for pattern, form in _STEPS
        if (match := pattern.search(view.text)) is not None
    ]
    facts = NO_FACTS
    switched = _SWITCHED.search(view.text)
    head = _HEAD_AT.search(view.text)
    if switched is not None:
        parts.insert(0, f"on branch {switched[1]}")
        facts = CallFacts(branch=switched[1])
    if head is not None:
        parts.append(f"HEAD at {head[1]} “{one_line(head[2], 70)}”")
    if not parts:
        return None
    changed = _CHANGED.search(view.text)
    if changed is not None and "Fast-forward" in parts:
        parts.append(one_line(changed[1], 60))
    return CallFinding(", ".join(parts), (), facts, False, 0.55)


def _read_status(view: OutputView, *, is_short: bool) -> CallFinding | None:
    branch = _ON_BRANCH.search(view.text)
    files = [f"{m[1]}: {m[2].strip()}" for m in _STATUS_FILE.finditer(view.text)]
    if is_short and not files:
        files = [f"{(m[1] or m[3]).strip()} {(m[2] or m[4]).strip()}" for m in _SHORT_STATUS.finditer(view.text)]
    untracked = _parse_untracked(view) if branch is not None else []
    if branch is None and not files and not _CLEAN.search(view.text):
        return None
    name = next(filter(None, branch.groups()), "") if branch is not None else ""
    tracking = _describe_tracking(view, branch)
    parts = [f"on {name}" if name else "", tracking]
    every = files + [f"untracked: {u}" for u in untracked]
    if every:
        parts.append(
            f"{len(every)} changed{view.extent.limits}: {list_names([f.split(' ', 1)[-1] for f in every], 80)}"
        )
    elif branch is not None or _CLEAN.search(view.text):
        parts.append("clean" if "working tree clean" in view.text or is_short else "nothing to commit")
    rows = tuple(join_rows(every, limit=800, row_chars=160)) if len(every) > 1 else ()
    return CallFinding(", ".join(filter(None, parts)), rows, CallFacts(branch=name), False, 0.5)


def _describe_tracking(view: OutputView, branch: re.Match[str] | None) -> str:
    if branch is not None and branch[5]:
        return f"{branch[5]} of {branch[4]}"
    match = _TRACKING.search(view.text)
    if match is None:
        return ""
    if match[1]:
        return f"{match[3]} {'ahead of' if match[1].startswith('ahead') else 'behind'} {match[2]}"
    return f"up to date with {match[5]}" if match[4] else f"diverged from {match[6]}"


def _parse_untracked(view: OutputView) -> list[str]:
    _, mark, rest = view.text.partition("Untracked files:")
    names: list[str] = []
    for line in rest.split("\n")[1:60] if mark else []:
        if not line.startswith(("\t", "  ")) or line.lstrip().startswith("("):
            if names:
                break
            continue
        names.append(line.strip())
    return names


def _read_log(view: OutputView) -> CallFinding | None:
    rows = []
    lines = view.lines
    for number, line in enumerate(lines):
        if (match := _LOG_COMMIT.match(line)) is not None:
            title = next(
                (x.strip(" |*") for x in lines[number + 1 : number + 8] if x.startswith(("    ", "|     ", "|   "))), ""
            )
            rows.append(f"{match[1][:10]} {one_line(title, 120)}" + (f" ({match[2]})" if match[2] else ""))
    others: list[str] = []
    if not rows:
        rows = [f"{m[1][:12]} {one_line(m[2], 120)}" for m in _ONELINE.finditer(view.text)]
        others = [x for x in lines if _ONELINE.match(x) is None] if len(rows) < len(lines) <= len(rows) + 6 else []
    if not rows:
        return None
    return CallFinding(
        f"{len(rows)} commits{' listed' if view.extent.is_partial else ''}, newest {rows[0]}"
        if len(rows) > 1
        else rows[0],
        tuple(join_rows([*(rows if len(rows) > 1 else []), *others], limit=700)),
        NO_FACTS,
        False,
        0.35,
    )


def _read_diff(view: OutputView) -> CallFinding | None:
    files = unique(m[2] for m in _DIFF_FILE.finditer(view.text))
    total = _CHANGED.search(view.text)
    stats = [x.strip() for x in view.lines if x[0] == " " and " | " in x and _STAT.match(x[:300])]
    if not files and total is None and not stats:
        return read_patch(view.text) if re.search(r"^@@ -\d", view.text, re.M) else None
    names = files or [s.split(" ", 1)[0] for s in stats]
    count = f"{count_noun(len(names), 'file')}{view.extent.limits}"
    headline = total[1] if total is not None else f"diff of {count}: {list_names(names, 90)}"
    rows = join_rows(
        [re.sub(r"\s+\|\s+", " | ", s) for s in stats] or (files if len(files) > 1 else []), limit=400, row_chars=120
    )
    excerpt = read_patch(view.text[view.text.find("diff --git") :]).rows if files else ()
    return CallFinding(headline, (*rows, *excerpt), NO_FACTS, False, 0.25)


def _read_show(view: OutputView) -> CallFinding | None:
    findings = [
        f for f in (_read_log(view) if view.text.startswith("commit ") else None, _read_diff(view)) if f is not None
    ]
    return combine_findings(findings) if findings else None


def _read_branches(view: OutputView) -> CallFinding | None:
    names = [x.strip("*+ ").split(" ", 1)[0] for x in view.lines if re.match(r"^[*+ ] \S+", x)]
    current = next((x[2:].split(" ")[0] for x in view.lines if x.startswith("* ")), "")
    if not names and len(view.lines) == 1 and " " not in view.text.strip():
        current = view.text.strip()
        names = [current]
    if not names:
        return None
    headline = (
        f"on {current}"
        if len(names) == 1 and current
        else f"{len(names)} branches{view.extent.limits}" + (f", on {current}" if current else "")
    )
    return CallFinding(
        headline, tuple(join_rows(names, limit=500)) if len(names) > 1 else (), CallFacts(branch=current), False, 0.35
    )


def _read_hub(command: ShellCommand, line: ShellLine, view: OutputView) -> CallFinding | None:
    """gh and glab: what was created or shown, with numbers and titles."""
    words = command.words
    area, action = (words[1] if len(words) > 1 else ""), (words[2] if len(words) > 2 else "")
    if action == "create" or (area == "pr" and action in ("comment", "review", "edit")):
        return _describe_created(command, area, action, view)
    if area == "api":
        return _read_api(command, view)
    if action == "diff" and (finding := _read_diff(view)) is not None:
        return finding
    if action in ("checks", "watch", "list", "view", "status", "diff"):
        return _hub_rows(area, action, view)
    settled = _describe_settled(command, view)
    facts = CallFacts(settled=(settled,)) if settled else NO_FACTS
    if action == "merge" and (steps := _read_steps(line, view)) is not None:
        return replace(steps, headline=f"merged, {steps.headline}", worth=0.8, facts=merge_facts([steps.facts, facts]))
    done = [m[1] for m in _GH_DONE.finditer(view.text)]
    if done:
        return CallFinding(one_line("; ".join(done), 150), tuple(done[:8]), facts, any(d[0] == "X" for d in done), 0.7)
    return CallFinding(settled, (), facts, False, 0.7) if settled and not view.text else None


def _describe_settled(command: ShellCommand, view: OutputView) -> str:
    """Return what a command of gh or glab merged, closed or reopened; "" where it failed or another may have run."""
    area, action, *rest = (*command.words[1:], "", "")
    verb = _SETTLES.get(action)
    number = next((w.lstrip("#") for w in rest if w.lstrip("#").isdigit()), "")
    if verb is None or area not in _HUB_THINGS or not number or view.exit_code or command.has_fallback:
        return ""
    return (
        ""
        if re.search(r"(?i)^(?:X |error|failed|GraphQL)|not mergeable", view.text, re.M)
        else (f"{verb} {_HUB_THINGS[area]}{number}")
    )


def _describe_created(command: ShellCommand, area: str, action: str, view: OutputView) -> CallFinding | None:
    urls = list(_GITHUB_URL.finditer(view.text))
    if not urls:
        return None
    url = urls[-1]
    title = command.option("--title", "-t")
    thing = _name_thing(url)
    label = f"{thing}: {title}" if title else thing
    verb = {"create": "created", "comment": "added", "review": "reviewed", "edit": "edited"}[action]
    facts = CallFacts(created=(label,)) if action in ("create", "comment") else NO_FACTS
    return CallFinding(f"{verb} {label} {url[0]}", (), facts, False, 0.9)


def _read_api(command: ShellCommand, view: OutputView) -> CallFinding | None:
    """Read a call of the API that created something, by the address in its reply; other replies are plain JSON."""
    method = command.option("-X", "--method").upper()
    is_post = method == "POST" or (not method and any(w in ("-f", "-F", "--field", "--input") for w in command.words))
    url = re.search(r'"html_url"\s*:\s*"(' + _GITHUB_URL.pattern + r")", view.text[:20_000]) if is_post else None
    match = _GITHUB_URL.match(url[1]) if url is not None else None
    if match is None:
        return None
    label = _name_thing(match)
    return CallFinding(f"created {label} {match[0]}", (), CallFacts(created=(label,)), False, 0.9)


def _name_thing(url: re.Match[str]) -> str:
    thing = f"{_THING[url[1]]}{url[2]}"
    return f"comment {re.split(r'[-_r]', url[3])[-1]} on {thing}" if url[3] else thing


def _hub_rows(area: str, action: str, view: OutputView) -> CallFinding | None:
    checks = _CHECK.findall(view.text)
    if checks:
        failing = [name for name, state, _ in checks if state == "fail"]
        states = ", ".join(
            f"{sum(s == state for _, s, _ in checks)} {state}" for state in unique(s for _, s, _ in checks)
        )
        headline = f"checks: {states}" + (f" (failing: {list_names(failing, 90)})" if failing else "")
        rows = [f"{name}: {state} {rest.split(chr(9))[-1]}" for name, state, rest in checks if state != "pass"]
        return CallFinding(headline, tuple(join_rows(rows, limit=700)), NO_FACTS, bool(failing), 0.7)
    fields = _GH_FIELD.findall(view.text)
    if fields:
        by_name = dict(fields)
        title = one_line(by_name.get("title", ""), 90)
        headline = f"{area} #{by_name.get('number', '?')} “{title}” {by_name.get('state', '')}".strip()
        body = view.text.partition("\n--\n")[2]
        rows = [f"{k}: {one_line(v, 160)}" for k, v in fields if k not in ("title", "number", "state")]
        return CallFinding(headline, (*rows, *join_rows(body.split("\n"), limit=500)), NO_FACTS, False, 0.5)
    if action == "list" and view.lines:
        rows = [one_line(x.replace("\t", " · "), 160) for x in view.lines]
        return CallFinding(
            f"{len(rows)} {area}s{view.extent.limits}, first {one_line(rows[0], 90)}",
            tuple(join_rows(rows, limit=700)),
            NO_FACTS,
            False,
            0.45,
        )
    return None


_ACTION_READERS: tuple[Callable[[ShellLine, OutputView], CallFinding | None], ...] = (
    _read_commit,
    _read_conflicts,
    _read_steps,
    _read_push,
)
_VIEW_READERS: dict[str, Callable[[OutputView], CallFinding | None]] = {
    "log": _read_log,
    "reflog": _read_log,
    "show": _read_show,
    "diff": _read_diff,
    "branch": _read_branches,
}
