"""Prompt files; a file of the same name under `$PERDURE_HOME/prompts` overrides the default.

A placeholder is written `{{name}}`; single braces are plain text, and `\\{{name}}` stands for itself. An override has
to use the placeholders of the prompt it replaces, all of them and no others, so that a slip is an error and never sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from perdure.core.errors import ConfigError

_SHIPPED = Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLACEHOLDER = re.compile(r"(\\?)\{\{[ \t]*([^{}\n]*?)[ \t]*\}\}")


def names(shipped: Path = _SHIPPED) -> tuple[str, ...]:
    """Return the names of all prompt files."""
    return tuple(sorted(path.stem for path in shipped.glob("*.md")))


def load(name: str, overrides: Path | None = None, *, shipped: Path = _SHIPPED) -> str:
    """Return the text of prompt `name` (without `.md`), the user's override first.

    Plug-ins pass their own `shipped` folder.
    """
    return _read(_prompt_path(name, overrides, shipped))


def render(name: str, values: Mapping[str, str], overrides: Path | None = None, *, shipped: Path = _SHIPPED) -> str:
    """Return prompt `name` with its placeholders filled; values are never parsed for placeholders."""
    path = _prompt_path(name, overrides, shipped)
    text = _read(path)
    used = placeholders(text)
    expected = used if path.parent == shipped else placeholders(_read(shipped / path.name))
    if odd := sorted(expected ^ values.keys()):
        raise ValueError(f"prompt {name!r} and the values for it do not agree on {', '.join(odd)}")
    if unknown := sorted(used - expected):
        names = ", ".join(map(_format_placeholder, sorted(expected))) or "none"
        raise ConfigError(
            f"{path} uses {_format_placeholder(unknown[0])}, which prompt {name!r} does not have; it has: {names}"
        )
    if missing := sorted(expected - used):
        raise ConfigError(
            f"{path} leaves out {_format_placeholder(missing[0])}, which prompt {name!r} needs; put it back"
        )
    # One pass over the template alone: braces that come in with a value are out of its reach.
    return _PLACEHOLDER.sub(lambda match: match[0][1:] if match[1] else values[match[2]], text)


def placeholders(text: str) -> frozenset[str]:
    """Return the names of the placeholders in a prompt text."""
    return frozenset(match[2] for match in _PLACEHOLDER.finditer(text) if not match[1])


def _format_placeholder(placeholder: str) -> str:
    return "{{" + placeholder + "}}"


def _prompt_path(name: str, overrides: Path | None, shipped: Path) -> Path:
    # The name becomes a file name, so nothing but a plain word may pass.
    if not _NAME.fullmatch(name) or not (path := shipped / f"{name}.md").is_file():
        raise ConfigError(f"no prompt named {name!r}; there are: {', '.join(names(shipped))}")
    own = overrides / path.name if overrides is not None else path
    return own if own.is_file() else path


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check its permissions") from None
