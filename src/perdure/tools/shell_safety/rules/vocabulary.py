"""Dangers that the words of a command reveal, for any program.

Options that skip a check, delete, publish or open a port to others, code that is stored to run later, and
tasks of the project that are named after what they do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import is_dry_run
from perdure.tools.shell_safety.rules.sending import goes_nowhere
from perdure.tools.shell_safety.types import KINDS, Danger, word_set

# The words of a name, also of one in camel case: `deleteVolume`, `vm.destroy`.
PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_MAX_NAME_CHARS = 80
_MAX_OPTIONS = 200

# Programs whose arguments are quoted text, also those that look like options.
_QUOTES_TEXT = word_set("echo printf grep egrep fgrep rg ag ack ug ugrep man tldr test [ [[ export declare alias set")
# Options that skip a check or a protection.
_SKIPS_CHECK = re.compile(
    r"no-?verify|no-(?:verify-\w+|\w+-verify|check-certificates?|gpg-?checks?|signatures?|auth\w*|hooks?|protection"
    r"|require-auth|security|git-checks|pre-?push)"
    r"|insecure(?:-.+)?|dangerous(?:ly)?(?:-.+)?|unsafe(?!-(?:fix|perm|eval|inline)).*"
    r"|allow-(?:un(?:trusted|safe|authenticated|signed)|insecure|destroy|downgrades?|all-access|remote-access).*"
    r"|disable-(?:\w+-)?(?:security|auth\w*|ssl|tls|verif\w+|protection|firewall|host-key-check\w*)"
    r"|skip-(?:\w+-)?(?:ssl|tls|auth\w*|grant\w*|verif\w*|hooks?|signatures?|backups?|permissions?|safety|confirm\w*)"
    r"|ignore-(?:cert\w*(?:-errors)?|ssl\S*|tls\S*|host-keys?|safety|protection)|trust-(?:all|server-cert\w*)"
    r"|accept-data-loss|(?:yes-)?i-(?:really|know|understand|am-sure).*|bypass(?:-.+)?|without-auth\w*"
    r"|force-(?:yes|all|reset|delete|destroy|unlock|overwrite|remove|push|copy|unsafe\S*|bad\S*)"
    r"|override-(?:protection|lock|safety|policy|checks?)|no-?auth|noauth"
)
_NO_HOST_KEY = re.compile(r"(?:-o)?(?:StrictHostKeyChecking[= ]no\b|UserKnownHostsFile[= ]/dev/null)", re.I)
# Options that delete, by their first word, unless what is deleted is said to be of no worth.
_DELETING = word_set(
    "delete destroy purge wipe erase nuke drop terminate truncate unpublish revoke expunge obliterate flush clear"
)
_WORTHLESS = word_set(
    "cache caches caching branch merged missing temp tmp output outputs screen snapshot snapshots cursor whitespace "
    "trailing comments unused dead duplicates empty console coverage mocks terminal orphans timer author index lock "
    "obsolete"
)
_ANNOUNCING = {
    **dict.fromkeys(word_set("upload publish deploy push submit"), "publish"),
    **dict.fromkeys(word_set("send notify broadcast charge pay"), "commitment"),
}
# Programs of which such an option is something else: a port, a branch, a setting of a build.
_OTHER_MEANING = word_set(
    "docker podman nerdctl docker-compose git hg sl jj tar rsync tr gh glab kubectl oc k helm rclone aws gsutil borg "
    "bazel cmake rustc clang gcc ssh scp curl wget http https xh psql mysql find sed"
)
_ONLY_CHECKS = word_set("check test lint plan validate")
_FOR_REAL = word_set("no-dry-run no-dryrun live for-real really mainnet")
# Addresses on which a server answers everybody, and options that say so.
_EVERYBODY = re.compile(r"(?:[\w.:-]{0,60}[=:])?(?:tcp://)?(?:0\.0\.0\.0|\[::\])(?::\d{1,5}){0,2}/?\Z")
_ANY_HOST = re.compile(r"bind-?all|bind-?ip-?all|listen-?all|share|publicly|expose|allow-?remote")


def option_dangers(run: Invocation, *, is_text_tool: bool) -> Iterator[Danger]:
    """Yield the danger of an option that skips a check or, except for text tools, deletes or publishes."""
    if not run.args or run.name in _QUOTES_TEXT or is_dry_run(run):
        return
    for option in run.options[:_MAX_OPTIONS]:
        name = option.lstrip("-")[:_MAX_NAME_CHARS].replace("_", "-").lower()
        if len(name) > 3 and _SKIPS_CHECK.fullmatch(name) and not goes_nowhere(run):
            yield Danger("security", run.summary, f"{option} skips a check or a protection")
            return
        if option == "-k" and run.name == "curl" and not goes_nowhere(run):
            yield Danger("security", run.summary, "-k skips a check or a protection")
            return
        is_action = not (is_text_tool or run.name in _OTHER_MEANING or _ONLY_CHECKS.intersection(run.operands[:3]))
        if option.startswith("--") and is_action and (kind := _kind_of(name)):
            yield Danger(kind, run.summary, f"its option {option} says so: {KINDS[kind].why}")
            return
    if any(_NO_HOST_KEY.match(a) for a in run.args[:_MAX_OPTIONS]):
        yield Danger("security", run.summary, "it does not check which machine answers")
    if not is_text_tool and run.zones.workspace is not None and _serves_everybody(run):
        yield Danger("exposure", run.summary, "it answers requests of other machines")


def _kind_of(option: str) -> str:
    """Return the kind of danger that an option is named after; empty for most."""
    first, *rest = option.removeprefix("auto-").split("-")
    if first in _DELETING and _WORTHLESS.isdisjoint(rest) and (rest or first != "clear"):
        return "delete-tree"
    return "cloud" if option in _FOR_REAL else _ANNOUNCING.get(first, "")


_SERVES_APP = word_set(
    "uvicorn gunicorn hypercorn daphne granian waitress-serve flask fastapi rails puma thin unicorn ng vite next nuxt "
    "nuxi astro webpack webpack-dev-server react-scripts remix gatsby ember svelte-kit streamlit artisan symfony "
    "django-admin python python3 node php ruby bun deno npm yarn pnpm mix cargo go java dotnet hugo jekyll mkdocs"
)
_ADDRESS_OPTIONS = word_set("--ip --host --bind --listen --address --hostname")


def _pairs(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the options with their values: `--ip x`, `--ip=x`."""
    for arg, following in zip(args, (*args[1:], ""), strict=True):
        name, sign, value = arg.partition("=")
        yield name, value if sign else following


