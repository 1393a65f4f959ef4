"""Settings, commands and skills of a project: its `.perdure` folder, in the working folder or above.

A project often belongs to another person: its settings may choose how Perdure works there, never where keys, data or
commands go. Settings that it may not make are ignored with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = ".perdure"
# Settings, by prefix, that a project may have an opinion about.
ALLOWED = (
    "model.name",
    "model.max_tokens",
    "model.temperature",
    "model.reasoning_effort",
    "compression.",
    "tool_output.",
    "agent.",
    "delegation.",
    "display.",
    "tools.disabled",
    "tools.timeout_s",
)
_MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """The settings of a project that apply, by dotted name, and a warning for each that does not."""

    values: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


def folders_above(folder: Path, user_home: Path) -> list[Path]:
    """Return the folders of a project from its root down to `folder`.

    The root is the nearest folder with `.git`; without one, the outermost folder below the user's home, or `folder`
    itself elsewhere, so that files which any user can put into a shared folder are not read.
    """
    folder, user_home = folder.absolute(), user_home.absolute()
    chain = [folder, *folder.parents][:_MAX_DEPTH]
    for n, parent in enumerate(chain):
        if (parent / ".git").exists():
            return chain[: n + 1][::-1]
    if user_home in folder.parents:
        return chain[: chain.index(user_home)][::-1]
    return [folder]


def project_root(folder: Path, user_home: Path) -> Path:
    """Return the nearest folder with `.git` at or above `folder`, else `folder` itself.

    The user's home folder never counts, even if it is a repository.
    """
    folder, user_home = folder.resolve(), user_home.resolve()
    roots = (parent for parent in [folder, *folder.parents][:_MAX_DEPTH] if (parent / ".git").exists())
    root = next(roots, folder)
    return folder if root == user_home else root


def project_folder(folder: Path, *, user_home: Path, perdure_home: Path) -> Path | None:
    """Return the nearest `.perdure` folder of the project, except Perdure's own home; None if there is none."""
    for parent in reversed(folders_above(folder, user_home)):
        candidate = parent / FOLDER
        if candidate.is_dir() and candidate.resolve() != perdure_home.resolve():
            return candidate
    return None


def select_settings(values: Mapping[str, Any], source: Path) -> ProjectSettings:
    """Return the settings that a project may make, and a warning for each other one; `values` is by dotted name."""
    allowed, warnings = {}, []
    for name, value in values.items():
        is_file = name == "model.name" and str(value).lower().endswith(".gguf")
        if is_file or not name.startswith(ALLOWED):
            warnings.append(f"{source}: {name} is not taken from a project; set it in your own config.yaml")
        else:
            allowed[name] = value
    return ProjectSettings(allowed, tuple(warnings))


def flatten(data: Mapping[str, Any], names: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name; `names` are the sections to descend into."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if name in names and isinstance(value, Mapping):
            flat |= flatten(value, names, f"{name}.")
        else:
            flat[name] = value
    return flat
