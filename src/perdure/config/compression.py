"""Arguments of compaction as a program passes them; its settings: the section alone, whole settings, or a dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.config.deprecated import rename_settings
from perdure.config.sections import CompressionSettings
from perdure.core.arguments import (
    CHARS,
    SECRET_BYTES,
    SUMMARIZE,
    TEXT,
    TOKENS,
    WINDOW,
    ArgumentKind,
    optional,
    require,
)

if TYPE_CHECKING:
    from perdure.config.settings import Settings

# `Settings` and the parser of YAML are imported where a program passes settings: most do not.

_KIND = ArgumentKind(
    "a dict like {'threshold': 0.5} or {'compression': {'threshold': 0.5}}, or None", lambda v: isinstance(v, Mapping)
)

COMPRESSOR_ARGUMENTS = {
    "context_length": optional(WINDOW),
    "summarize": optional(SUMMARIZE),
    "model": TEXT,
    "provider": TEXT,
    "max_tokens": optional(TOKENS),
    "handoff_max_chars": optional(CHARS),
    "handoff_key": optional(SECRET_BYTES),
}


def compression_settings(settings: CompressionSettings | Settings | Mapping[str, Any] | None) -> CompressionSettings:
    """Convert the argument `settings` to CompressionSettings. Raises ConfigError, which names the wrong key."""
    if settings is None:
        return CompressionSettings()
    if isinstance(settings, CompressionSettings):
        return settings
    from perdure.config.settings import Settings

    if isinstance(settings, Settings):
        return settings.compression
    require("settings", settings, _KIND)
    # `{"compression": {…}}`, as an agent and config.yaml take it.
    has_sections = any(str(key).partition(".")[0] in Settings.model_fields for key in settings)
    renamed, _ = rename_settings(settings if has_sections else {"compression": dict(settings)}, {})
    try:
        return Settings.model_validate(renamed).compression
    except ValidationError:
        from perdure.config.load import validate_settings  # its messages name the nearest setting

        return validate_settings(renamed).compression