def _serves_everybody(run: Invocation) -> bool:
    args = run.args[:_MAX_OPTIONS]
    # The project's own application is usually made to be opened from elsewhere; a debugger is not.
    if run.name in _SERVES_APP and not any("inspect" in o for o in run.options):
        return False
    if any(len(a) < _MAX_NAME_CHARS and _EVERYBODY.match(a) for a in args):
        return True
    options = (o.lstrip("-").replace("_", "-") for o in run.options[:_MAX_OPTIONS] if o.startswith("--"))
    if any(map(_ANY_HOST.fullmatch, options)):
        return True
    if any(option in _ADDRESS_OPTIONS and value == "*" for option, value in _pairs(args)):
        return True
    # `vite --host` without a value.
    following = dict(zip(args, (*args[1:], "-"), strict=True))
    return following.get("--host", "x").startswith("-")


# Parts of a line that fetches something and runs what it gets, opens a shell to the network, or sends variables.
_FETCHES = re.compile(r"\b(?:curl|wget|fetch|iwr|irm|Invoke-WebRequest|DownloadString)\b")
_RUNS_INPUT = re.compile(
    r"\|\s{0,4}(?:sudo\s{1,4})?(?:/\w{1,10}/)?(?:(?:ba|z|da|k|a)?sh|python3?|node|perl|ruby|php|iex|source)\b"
    r"|(?:\beval|\bexec|\bsource|\bsh|\bbash|\biex)\s{0,4}(?:-c\s{0,4})?[\\\"'(]{0,4}\s{0,4}(?:\$\(|`|<\(|\()"
)
_DECODES = re.compile(r"\bbase64\s{1,4}(?:-d|-D|--decode)|\bxxd\s{1,4}-r")
_OPENS_SHELL = re.compile(
    r"/dev/(?:tcp|udp)/|\b(?:nc|ncat|netcat)\s(?:-\w{1,6}\s{1,4}){0,4}-\w{0,6}e\b|\b(?:ba|z)?sh\s{1,4}-i\b"
)
_SENDS_SECRETS = re.compile(
    r"toJSON\(\s{0,4}secrets|\b(?:env|printenv|export -p)\s{0,4}\|[^\n]{0,200}\b(?:curl|wget|nc|base64)\b"
    r"|\b(?:curl|wget)\b[^\n|]{0,200}[?/=]\$\{?\w{0,40}(?:TOKEN|SECRET|PASSWORD|API_?KEY)"
    r"|\b(?:curl|wget)\b[^\n|]{0,200}[?&=/]\$\{\{\s{0,4}secrets"
    r"|\b(?:curl|wget)\b[^\n|]{0,200}\$\((?:whoami|hostname|id|env|printenv|cat)\b"
    r"|\$\{\{\s{0,4}secrets\.\w{1,60}\s{0,4}\}\}\"?'?\s{0,4}\|"
)
# A source of packages other than the usual ones, in a file of settings.
_OTHER_SOURCE = re.compile(
    r"(?:registry|index[-_]url|find-links|npmRegistryServer|registry\.npmjs\.org|pypi\.org/simple)\W{1,6}https?://"
    r"(?!registry\.(?:npmjs|yarnpkg)|pypi\.org|localhost|127\.|files\.pythonhosted)",
    re.I,
)
_IS_PROSE = re.compile(
    r"(?:\.(?:md|mdx|rst|adoc|txt|html?|log|po|csv)|(?:^|/)(?:[\w.-]{0,40}Dockerfile|Containerfile)[\w.-]{0,40})\Z",
    re.I,
)
_STORES = word_set("tee sed gsed perl npm pnpm yarn jq yq dasel composer git sponge")
_STORING = word_set("set config alias pkg")
_MAX_LINES = 4_000
_MAX_LINE_CHARS = 20_000


