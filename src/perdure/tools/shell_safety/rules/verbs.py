"""Dangers told by the name of a sub-command or an option, for programs that have no rule of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import is_dry_run, is_help
from perdure.tools.shell_safety.types import Danger, word_set

# Verbs that mean a loss wherever they occur; the others count only for programs without a rule.
_DESTROYS = word_set(
    "delete deleteall destroy purge wipe erase nuke terminate deprovision decommission expunge obliterate factoryreset"
)
_REMOVES = word_set(
    "remove rm del drop truncate flush flushall flushdb uninstall prune zap shred evict revoke deactivate disable "
    "unlink kill rollback reset shutdown reboot poweroff halt suspend takeover rekey failover demote detach "
    "deregister unregister overwrite reinit ban quarantine unmount deauth deauthorize seal"
)
_OPENS = word_set("expose tunnel grant invite impersonate funnel")
_PUBLISHES = word_set("publish unpublish yank deploy promote upload transfer broadcast")
# Verbs and nouns of messages to people and of money.
_COMMITS = word_set(
    "send sendtoaddress sendmany sendrawtransaction sms messages pay payment payments payout payouts charge charges "
    "purchase buy order rent invoice refund refunds withdraw bid comment"
)
_KIND_BY_VERB = {
    **dict.fromkeys(_REMOVES | _DESTROYS, "cloud"),
    **dict.fromkeys(_OPENS, "exposure"),
    **dict.fromkeys(_PUBLISHES, "publish"),
    **dict.fromkeys(_COMMITS, "commitment"),
}
# What is deleted on this machine in passing, and options that only name a state.
_HARMLESS_OPTIONS = re.compile(
    r"--(?:rm|no-|auto-|delete-(?:missing|merged|branch|extraneous)|disable(?:-|=|\Z)|reset-(?:cursor|author|timer))"
)
# Operands of these programs are text, targets of the project itself, or commands that are checked on their own.
_FREE_OPERANDS = word_set(
    "env busybox timeout gtimeout ionice nice nohup setsid stdbuf command exec eval builtin time watch flock sudo doas "
    "man info type which whereis tldr apropos whatis help echo printf test [ [[ expr let export set unset alias "
    "read make gmake just task invoke inv rake gulp grunt ninja tox nox hatch pdm rye mage earthly bazel buck2 "
    "pants lerna nx turbo gradle gradlew mvn mvnw sbt lein mix cmake ctest meson scons dotnet go zig cargo rustup "
    "swift xcodebuild npm npx pnpm yarn bun deno pip pip3 pipx uv poetry pipenv conda mamba brew gem bundle bundler "
    "composer git hg svn jj gh glab tig pre-commit ruff black isort mypy eslint prettier jest vitest pytest python "
    "python3 node ruby perl php rails flask django-admin alembic prisma grep egrep fgrep rg ag ack fd fdfind find "
    "locate xargs sed awk gawk jq yq cut tr sort uniq wc head tail cat bat less more ls tree stat file du df diff "
    "cmp comm patch tee touch mkdir cp mv ln rm rmdir tar zip unzip gzip curl wget http xh ssh scp rsync docker "
    "podman docker-compose kubectl redis-cli psql mysql sqlite3 mongosh tmux screen code vim nvim nano emacs thread "
    "bt gdb lldb jupyter ollama ansible ansible-playbook vagrant wait trap source . cd pushd popd history fc hash "
    "kill pkill"
)
_WORD = re.compile(r"(?:[a-z]{1,20}\.)?[A-Za-z][A-Za-z0-9]{0,40}(?:[:_-][A-Za-z0-9]{1,40}){0,6}\Z")
# The words of a name, also of one in camel case: `deleteVolume`, `vm.destroy`.
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# An option with one dash whose name is a word: `-purge`.
_LONG_OPTION = re.compile(r"-[a-z]{5,20}\Z")
_LOOKED_AT = 4


def verb_dangers(run: Invocation, *, has_rule: bool) -> Iterator[Danger]:
    """Yield a danger if a sub-command or a long option is named after something that cannot be taken back."""
    if run.name in _FREE_OPERANDS or is_help(run) or is_dry_run(run):
        return
    verbs = _DESTROYS if has_rule else _KIND_BY_VERB.keys()
    named = (part.lower() for word in _names(run, has_rule=has_rule) for part in _PARTS.findall(word))
    verb = next((v for v in named if v in verbs), None)
    if verb is not None:
        yield Danger(_KIND_BY_VERB[verb], run.summary)


def _names(run: Invocation, *, has_rule: bool) -> Iterator[str]:
    """Return what may name an action: the first operands that are plain words, and the long options.

    A value of an option is an argument, not a name; it counts only where its option takes no value by default.
    """
    yield from (run.name,) if not has_rule and "-" in run.name else ()
    yield from (o.rpartition(".")[2] for o in run.operands[:_LOOKED_AT] if _WORD.match(o))
    yield from (o[2:82] for o in run.options if o.startswith("--") and not _HARMLESS_OPTIONS.match(o))
    yield from (o[1:82] for o in run.options if not has_rule and _LONG_OPTION.match(o))
