"""Every word a model reads, in files of its own; a file of the same name under `$PERDURE_HOME/prompts` overrides it.

A placeholder is written `{{name}}`; single braces are plain text, and `\\{{name}}` stands for itself. An override has
to use the placeholders of the prompt it replaces, all of them and no others, so that a slip is told and never sent.
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
    """Every prompt there is, by name."""
    return tuple(sorted(path.stem for path in shipped.glob("*.md")))


def load(name: str, overrides: Path | None = None, *, shipped: Path = _SHIPPED) -> str:
    """The text of prompt `name` (without `.md`), the user's own version first. A plug-in hands in its own `shipped`."""
    return _read(_place(name, overrides, shipped))


def render(name: str, values: Mapping[str, str], overrides: Path | None = None, *, shipped: Path = _SHIPPED) -> str:
    """Prompt `name` with its placeholders filled; what stands in a value is never read as a placeholder."""
    place = _place(name, overrides, shipped)
    text = _read(place)
    used = placeholders(text)
    wanted = used if place.parent == shipped else placeholders(_read(shipped / place.name))
    if odd := sorted(wanted ^ values.keys()):
        raise ValueError(f"prompt {name!r} and the values for it do not agree on {', '.join(odd)}")
    if unknown := sorted(used - wanted):
        known = ", ".join(map(_written, sorted(wanted))) or "none"
        raise ConfigError(f"{place} uses {_written(unknown[0])}, which prompt {name!r} does not have; it has: {known}")
    if missing := sorted(wanted - used):
        raise ConfigError(f"{place} leaves out {_written(missing[0])}, which prompt {name!r} needs; put it back")
    # One pass over the template alone: braces that come in with a value are out of its reach.
    return _PLACEHOLDER.sub(lambda found: found[0][1:] if found[1] else values[found[2]], text)


def placeholders(text: str) -> frozenset[str]:
    """The names that a prompt text wants filled."""
    return frozenset(found[2] for found in _PLACEHOLDER.finditer(text) if not found[1])


def _written(placeholder: str) -> str:
    return "{{" + placeholder + "}}"


def _place(name: str, overrides: Path | None, shipped: Path) -> Path:
    # The name becomes a file name, so nothing but a plain word may pass.
    if not _NAME.fullmatch(name) or not (place := shipped / f"{name}.md").is_file():
        raise ConfigError(f"no prompt named {name!r}; there are: {', '.join(names(shipped))}")
    own = overrides / place.name if overrides is not None else place
    return own if own.is_file() else place


def _read(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{place} is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {place}: {error.strerror}; check its permissions") from None