def stored_code_dangers(run: Invocation, text: str = "") -> Iterator[Danger]:
    """Yield the danger of code that is stored in a file or a setting, and fetches, hides or sends when it runs."""
    targets = run.writes or (run.operands if run.name == "tee" else ())
    if targets:
        if all(_IS_PROSE.search(t[-_MAX_NAME_CHARS:]) or t.startswith("/dev/") for t in targets):
            return
    elif not (run.name in _STORES and (_is_in_place(run) or not _STORING.isdisjoint(run.operands[:2]))):
        return
    for line in "\n".join((text or run.stdin or "", *run.args)).split("\n", _MAX_LINES)[:_MAX_LINES]:
        if _is_payload(line[:_MAX_LINE_CHARS]):
            where = f" > {targets[0][:_MAX_NAME_CHARS]}" if targets else ""
            yield Danger(
                "hidden-code", f"{run.summary}{where}", "it stores code that fetches, hides or sends something"
            )
            return


def _is_in_place(run: Invocation) -> bool:
    return any(o.startswith(("-i", "--in-place", "-pi")) for o in run.options)


def _is_payload(line: str) -> bool:
    if (_FETCHES.search(line) or _DECODES.search(line)) and _RUNS_INPUT.search(line):
        return True
    return (_OPENS_SHELL.search(line) or _SENDS_SECRETS.search(line) or _OTHER_SOURCE.search(line)) is not None


# Words in the names of tasks by what they do; of the last group the first word of a name counts.
_ENDS = word_set("destroy nuke wipe purge teardown decommission deprovision obliterate uninstall erase")
_UNDOES = word_set("rollback downgrade")
_RELEASES = word_set("deploy publish unpublish promote redeploy undeploy upload push ship rollout")
_REACHES = {
    **dict.fromkeys(word_set("send notify broadcast announce tweet charge refund pay payout bill"), "commitment"),
    **dict.fromkeys(word_set("createsuperuser changepassword"), "users"),
    **dict.fromkeys(word_set("revoke grant ban suspend deactivate impersonate"), "users"),
}
_HARMLESS_TASK = word_set(
    "local m2 dev check dry dryrun test tests spec status list logs log help docs plan preview minikube kind yalc mock "
    "fake fixture fixtures sandbox lint validate cache caches dist tmp node modules coverage artifacts notes changelog"
)


def task_danger(run: Invocation, words: tuple[str, ...], *, releases: bool) -> Danger | None:
    """Return the danger of a task of the project by its name: `make teardown`, `./deploy.sh`, `send_newsletter.py`."""
    for word in words:
        parts = [part.lower() for part in PARTS.findall(word.rpartition("/")[2][:_MAX_NAME_CHARS])]
        names = frozenset(parts)
        if names & _HARMLESS_TASK or not parts:
            continue
        if names & _ENDS:
            return Danger("database", run.summary, "it is named after deleting")
        if names & _UNDOES:
            return Danger("database", run.summary, "it is named after undoing changes of data")
        if names & _RELEASES or (releases and "release" in names):
            return Danger("publish", run.summary, "it is named after publishing")
        if (kind := _REACHES.get(parts[0])) is not None:
            return Danger(kind, run.summary)
    return None
