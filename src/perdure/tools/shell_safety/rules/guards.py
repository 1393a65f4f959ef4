"""Rules for what is not known to be harmless: programs that act on others or the system, and unknown programs.

A guarded program runs without approval for commands that only read (`list`, `describe`, `logs`) and for those its row
names; anything else is asked about, also commands that no table has. An unknown program is asked about unless
its command only reads or is one of a developer's (`lint`, `test`, `build`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, takewhile

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.paths import STORAGE_DEVICE
from perdure.tools.shell_safety.rules.rule import is_dry_run, is_help, read_table, table_rows
from perdure.tools.shell_safety.rules.sending import LOCAL_URL
from perdure.tools.shell_safety.rules.vocabulary import PARTS, task_danger
from perdure.tools.shell_safety.targets import MODE_VARIABLE, names_production
from perdure.tools.shell_safety.types import KINDS, Danger, strip_taints, word_set

# Names that end in what the tool does with files: `djlint`, `gofumpt`, `yaml-language-server`, `csv2json`.
_SHAPES = re.compile(
    r"(?:(?:python|pypy|pip|node|ruby|perl|php|lua|gcc|g\+\+|clang|clang\+\+|clang-(?:format|tidy)|llvm-[a-z]+|java|go|gcov|ghc|guile"
    r"|tclsh|erl|swipl|lldb|gdb|cpp|psql|postgres|pg_\w{2,12}|dotnet|cmake|make|autoconf|automake|wine)[-_]?[\d.]+(?:-config|-dbg|t)?"
    r"|[\w.-]{1,60}-(?:gcc|g\+\+|ld|ar|as|objdump|objcopy|strip|nm|readelf|gdb|size|ranlib|pkg-config|clang)(?:-[\d.]+)?"
    r"|[\w.-]{0,60}(?:lint|linter|fmt|format|formatter|checker|check|test|tests|spec|bench|language-server|lsp|langserver|codegen"
    r"|pretty|beautify|minify|[a-z]{2}2[a-z]{2,8})"
    r"|[\w.]{1,60}(?:-(?:to-[a-z]{2,10}|tsc|gen|generator|parser|diff|validate|validator|compile|compiler|preview|viewer|config|docs?"
    r"|doctor|cov|coverage|build|builder|bundler|unit|stats|graph|tree|report|reporter|sort|profiler|repl|codemod|types|loader)){1,3}"
    r"|(?:gen|create|cargo|pytest|mypy|eslint|prettier|babel|sphinx|mkdocs|protoc-gen|tree-sitter|generate|lint|test|check|format|sort"
    r"|build|validate|verify|parse|diff|compare|count|tap|go-test|jest|vite|vitest|webpack|rollup|postcss|tsc|ts|flake8|pylint)-[\w.-]{1,60})\Z"
)


@cache
def _names() -> dict[str, str]:
    """Return the programs, and what their operands are: `text`, `targets` or `commands`."""
    table = read_table("local_tools.txt").items()
    return {name: title.split()[-1] for title, lines in table for line in lines for name in line.split()}


def is_local_tool(name: str) -> bool:
    """Return whether a program is a well-known tool of this machine, or is named like one."""
    # A package of npx may name its version: `create-vite@latest`.
    plain = name.partition("@")[0] if name[:1] != "@" else name
    return plain in _names() or _SHAPES.match(plain) is not None


def is_text_tool(name: str) -> bool:
    """Return whether the operands of a known tool are files and text."""
    return _names().get(name) == "text"


@dataclass(frozen=True, slots=True)
class GuardedProgram:
    """The kind of danger of a program, and its commands (`pr.create`) and options that need no approval."""

    kind: str
    free: frozenset[str]
    # Whether commands that only read need no approval either.
    may_read: bool = True


# Kinds of guarded programs that work on what belongs to others as well.
_OF_OTHERS = word_set("cloud database commitment credentials firmware")


@cache
def guards() -> dict[str, GuardedProgram]:
    """Return the guarded programs by name, from `guarded_programs.txt`."""
    table: dict[str, GuardedProgram] = {}
    for kind, lines in read_table("guarded_programs.txt").items():
        for names, free in table_rows(lines):
            guard = GuardedProgram(kind, word_set(free), may_read=free.strip() != "never")
            table.update(dict.fromkeys(names.split(), guard))
    return table


# Verbs that only read, wherever they are in a command; the second group may also be the name of a thing.
_READS = word_set(
    "get list ls show describe status inspect view search whoami help version explain ps history diff plan preview "
    "validate lint verify stat stats top lookup info current"
)
_MAY_READ = word_set(
    "head read filter log logs tail events watch check cat doctor tree outdated graph schema health test env docs "
    "count find query usage metrics report summary ping which template render kustomize completion"
)
# Verbs of a developer, for programs that are in no table.
_DEVELOPS = word_set(
    "test lint build check format fmt compile validate verify bench benchmark doc docs generate gen dev serve "
    "typecheck analyze analyse coverage watch init new install bootstrap parse render convert transpile bundle audit "
    "outdated fix doctor repl"
)
_DEVELOPERS_OPTIONS = word_set(
    "--check --noEmit --no-emit --list --lint --test --watch --fix --build --diff --verify --validate --ci --coverage "
    "--strict"
)
_SOURCE_FOLDERS = word_set(
    ". src source sources lib libs app apps test tests spec specs docs doc include includes scripts packages cmd "
    "internal pkg crates config configs public assets static examples example data schema schemas proto protos api "
    "server client web ui frontend backend components modules core build dist out target notebooks templates tools "
    "bench benchmarks fixtures"
)
_DESTROYS = word_set(
    "delete deleteall destroy purge wipe erase nuke terminate deprovision decommission expunge obliterate factoryreset"
)
_CHANGES = _DESTROYS | word_set(
    "remove rm del drop truncate flush flushall flushdb uninstall prune zap shred evict revoke deactivate disable "
    "unlink kill rollback reset shutdown reboot poweroff halt suspend takeover rekey failover demote detach "
    "deregister unregister overwrite reinit ban quarantine unmount deauth deauthorize seal create add set put update "
    "apply edit modify replace scale restart stop exec enable attach assign rotate restore migrate move mv rename "
    "register install upgrade write push merge close approve cancel abort trigger launch provision resize rebuild "
    "regenerate"
)
_OPENS = word_set("expose grant invite impersonate funnel")
# Verbs that let files of the project run code by themselves: `direnv allow`, `mise trust`.
_TRUSTS = word_set("trust allow permit")
_PUBLISHES = word_set("publish unpublish yank deploy promote upload broadcast submit")
_PUSHES = word_set("push retire redeploy undeploy")
# Parts of the name of a target that only builds or checks, or works on this machine.
_LOCALLY = word_set(
    "local m2 dev check dry test tests status list logs help docs build plan preview minikube kind yalc"
)
# Tools that release without a command, and tools whose command `release` uploads.
_RELEASES_ALONE = word_set("semantic-release np release-it release-please gh-pages")
_RELEASERS = word_set("minil dzil sbt lein nx projen mvn mvnw")
_RUNS_TARGETS = word_set(
    "make gmake bmake just task doit inv invoke rake mage ninja bazel redo tup scons waf ant phing grunt gulp jake "
    "robo nox tox please plz moon turbo pants buck buck2 concurrently run-s run-p"
)
_MANAGERS = word_set("npm yarn pnpm bun")
# Tools of which a task `release` most often builds one.
_BUILDS_RELEASE = word_set("make gmake bmake mix cargo deno gradle gradlew rebar3 ninja bazel mvn mvnw go dotnet")
# Programs that run code of the project.
_RUNS_CODE = _MANAGERS | word_set(
    "python python3 node ruby php perl bash sh zsh deno tsx ts-node go cargo java dotnet rails rake mix flask composer "
    "django-admin manage.py artisan console symfony wp drush gradle gradlew mvn mvnw sbt lein elixir Rscript julia lua"
)
# Parts of the names of tasks that build or look, and of those that start the program, which a mode is for.
_BUILDS = _DEVELOPS | word_set(
    "tests spec specs start server dist bundle pack precompile assets digest preview plan status list show view logs "
    "log diff config types storybook typecheck help version ci clean deps routes info"
)
_EMPTIES = word_set("wipe reset drop delete purge nuke truncate destroy erase flush")
# Words that are also about tidying: `clean_data.py` deletes no data, `clear-users.py` does.
_TIDIES = word_set("remove prune clear cleanup clean")
_REMOVES, _ALL = word_set("delete remove drop destroy truncate erase"), word_set("all everything")
_DATA = word_set("tables table data records schema")
_STORED = word_set(
    "db database databases users user cluster bucket buckets infra stack accounts account customers customer orders "
    "tenants tenant queue queues jobs sessions backups volumes flyway"
)
_RUNS_PROGRAM = word_set("release index main worker")
_FORCED = (_CHANGES | {"fix", "sync", "deploy"}) - word_set("install add create init")
_COMMITS = word_set("send sendtoaddress sendmany sendrawtransaction pay purchase buy rent withdraw bid tweet reply")
# Words that may name a thing as well: `payments list` only reads.
_NOUNS = {
    **dict.fromkeys(word_set("tunnel share"), "exposure"),
    **dict.fromkeys(word_set("transfer release"), "publish"),
    **dict.fromkeys(
        word_set(
            "sms messages message payment payments payout payouts charge charges order invoice refund refunds comment "
            "post email mail"
        ),
        "commitment",
    ),
    **dict.fromkeys(word_set("run start import save load patch copy cp sync"), ""),
}
_KIND_BY_VERB = {
    **_NOUNS,
    **dict.fromkeys(_DESTROYS, "cloud"),
    **dict.fromkeys(_OPENS, "exposure"),
    **dict.fromkeys(_TRUSTS, "environment"),
    **dict.fromkeys(_PUBLISHES, "publish"),
    **dict.fromkeys(_COMMITS, "commitment"),
}
_SHOWS_VALUE = word_set("get show view cat env inspect read")
_SECRET_WORD = re.compile(
    r"secret|credential|passw|token|private-?key|access-?key|api-?key|kubeconfig|vault|keychain", re.I
)
# Names of programs that keep secrets.
_SECRET_STORE = re.compile(
    r"^pass|pass(?:-cli)?$|^key|key(?:-manager)?$|hsm|safe$|lock(?:box)?$|strongbox|cyberark|wallet|otp$", re.I
)
# Options of many programs whose value is not a command.
_VALUE_OPTIONS = word_set(
    "-n -c -f -o -a -p -u -H -s -e -r -R -l -t -i -g -C --namespace --context --profile --region --project --config "
    "--file --output --org --app --cluster --kubeconfig --host --url --prefix -w -A --env-file --project-name "
    "--project-directory --git-dir --work-tree --cwd --chdir --directory --endpoint --endpoint-url --address --server "
    "--token --team --account --subscription --resource-group --zone --port --repo --cwd --dir --format "
    "--bootstrap-server --endpoints --name --env --environment --stage --stack --workspace --scope --database "
    "--command-config"
)
# What is deleted on this machine in passing, and options that only name a state.
_HARMLESS_OPTIONS = re.compile(
    r"--(?:rm|no-|auto-|delete-(?:missing|merged|branch|extraneous)|disable(?:-|=|\Z)|reset-(?:cursor|author|timer))"
)
_WORD = re.compile(r"(?:[a-z]{1,20}\.)?[A-Za-z][A-Za-z0-9]{0,40}(?:[:._-][A-Za-z0-9]{1,40}){0,6}\Z")
_PREFIXED = re.compile(r"(?:get|list|describe|show)[a-z]{3,}\Z")
# An option with one dash whose name is a word: `-purge`.
_LONG_OPTION = re.compile(r"-[a-z]{5,20}\Z")
# A part of a name such as `search-replace`.
_DESTROYING_PART = re.compile(r"[-_:.](?:replace|delete|remove|destroy|purge|wipe|erase|terminate)\Z")
# Files that a program in no table might send rather than compile.
_DATA_FILE = re.compile(
    r"\.(?:csv|tsv|zip|tgz|gz|tar|pdf|docx?|xlsx?|db|sqlite3?|sql|dump|bak|env|log|eml|key|pem)\Z", re.I
)
_LOOKED_AT = 5
# Words of a build tool that may be its command or a target.
_NAMED_FIRST = 3


def default_dangers(run: Invocation, *, is_own: bool, is_script: bool) -> Iterator[Danger]:
    """Yield the danger of a command that no rule is about.

    `is_own`: the program need not be known, as those of a container; `is_script`: it is a file of the workspace.
    """
    # The options of a task may follow dashes: `npm run deploy -- --dry-run`.
    if is_help(run) or is_dry_run(run) or "--dry-run" in run.args:
        return
    guard = guards().get(run.name)
    named = (*run.reads, run.name) if is_script else run.reads
    targets = (*run.production_targets, *filter(_is_elsewhere, run.environment), *filter(names_production, named))
    if targets and _acts_on_target(run, targets, is_script=is_script):
        yield Danger("cloud", run.summary, f"it may change a system that others use ({strip_taints(targets[0])})")
    elif _destroys_data(run, is_script=is_script):
        yield Danger("database", run.summary, "it is named after deleting data")
    elif (danger := _named_danger(run, is_script=is_script)) is not None:
        yield danger
    elif guard is not None:
        if not _is_harmless(run, guard):
            yield _make_danger(run, guard)
    elif (operands := _names().get(run.name)) in ("commands", "targets"):
        first = _verb((_words(run) or ("",))[0])
        if any(map(STORAGE_DEVICE.match, run.operands)):
            yield Danger("disk", run.summary)
        elif operands == "commands" and first in _DESTROYS | _PUBLISHES | _COMMITS | _TRUSTS | {"transfer"}:
            yield Danger(_KIND_BY_VERB[first], run.summary)
        elif run.name not in _RUNS_CODE - {"dotnet"} and _destroys_thing(_words(run)[:_NAMED_FIRST]):
            yield Danger("cloud", run.summary)
        elif _is_published(run):
            yield Danger("publish", run.summary)
        elif operands == "commands" and _shows_secret(run):
            yield Danger("credentials", run.summary)
    elif targets and _is_aimed(run, targets):
        yield Danger("cloud", run.summary, f"it may change a system that others use ({strip_taints(targets[0])})")
    elif not (is_script or (is_local_tool(run.name) and not (_is_of_devices(run) or _belies_name(run)))):
        if _reads(run):
            yield from (Danger("credentials", run.summary),) if _prints_secret(run) else ()
        elif kind := _kind_by_verb(run, ""):
            yield Danger(kind, run.summary)
        elif not (is_own or _develops(run)):
            yield unknown_program(run.name, run.summary)


def _is_elsewhere(variable: str) -> bool:
    """Return whether a variable such as `API_URL=https://api.example` is the address of another machine."""
    address = variable.partition("=")[2]
    return re.match(r"\w{2,20}://[\w-]", address) is not None and not LOCAL_URL.match(address)


_ENDS_ALL = re.compile(r"(?:uninstall|remove|delete|stop|kill|reset|destroy|drop|purge)[-_:]?all")


def _destroys_thing(words: tuple[str, ...]) -> bool:
    """Match `nuget delete …` and `uninstall-all`, but not `cache purge`."""
    is_destroyed = not _DESTROYS.isdisjoint(words[1:]) or any(map(_ENDS_ALL.fullmatch, words[:2]))
    return is_destroyed and not any("cache" in word for word in words)


# Options of any tool that set where it acts.
_AIMS = ("-t", "--target", "--host", "--context", "--remote", "--server", "--cluster")


def _is_aimed(run: Invocation, targets: tuple[str, ...]) -> bool:
    """Match a local tool that is pointed at a system that others use: `tmux send-keys -t prod:0 …`."""
    is_text = run.name in ("docker", "grep", "rg", "awk", "sed", "sort", "cp", "mv", "ln", "install", "touch", "mktemp")
    return (
        not is_text
        and any(names_production(v) for v in run.all_values_of(*_AIMS))
        and _BUILDS.isdisjoint(run.operands[:2])
    )


def _destroys_data(run: Invocation, *, is_script: bool) -> bool:
    """Return whether code of the project is named after deleting data: `npm run db:reset`, `./wipe-users.sh`."""
    if not (is_script or run.name in _RUNS_CODE or run.name in _RUNS_TARGETS):
        return False
    after = run.args[run.args.index("--") + 1 :][:_LOOKED_AT] if "--" in run.args else ()
    for word in (run.name, *_words(run), *after):
        parts = {part.lower() for part in PARTS.findall(word[:200])}
        if parts & _EMPTIES and parts & (_DATA | _STORED) and parts.isdisjoint(_LOCALLY):
            return True
        if parts & _TIDIES and parts & _STORED and parts.isdisjoint(_LOCALLY):
            return True
        if parts & _REMOVES and parts & _ALL and parts.isdisjoint(_LOCALLY):
            return True
    return False


def _named_danger(run: Invocation, *, is_script: bool) -> Danger | None:
    return task_danger(run, _task(run, is_script=is_script), releases=run.name not in _BUILDS_RELEASE)


def _task(run: Invocation, *, is_script: bool) -> tuple[str, ...]:
    """Return the words that name code of the project: a script and the command it is given, or a target."""
    if is_script:
        return (run.name, *_words(run)[:1])
    if run.name in _MANAGERS:
        words = _words(run)
        return words[1:2] if words[:1] in (("run",), ("run-script",)) else words[:1] if run.name != "npm" else ()
    if run.name in _RUNS_TARGETS:
        return _words(run)[:_NAMED_FIRST]
    # A module (`python -m`) is a program of its own, and `bash -n` only parses.
    is_code = run.name in _RUNS_CODE - {"dotnet"} and run.args[:1] not in (("-m",), ("-n",))
    return _words(run)[:2] if is_code else ()


def _acts_on_target(run: Invocation, named: tuple[str, ...], *, is_script: bool) -> bool:
    """Return whether code of the project may change the system that is named, rather than build for it."""
    if not (is_script or run.name in _RUNS_CODE or run.name in _RUNS_TARGETS):
        return False
    # `npm ci --production` leaves packages out.
    targets = [t for t in named if not (t in ("--production", "--prod") and run.name in _MANAGERS)]
    parts = {part.lower() for word in (run.name, *_words(run)) for part in PARTS.findall(word[:200])}
    is_mode = all(MODE_VARIABLE.match(t) for t in targets)
    module = "".join(run.operands[:1]) if "-m" in run.args[:2] else ""
    return (
        bool(targets)
        and not is_local_tool(module)
        and parts.isdisjoint(_BUILDS | _RUNS_PROGRAM if is_mode else _BUILDS)
    )


def _is_published(run: Invocation) -> bool:
    """Return whether a command or target of a build tool publishes: `hex.publish`, `gh-deploy`, `publishSigned`."""
    # The targets of these are the project's own.
    if "--push" in run.options or (run.name in _RELEASERS and re.match(r"release(?::|\Z)", "".join(run.operands[:1]))):
        return True
    # `dotnet publish` writes a folder.
    if run.name in _RUNS_TARGETS or (run.name == "dotnet" and run.starts("publish")):
        return False
    for word in (w.lstrip("_.") for w in _words(run)[:_NAMED_FIRST]):
        parts = {part.lower() for part in PARTS.findall(word)} if _WORD.match(word) else set()
        if not (parts.isdisjoint(_PUBLISHES | _PUSHES) or parts & _LOCALLY or run.classify(word).is_file):
            return True
    return False


def _is_harmless(run: Invocation, guard: GuardedProgram) -> bool:
    if guard.kind != "exposure" and _is_emulated(run):
        return True
    # The packages of a container are its own.
    if guard.kind == "packages" and run.zones.workspace is None:
        return True
    return _is_free(run, guard) or (guard.may_read and _reads(run) and not _prints_secret(run, guard.kind))


def _prints_secret(run: Invocation, kind: str = "") -> bool:
    """Return whether a command that reads shows the value of a secret, not only its name."""
    words = _words(run)
    if run.name in ("kubectl", "oc", "k", "kubecolor") or not any(_verb(w) in _SHOWS_VALUE for w in words):
        return False
    named = " ".join((*words, run.name)).replace("login-password", "")
    return kind == "credentials" or (_SECRET_WORD.search(named) or _SECRET_STORE.search(run.name)) is not None


def _shows_secret(run: Invocation) -> bool:
    """Match the command of a local tool that is named after showing secrets: `rails credentials:show`."""
    return any(_SECRET_WORD.match(w) and _verb(w) in _SHOWS_VALUE for w in _words(run)[:2] if ":" in w)


def _is_of_devices(run: Invocation) -> bool:
    """Return whether a program that is only named like a local tool works on a device."""
    return run.name not in _names() and any(run.classify(o).zone == "device" for o in run.operands)


def _belies_name(run: Invocation) -> bool:
    """Return whether a program that is only named like a local tool (`…fmt`) gets an argument to change or publish."""
    first = _verb((_words(run) or ("",))[0])
    return run.name not in _names() and (first in _CHANGES - _DEVELOPS or first in _PUBLISHES | _PUSHES | {"login"})


def _make_danger(run: Invocation, guard: GuardedProgram) -> Danger:
    """Return the danger of a command that is not free; the reason is plain where nothing is known of it."""
    kind = _kind_by_verb(run, "cloud") if guard.kind == "cloud" else guard.kind
    if guard.kind == "cloud" and _reads(run) and _prints_secret(run):
        return Danger("credentials", run.summary)
    verbs = [_verb(word) for word in _words(run)]
    is_change = not guard.may_read or kind != guard.kind or any(v in _CHANGES or v in _KIND_BY_VERB for v in verbs)
    command = " ".join((run.name, *_words(run)[:2]))
    reason = "" if is_change else f"“{command}” is not known to be harmless, and may be: {KINDS[kind].why}"
    return Danger(kind, run.summary, reason)


def unknown_program(name: str, summary: str) -> Danger:
    """Return the danger of a program that is in no table, with the way to allow it."""
    reason = f"it is not known what {name} does (a rule “terminal({name} *)” in permissions.allow allows it)"
    return Danger("unknown-program", summary, reason, program=name)


def _is_emulated(run: Invocation) -> bool:
    """Return whether the service is one on this machine."""
    return LOCAL_URL.match(run.value_of("--endpoint-url", "--endpoint", "--url", "--address") or "") is not None


def _words(run: Invocation) -> tuple[str, ...]:
    """Return the operands that may be a command, without the values of common options."""
    args = run.args[: run.args.index("--")] if "--" in run.args else run.args
    pairs = zip(("", *args), args, strict=False)
    # `-r` has a value for some programs and none for others: `pnpm -r publish`.
    words = (
        a
        for before, a in pairs
        if not a.startswith("-") and (before not in _VALUE_OPTIONS or a in _PUBLISHES | _DESTROYS)
    )
    return tuple(islice(words, _LOOKED_AT))


def _is_served_elsewhere(run: Invocation) -> bool:
    """Return whether the containers are on another machine: `docker -H ssh://host`, `docker --context prod`."""
    before = Invocation(run.name, tuple(takewhile(lambda a: a not in ("run", "exec", "compose"), run.args)), run.zones)
    hosts = [
        h for h in before.all_values_of("-H", "--host") if re.match(r"(?:tcp|ssh)://", h) and not LOCAL_URL.match(h)
    ]
    return bool(hosts) or any(map(names_production, before.all_values_of("-c", "--context")))


# Commands on a container that is named; the words of others are images and files.
_ON_CONTAINER = word_set("cp exec stop rm kill restart start attach pause update use export commit")


_ON_SERVICES = word_set("up down stop restart rm kill exec run start create")


def _names_live_container(run: Invocation) -> bool:
    """Match `docker cp prod-db:/data .`, `docker context use production`."""
    words = _words(run)
    at = next((i for i, w in enumerate(words[:2]) if w in _ON_CONTAINER), None)
    if words[:1] == ("compose",) or run.name.endswith("-compose"):
        is_change = any(w in _ON_SERVICES for w in words[:2])
        return is_change and any(
            map(names_production, run.all_values_of("-f", "--file", "--env-file", "-p", "--profile"))
        )
    names = [w.partition(":")[0] for w in words[at + 1 :][:2]] if at is not None else []
    return any(map(names_production, names))


def _is_for_others(run: Invocation) -> bool:
    """Match `gh pr create --repo upstream/lib`: a change of a repository that is not the current one."""
    return run.has("-R", "--repo") and "create" in run.operands[:2]


def _is_forced(run: Invocation) -> bool:
    """Match a change that is forced on others or beyond what was asked for: `npm audit fix --force`."""
    verbs = {_verb(w) for w in _words(run)[:_NAMED_FIRST]}
    return "--force" in run.options and not verbs.isdisjoint(_FORCED)


def _is_free(run: Invocation, guard: GuardedProgram) -> bool:
    if guard.kind in _OF_OTHERS and (run.production_targets or _is_for_others(run)):
        return False
    if guard.kind == "containers" and (
        "--push" in run.options or _is_served_elsewhere(run) or _names_live_container(run)
    ):
        return False
    if guard.kind != "containers" and _is_forced(run):
        return False
    if any(o in guard.free for o in run.options):
        return True
    words = _words(run)
    if not words:
        return guard.may_read and run.name not in _RELEASES_ALONE and not run.args and run.stdin is None
    paths = [".".join(words[:n]) for n in range(1, len(words) + 1)]
    # A row is about many programs: what is a command of one may be the name of a thing for another.
    if guard.kind in _OF_OTHERS and not _DESTROYS.isdisjoint(words[1:2]):
        return False
    return (
        any(path in guard.free for path in (*paths, f"{paths[-1]}$", words[0].lower()))
        or f"*.{words[1] if len(words) > 1 else ''}" in guard.free
        or any(f"{option}.{words[0]}" in guard.free for option in run.options)
    )


def _reads(run: Invocation) -> bool:
    """Return whether the command is one that only reads; a verb that changes something comes first otherwise."""
    words = list(takewhile(_WORD.match, _words(run)))
    verbs = [_verb(word) for word in words]
    for word, verb in zip(words, verbs, strict=True):
        if _DESTROYING_PART.search(word):
            return False
        if verb in _READS or _PREFIXED.match(verb):
            return True
        if verb in _CHANGES or (verb in _KIND_BY_VERB and verb not in _NOUNS):
            return False
    last = next((v for v in reversed(verbs) if v in _MAY_READ or v in _NOUNS), "")
    return last in _MAY_READ


def _verb(word: str) -> str:
    """Return the verb of a command such as `describe-instances`, `apps:list` or `getBalance`."""
    last = re.split(r"[:.]", word)[-1]
    parts = PARTS.findall(last)
    return parts[0].lower() if parts else last


def _develops(run: Invocation) -> bool:
    """Return whether a program that is in no table is used like a developer's tool: by its verb, or on source files."""
    if run.name.endswith("ctl"):
        return False
    words = run.operands
    if not words:
        return not _DEVELOPERS_OPTIONS.isdisjoint(run.options)
    return words[0] in _DEVELOPS or all(_is_source(run, word) for word in words)


def _is_source(run: Invocation, word: str) -> bool:
    """Return whether a word is clearly a file or folder of the workspace, not a name of something else."""
    location = run.classify(word)
    first = word.removeprefix("./").partition("/")[0]
    if _DATA_FILE.search(word):
        return False
    return location.zone == "workspace" and (location.is_file or word.startswith("./") or first in _SOURCE_FOLDERS)


def _kind_by_verb(run: Invocation, default: str) -> str:
    """Return the kind of danger that a command or a long option is named after."""
    names = [o for o in _words(run) if _WORD.match(o)]
    names += [o[2:82] for o in run.options if o.startswith("--") and not _HARMLESS_OPTIONS.match(o)]
    names += [o[1:82] for o in run.options if _LONG_OPTION.match(o)]
    names += [run.name] if "-" in run.name and not default else []
    verbs = (part.lower() for name in names for part in PARTS.findall(name))
    return next((kind for v in verbs if (kind := _KIND_BY_VERB.get(v))), default)
