"""Path zones: workspace, temp, home, system, credentials; build artifacts."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from perdure.tools.credential_paths import CREDENTIAL_PATTERN, CREDENTIAL_SAMPLES
from perdure.tools.shell_safety.types import FRESH, has_taint, word_list

ARTEFACTS = word_list(
    "node_modules bower_components build dist out target __pycache__ .pytest_cache .mypy_cache .ruff_cache "
    ".hypothesis .tox .nox .venv venv env .eggs *.egg-info *.dist-info wheels htmlcov coverage .coverage* "
    ".nyc_output .next .nuxt .output .svelte-kit .angular .vite .parcel-cache .turbo .cache .sass-cache "
    ".eslintcache .gradle .kotlin cmake-build-* CMakeFiles CMakeCache.txt _build site obj Debug Release "
    "DerivedData Pods .dart_tool .ipynb_checkpoints .terraform .serverless .docusaurus storybook-static "
    "test-results playwright-report tmp temp .tmp .temp logs *.log *.pyc *.pyo *.o *.obj *.class *.tmp *.temp "
    "*.bak *.swp *.swo *~ *.orig *.rej .DS_Store Thumbs.db *.tsbuildinfo *.gcda *.gcno *.gcov *.aux _site .bundle "
    ".pnpm-store deps zig-out package-lock.json yarn.lock pnpm-lock.yaml poetry.lock Cargo.lock uv.lock "
    "composer.lock Gemfile.lock bun.lockb go.sum zig-cache .zig-cache bazel-* .bazel-cache lcov-report "
    ".phpunit.cache .rspec_status *.prof"
)


Zone = Literal["workspace", "device", "system", "home", "startup", "git", "own", "fresh", "outside", "unknown"]

_HARMLESS_DEVICES = re.compile(r"/dev/(?:null|zero|full|u?random|std(?:in|out|err)|tty|ptmx|fd(?:/.*)?)")
# Disks and memory.
STORAGE_DEVICE = re.compile(r"/dev/(?:sd[a-z]|nvme\d|vd[a-z]|hd[a-z]|xvd|mmcblk|disk|rdisk|mapper/|dm-|k?mem\Z|port\Z)")
_SYSTEM = re.compile(
    r"/(?:etc|bin|sbin|lib\d*|usr|boot|sys|proc|root|var|opt|srv|run|System|Library|Applications|private/etc|Windows)"
    r"(?:/|\Z)|/(?:home|Users|mnt|media)?\Z|/(?:home|Users)/[^/]*\Z|[A-Za-z]:[\\/]?\Z|[A-Za-z]:[\\/](?:Windows|Users)",
)
_SCRATCH = re.compile(r"(?:/private)?(?P<root>/(?:tmp|var/tmp|var/folders|dev/shm))(?:/|\Z)")
_GIT_INTERNALS = re.compile(r"/\.git(?:/(?:hooks|config|objects|refs|HEAD|index|packed-refs)(?:/|\Z)|\Z)")
# The rules a project sets for Perdure, and the settings and rules of its user.
_OWN_RULES = re.compile(r"/\.perdure(?:/(?:permissions|config)\.yaml|\Z)")
_WRITTEN_KINDS = {
    "device": "disk",
    "system": "system-files",
    "startup": "startup-files",
    "git": "git-internals",
    "own": "own-rules",
}
# File descriptors and terminals.
_PIPE_PATHS = re.compile(r"/(?:proc/self/fd|dev/fd|dev/pts)/")
_MADE_BY_MKTEMP = re.compile(
    r"/(?:private/)?(?:tmp|var/tmp|var/folders/\S+/T)/(?:tmp\.\w{6,12}|tmp[a-z0-9_]{8})(?:/|\Z)"
)
# Files of a login, a shell, a scheduler or an identity, under any home.
_STARTUP = re.compile(
    r"/\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin|kshrc|cshrc"
    r"|tcshrc|inputrc|pam_environment|xinitrc|xprofile|xsession|gitconfig|git-credentials|netrc|npmrc|pypirc|rhosts"
    r"|forward|bash_history|zsh_history)\Z"
    r"|/\.(?:ssh|gnupg|aws|kube|azure|docker)(?:/|\Z)"
    r"|/\.config/(?:fish|autostart|systemd|gcloud|gh|git)(?:/|\Z)|/Library/Launch(?:Agents|Daemons)(?:/|\Z)"
    r"|/(?:var/)?spool/cron(?:/|\Z)"
)
# Files of a project that an editor or an agent runs by itself, or that set what an agent may do.
_RUN_BY_TOOLS = re.compile(
    r"/\.vscode/tasks\.json\Z|/\.(?:claude|gemini|codex|cursor)/(?:settings[\w.]{0,20}|config|hooks|mcp)\.(?:json|toml)\Z"
    r"|/\.mcp\.json\Z|/\.husky/[\w-]{3,40}\Z|/(?:site|user)customize\.py\Z|/site-packages/[\w.-]{1,80}\.pth\Z"
)
# Longer absolute paths are not resolved.
_MAX_PATH_CHARS = 1_024
# May be read without approval, but not sent away.
_PRIVATE = re.compile(
    r"(?:^|/)\.env(?:\.(?!example|sample|template|dist)[\w.-]+)?\Z|\.(?:pem|key|p12|pfx|jks|keystore)\Z"
    r"|(?:^|/)id_[a-z0-9]+\Z"
    r"|(?:^|/)(?:secrets?|credentials?)(?:\.\w+)?\Z|history\Z|(?:^|/)\.htpasswd\Z|/etc/passwd\Z"
)
_ARTEFACT = re.compile("|".join(fnmatch.translate(a) for a in ARTEFACTS))
# The name of a file, not a folder.
_FILE_NAME = re.compile(
    r"[^*?\[\]/]\.(?:py|pyc|js|jsx|mjs|cjs|ts|tsx|vue|go|rs|java|kt|c|h|cc|cpp|hpp|o|a|so|cs|rb|php|swift|sh|sql|html|css|scss|json"
    r"|jsonl|ya?ml|toml|ini|cfg|conf|lock|md|rst|txt|xml|csv|tsv|ipynb|log|pdf|png|jpe?g|gif|svg|zip|tgz|gz|tar|whl|jar|bin|exe|out"
    r"|sock|pid|tmp|patch|diff|env|map|wasm)\Z",
    re.I,
)


@dataclass(frozen=True, slots=True)
class ShellPath:
    """A classified absolute path; `is_wide` if it matches everything in a folder."""

    path: str
    zone: Zone
    is_wide: bool = False
    is_artefact: bool = False
    # Outside the workspace, but free to write: a temporary folder, a pipe, /dev/null.
    is_scratch: bool = False

    @property
    def is_file(self) -> bool:
        """Whether the name looks like a single file."""
        return not self.is_wide and bool(_FILE_NAME.search(self.path))


@dataclass(frozen=True)
class PathZones:
    """Classify paths by workspace, home and working folder; `workspace` is None on a remote machine."""

    workspace: str | None
    home: str
    folder: str | None
    # Resolves symbolic links on disk; by default paths are not resolved.
    follow_links: Callable[[str], str] = field(default=str, compare=False, repr=False)
    # Links that the command itself has made; None without any.
    _links: dict[str, str] | None = field(default=None, compare=False, repr=False)
    # Paths that were classified: several rules ask for the same one.
    _classified: dict[str, ShellPath] = field(default_factory=dict, init=False, compare=False, repr=False)
    _absolutes: dict[str, str | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def at(cls, workspace: Path, folder: Path, home: Path, follow_links: Callable[[str], str] = str) -> PathZones:
        # If the workspace is /, no path counts as inside.
        root = workspace.as_posix()
        return cls(None if root == "/" else root, home.as_posix(), folder.as_posix(), follow_links)

    def after_cd(self, path: str) -> PathZones:
        """Return the zones after `cd path`; the folder is None if it is only known at run time."""
        there = None if has_taint(path) and FRESH not in path else self._absolute(path)
        return replace(self, folder=there)

    def remote(self) -> PathZones:
        """Return the zones of another machine or a container, which has no workspace."""
        return PathZones(None, "/root", "/root")

    def classify(self, path: str) -> ShellPath:
        """Return the zone of a path as written, without resolving links."""
        location = self._classified.get(path)
        if location is None:
            location = self._classified[path] = self._locate(path)
        return location

    def _locate(self, path: str) -> ShellPath:
        whole = self._absolute(path)
        if whole is None:
            name = path.rsplit("/", 1)[-1]
            path = path[:_MAX_PATH_CHARS]
            is_artefact = not has_taint(path) and not path.startswith(("/", "..")) and self._is_artefact(path)
            return ShellPath(
                path, "unknown", is_wide=_is_wildcard(name), is_artefact=is_artefact and self._has_workspace
            )
        name = posixpath.basename(whole)
        is_wide = _is_wildcard(name)
        at = posixpath.dirname(whole) if is_wide else whole
        zone = self._zone(at)
        inside = zone == "workspace" and self.workspace is not None
        is_artefact = inside and self._is_artefact(whole[len(str(self.workspace)) :])
        is_ours = _is_under(at, self.home) or self._is_beside_workspace(at)
        is_scratch = zone == "fresh" or (zone == "outside" and _is_scratch(at) and not is_ours)
        is_wide = is_wide or whole in ("/", self.home, self.workspace)
        return ShellPath(at, zone, is_wide=is_wide, is_artefact=is_artefact, is_scratch=is_scratch)

    def resolve_write(self, path: str) -> ShellPath:
        """Classify the path that is really written: a link inside the workspace may point outside."""
        location = self.classify(path)
        is_stream = _HARMLESS_DEVICES.fullmatch(location.path) or _PIPE_PATHS.match(location.path)
        if location.zone not in ("workspace", "outside") or is_stream:
            return location
        real = self.follow_links(location.path)
        return location if real == location.path else self.classify(real)

    def resolve_delete(self, path: str) -> ShellPath:
        """Classify what a deletion really removes: links and `..` on the way are followed, a link itself is not."""
        location = self.classify(path)
        whole = self._join(path)
        if whole is None or location.zone not in ("workspace", "outside"):
            return location
        parent, name = posixpath.split(whole)
        if location.is_wide:
            folder = self.follow_links(parent) if _is_wildcard(name) else parent
            return location if folder == parent else self.classify(posixpath.join(folder, name))
        is_entered = name in ("", ".", "..")
        real = self.follow_links(whole) if is_entered else posixpath.join(self.follow_links(parent), name)
        if real == location.path:
            return location
        there = self.classify(real)
        return location if there.path == location.path or there.zone == "unknown" else there

    def with_link(self, name: str, target: str) -> PathZones:
        """Return the zones after a link was made: paths through it are those of its target."""
        links, on_disk = self._links or {}, self.follow_links
        link = self.classify(name).path
        links[link] = self.classify(posixpath.join(posixpath.dirname(link), target)).path
        if self._links is not None:
            return self
        return replace(self, _links=links, follow_links=lambda path: on_disk(_through_links(path, links)))

    def is_shared_temporary(self, path: str) -> bool:
        """Whether other users may write there: in a temporary folder, except in a home or workspace inside one."""
        at = self.classify(path).path
        is_ours = _is_under(at, self.home) or (self.workspace is not None and _is_under(at, self.workspace))
        return bool(_SCRATCH.match(at)) and not is_ours

    def written_kind(self, location: ShellPath) -> str | None:
        """Return the kind of danger of a write, None if the path may be written freely."""
        kind = _WRITTEN_KINDS.get(location.zone)
        return "write-outside" if kind is None and self.is_outside(location) else kind

    def is_outside(self, location: ShellPath) -> bool:
        """Whether a path is outside the workspace and not scratch; False without a workspace."""
        return self.workspace is not None and location.zone in ("outside", "home") and not location.is_scratch

    def is_free(self, location: ShellPath) -> bool:
        """Whether a path is in the workspace or a temporary folder, or not known before the command runs."""
        return location.zone in ("workspace", "fresh", "unknown") or location.is_scratch

    def is_credential(self, path: str) -> bool:
        """Whether the path is a credential file."""
        whole = self._absolute(path) or f"/{path}"
        if len(whole) > _MAX_PATH_CHARS:
            return False
        if CREDENTIAL_PATTERN.search(whole):
            return True
        if re.search(r"[*?\[]", whole):
            home = self.home.rstrip("/")
            return any(fnmatch.fnmatchcase(s.replace("~", home), whole) for s in CREDENTIAL_SAMPLES)
        real = self.follow_links(whole) if not has_taint(whole) else whole
        return real != whole and len(real) <= _MAX_PATH_CHARS and bool(CREDENTIAL_PATTERN.search(real))

    def contains_home(self, path: str) -> bool:
        """Whether the folder contains a home folder."""
        whole = self._absolute(path)
        return whole is not None and _is_under(self.home, whole) and whole != self.workspace

    def contains_credentials(self, path: str) -> bool:
        """Whether the folder lies outside the workspace and well-known credential files are below it."""
        whole, home = self._absolute(path), self.home.rstrip("/")
        if whole is None or (self.workspace is not None and _is_under(whole, self.workspace)):
            return False
        return any(_is_under(s.replace("~", home, 1), whole) for s in CREDENTIAL_SAMPLES)

    def is_private(self, path: str) -> bool:
        """Whether the file is a credential or other private data that must not be sent away."""
        return self.is_credential(path) or bool(_PRIVATE.search(path[-_MAX_PATH_CHARS:]))

    @property
    def _has_workspace(self) -> bool:
        return self.workspace is not None

    def _absolute(self, path: str) -> str | None:
        if path in self._absolutes:
            return self._absolutes[path]
        full_path = self._join(path)
        if full_path is not None and full_path != FRESH:
            absolute = posixpath.normpath(full_path)
            full_path = "/" + absolute.lstrip("/") if len(absolute) <= _MAX_PATH_CHARS else None
        self._absolutes[path] = full_path
        return full_path

    def _join(self, path: str) -> str | None:
        """Return the absolute path as written, with its `..`; None where it is only known at run time."""
        if path.startswith(FRESH):
            return FRESH
        if has_taint(path[:1]) or (not path.startswith(("/", "~")) and self.folder is None):
            return None
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return posixpath.join(self.folder or "/", path)

    def _zone(self, path: str) -> Zone:
        if FRESH in path:
            return "fresh"
        if _PIPE_PATHS.match(path):
            return "outside"
        # /dev/shm is a file system, not a device.
        if path.startswith("/dev/") and not path.startswith("/dev/shm/"):
            return "outside" if _HARMLESS_DEVICES.fullmatch(path) else "device"
        inside = self.workspace is not None and _is_under(path, self.workspace)
        at_home = _is_under(path, self.home)
        is_ours = inside or at_home or _is_under(self.home, path) or self._holds_workspace(path)
        # A workspace may itself be in a temporary folder: our own paths are never scratch.
        if not (is_ours or self._is_beside_workspace(path)) and _MADE_BY_MKTEMP.match(path):
            return "fresh"
        if _STARTUP.search(path) and (not inside or self.workspace in (self.home, "/")):
            return "startup"
        if _RUN_BY_TOOLS.search(path):
            return "startup"
        if (inside or at_home) and _OWN_RULES.search(path):
            return "own"
        if inside:
            return "git" if _GIT_INTERNALS.search(path) else "workspace"
        if _is_under(self.home, path):
            return "system" if path != self.home else "home"
        if at_home or _SCRATCH.match(path):
            return "outside"
        return "system" if _SYSTEM.match(path) else "outside"

    def _holds_workspace(self, path: str) -> bool:
        return self.workspace is not None and _is_under(self.workspace, path)

    def _is_beside_workspace(self, path: str) -> bool:
        """Whether the workspace is in a temporary folder, and the path is in the same one."""
        ours, theirs = _SCRATCH.match(self.workspace or ""), _SCRATCH.match(path)
        return ours is not None and theirs is not None and ours["root"] == theirs["root"]

    def _is_artefact(self, path: str) -> bool:
        parts = [p for p in path.split("/") if p not in ("", ".", "**")]
        return any(_ARTEFACT.match(p) for p in parts) and ".." not in parts


def _through_links(path: str, links: dict[str, str]) -> str:
    """Return a path with the first folder of it that is a link replaced by what that points to."""
    at = path.find("/", 1)
    while at != -1:
        if (target := links.get(path[:at])) is not None:
            return target + path[at:]
        at = path.find("/", at + 1)
    return links.get(path, path)


def _is_scratch(path: str) -> bool:
    return bool(_SCRATCH.match(path) or _HARMLESS_DEVICES.fullmatch(path) or _PIPE_PATHS.match(path))


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _is_wildcard(name: str) -> bool:
    return bool(name) and set(name) <= set("*?.[]!") and "*" in name
