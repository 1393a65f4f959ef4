"""One resolved command: program, flags, operands."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from perdure.tools.shell_safety.paths import PathZones, ShellPath
from perdure.tools.shell_safety.targets import names_development, names_production
from perdure.tools.shell_safety.types import TOO_LONG, Unreadable, strip_taints, word_list

_SUMMARY_CHARS = 160


@dataclass(frozen=True)
class Invocation:
    """A program and its arguments after expansion; `stdin` is its input as far as it is known."""

    name: str
    args: tuple[str, ...]
    zones: PathZones
    stdin: str | None = None
    # Files written by `>` and similar redirects.
    writes: tuple[str, ...] = ()
    # Files read by `<`.
    reads: tuple[str, ...] = ()
    # Names of the programs before it in the pipeline.
    upstream: tuple[str, ...] = ()
    is_background: bool = False
    # Variables that decide what it works on, as `NAME=value`, and names of variables in its words.
    environment: tuple[str, ...] = ()

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The arguments that start with `-`, up to `--`; `--name=value` as `--name`."""
        return tuple(a.partition("=")[0] for a in _before_dashes(self.args) if a.startswith("-") and len(a) > 1)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The arguments that are not options."""
        before = list(_before_dashes(self.args))
        return (*(a for a in before if not a.startswith("-") or a == "-"), *self.args[len(before) + 1 :])

    @cached_property
    def size(self) -> int:
        """The number of characters that a rule may scan."""
        return sum(map(len, self.args)) + len(self.args) + len(self.stdin or "")

    @cached_property
    def _flags(self) -> tuple[frozenset[str], frozenset[str]]:
        """The options, and the letters of clusters such as `-rf`."""
        clusters = (o[1:] for o in self.options if not o.startswith("--") and o[1:].isascii() and o[1:].isalnum())
        return frozenset(self.options), frozenset(letter for cluster in clusters for letter in cluster)

    @cached_property
    def asks_version(self) -> bool:
        """Whether `--version` has no value; with one it selects a version, as in `cargo yank --version 1.0`."""
        return self.args[-1:] == ("--version",) or (self.args[:1] == ("--version",) and not self.operands)

    @cached_property
    def asks_help(self) -> bool:
        """Whether it only prints its help or its version."""
        return "--help" in self.options or self.asks_version or self.args in (("-h",), ("-V",), ("-v",), ("help",))

    def has(self, *names: str) -> bool:
        """Return whether an option is present; `-f` also in `-rf`, `--force` also as `--forc`."""
        options, letters = self._flags
        for name in names:
            if name in options or (len(name) == 2 and name[1] in letters):
                return True
            if name.startswith("--") and any(name[:end] in options for end in range(5, len(name))):
                return True
        return False

    def value_of(self, *names: str) -> str | None:
        """Return the value of an option: `-o x`, `-ox`, `--out x`, `--out=x`."""
        return next((v for v in (self._value_at(i, names) for i in self._dashed) if v is not None), None)

    def all_values_of(self, *names: str) -> list[str]:
        """Return the values of an option that may be repeated."""
        return [v for v in (self._value_at(i, names) for i in self._dashed) if v is not None]

    @cached_property
    def _dashed(self) -> tuple[int, ...]:
        """The positions of the arguments that start with `-`."""
        return tuple(i for i, a in enumerate(self.args) if a[:1] == "-")

    def _value_at(self, index: int, names: tuple[str, ...]) -> str | None:
        """Return the value of one of the options if the argument at `index` is that option, also in `-sLo x`."""
        a = self.args[index]
        following = self.args[index + 1] if index + 1 < len(self.args) else ""
        letters = _VALUE_LETTERS.get(self.name)
        if letters is not None and not a.startswith("--") and len(a) > 2:
            name, value = cluster_value(a, letters)
            return (value or following) if name in names else None
        for name in names:
            if a == name:
                return following
            if name.startswith("--") and a.startswith(f"{name}="):
                return a[len(name) + 1 :]
            if len(name) == 2 and a.startswith(name) and not a.startswith("--"):
                return a[2:]
        return None

    def starts(self, *words: str) -> bool:
        """Return whether the operands start with these words, as a sub-command does."""
        return self.operands[: len(words)] == words

    @cached_property
    def production_targets(self) -> tuple[str, ...]:
        """The arguments and variables that name a system that others use."""
        return tuple(text for text in (*self.args, *self.environment) if names_production(text))

    @cached_property
    def is_for_development(self) -> bool:
        """Whether a word or variable names a system of one developer, and none names one that others use."""
        return not self.production_targets and any(names_development(a) for a in (*self.args, *self.environment))

    def classify(self, path: str) -> ShellPath:
        return self.zones.classify(path)

    @cached_property
    def summary(self) -> str:
        few = self.args[:_SUMMARY_CHARS]
        # A group has no name, but the files that it reads.
        words = () if self.name in (">", "{") and self.reads else (self.name, *(a[: _SUMMARY_CHARS + 1] for a in few))
        reads = (f"< {path[: _SUMMARY_CHARS + 1]}" for path in self.reads[:_SUMMARY_CHARS])
        text = re.sub("…+", "…", strip_taints(" ".join((*words, *reads)), "…"))
        return text if len(text) <= _SUMMARY_CHARS else f"{text[:_SUMMARY_CHARS]}…"


def _before_dashes(args: Iterable[str]) -> Iterable[str]:
    for a in args:
        if a == "--":
            return
        yield a


# Short options that take a value, for programs that allow `-sLo file` for `-s -L -o file`.
_VALUE_LETTERS = {
    name: letters
    for names, letters in {
        "curl": "AbcCdDeEFhHKmoPQrtTuUwxXyYz",
        "wget": "aABDeGiIloOPQRtTUwX",
        "aria2c": "dijklmMoOsTxZ",
        "sort": "koStT",
        "shuf": "enio",
        "pg_dump pg_dumpall psql": "cdEfFhjlLnNoOpPRStTUvZ",
        "mysqldump mariadb-dump": "hpPruw",
        "ssh autossh": "bBcDeEFIiJlLmOopPQRSwW",
        "ssh-keygen": "abCDEfFGIJKmMnNOPqrRsStTVwWYzZ",
        "screen": "cehpsStTX",
        "script": "BcEImoOT",
        "su runuser": "cgGsuTw",
        "flock": "cEw",
    }.items()
    for name in names.split()
}


def cluster_value(arg: str, letters: str) -> tuple[str, str]:
    """Return the first option of a cluster that takes a value, and the part of the value attached to it.

    `letters` are the options with a value: with "o", `-sLofile` gives ("-o", "file"); two empty texts without one.
    """
    for i, letter in enumerate(arg[1:], 1):
        if letter in letters:
            return f"-{letter}", arg[i + 1 :]
    return "", ""


_MAX_PATTERN_CHARS = 200
# Program names that a glob pattern may resolve to.
_DANGEROUS_PROGRAMS = word_list("rm dd mkfs shred chmod chown kill sh bash curl wget sudo reboot nc")


def program_of(typed: str) -> str:
    """Return the program name without its folder and without a Windows extension."""
    name = typed.rsplit("/", 1)[-1] if not typed.endswith("/") else typed
    return re.sub(r"(?i)\.(?:exe|cmd|bat)\Z", "", name) if len(name) > 4 else name


def matching_names(pattern: str) -> tuple[str, ...]:
    """Return the dangerous programs that a glob pattern matches; a plain name itself."""
    if not re.search(r"[*?\[]", pattern):
        return (pattern,)
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise Unreadable(TOO_LONG)
    return tuple(n for n in _DANGEROUS_PROGRAMS if fnmatch.fnmatchcase(n, pattern)) or (pattern,)


def looks_recursive(run: Invocation) -> bool:
    """Return whether an unknown program has arguments like those of `rm -r`."""
    if not any(re.fullmatch(r"-\w*[rR]\w*", a) for a in run.args):
        return False
    return any(p.is_wide or p.zone not in ("workspace", "unknown") for p in map(run.classify, run.operands))


# Folders of installed programs: what is in them is known by its name.
_TOOL_FOLDER = re.compile(
    r"\A(?:/usr|/bin|/sbin|/opt|/snap|/nix|/Applications|/Library|/System|/run/current-system)/"
    r"|\A[~/].{0,200}/s?bin/[^/]+\Z|/shims/"
)
_INSTALLED_FOLDER = re.compile(r"(?:\A|/)(?:node_modules/\.bin|vendor/bin|\.?v?env/bin)/")


def is_installed(typed: str) -> bool:
    """Return whether a program is a package of npx, or in a folder for programs, known by its name."""
    return typed.startswith("@") or bool(_TOOL_FOLDER.search(typed) or _INSTALLED_FOLDER.search(typed))


def is_workspace_script(typed: str, zones: PathZones) -> bool:
    """Return whether a program is a file of the workspace or a temporary folder, and no tool installed there."""
    if "/" not in typed or typed.startswith("@") or _INSTALLED_FOLDER.search(typed):
        return False
    location = zones.classify(typed)
    return zones.is_free(location) and (location.zone == "workspace" or not _TOOL_FOLDER.search(typed))
