"""Load settings: defaults, config.yaml, environment and flags, with every problem reported at its origin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from perdure.config import keys
from perdure.config.deprecated import RENAMED, rename_settings
from perdure.config.env import CONFIG_FILE, home_dir
from perdure.config.project import flatten, project_folder, select_settings
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError, InvalidFlag

# Dotted name → where its value came from, e.g. "/home/me/.perdure/config.yaml, line 3".
Origins = Mapping[str, str]
_COMMAND_LINE = "the command line"


@dataclass(frozen=True, slots=True)
class Problem:
    """An invalid value or unknown name in the configuration; `text` is a full sentence for the user."""

    location: tuple[str | int, ...]
    text: str

    @property
    def name(self) -> str:
        return format_location(self.location)


def format_location(location: Iterable[str | int]) -> str:
    """Format a location as a name: `("fallback_providers", 0, "model")` is `fallback_providers[0].model`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def problems(error: ValidationError, origins: Origins) -> tuple[Problem, ...]:
    """Convert a validation error of the settings model to problems, each with its origin."""
    return tuple(_problem(detail, origins) for detail in error.errors(include_url=False))


def as_error(errors: Iterable[Problem]) -> ConfigError:
    """Combine problems into one ConfigError with a line for each."""
    return ConfigError("\n".join(problem.text for problem in errors))


def _problem(detail: Mapping[str, Any], origins: Origins) -> Problem:
    location = tuple(detail["loc"])
    name = format_location(location)
    origin = _origin(location, origins)
    if detail["type"] == "extra_forbidden":
        text = f"unknown setting {name!r}{_hint(location)}"
    elif detail["type"] == "missing":
        text = f"{name} is missing: {keys.describe_allowed_at(location)}"
    else:
        text = f"{name} = {_format_value(detail['input'])} is not allowed: {keys.describe_allowed_at(location)}"
    return Problem(location, f"{text} (from {origin})" if origin else text)


def _hint(location: tuple[str | int, ...]) -> str:
    name = str(location[-1])
    if name in keys.all_keys():
        section, _, leaf = name.rpartition(".")
        return f"; write `{leaf}:` inside `{section.replace('.', ': ')}:` instead"
    names = keys.names_at(location[:-1])
    if close := [n for n in names if name in n.split("_")] or get_close_matches(name, names, n=1, cutoff=0.7):
        return f" (did you mean {format_location((*location[:-1], close[0]))!r}?)"
    if any(isinstance(part, int) for part in location):  # an item of a list; other sections have nothing to do with it
        return f"; it takes {', '.join(names)}"
    return keys.did_you_mean(format_location(location))


def _format_value(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else keys.format_value(value)
    text = keys.mask(text)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _origin(location: tuple[str | int, ...], origins: Origins) -> str:
    """Return where a value was set: its own origin, or that of the nearest enclosing section."""
    for end in range(len(location), 0, -1):
        if origin := origins.get(format_location(location[:end])):
            return origin
    return ""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed YAML file; `origins` maps each key to its file and line."""

    path: Path
    # With plain line feeds; `has_crlf` remembers what the file really has.
    text: str
    data: dict[str, Any]
    origins: dict[str, str]
    has_crlf: bool = False


def read(path: Path) -> Document:
    """Read and parse a config file; an empty document if it does not exist. Raises ConfigError with file and line."""
    try:
        # Bytes, so that line ends stay what they are.
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return Document(path, "", {}, {})
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check its permissions") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Document:
    """Parse the text of the config file at `path`. Raises ConfigError."""
    has_crlf = "\r\n" in text
    text = text.replace("\r\n", "\n")
    try:
        tree = YAML(typ="rt").load(text)
        if tree is None:
            tree = CommentedMap()
        if not isinstance(tree, CommentedMap):
            raise ConfigError(f"{path} should hold settings like `model: {{name: …}}`, not {_noun(tree)}")
        origins = {format_location(location): f"{path}, line {line}" for location, line in _lines(tree, ())}
        return Document(path, text, _plain(tree), origins, has_crlf)
    except YAMLError as error:
        raise ConfigError(_describe_syntax_error(error, text, path)) from None
    except (ValueError, RecursionError) as error:  # a date that no calendar has; a list that holds itself
        raise ConfigError(f"{path} cannot be read: {error}; mend it with `perdure config edit`") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # ruamel's scalars remember their spelling; settings hold only what they are.
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _lines(node: Any, location: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    if isinstance(node, CommentedMap):
        for key, value in node.items():
            location_ = (*location, str(key))
            if key in (node.lc.data or {}):  # what a merge key brought in has no line here
                yield location_, node.lc.key(key)[0] + 1
            yield from _lines(value, location_)
    elif isinstance(node, CommentedSeq):
        for index, value in enumerate(node):
            location_ = (*location, index)
            yield location_, node.lc.item(index)[0] + 1
            yield from _lines(value, location_)


def _describe_syntax_error(error: YAMLError, text: str, path: Path) -> str:
    what, line = "it is not valid YAML", 0
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        what = (error.problem or error.context or what).splitlines()[0]
        if error.context and error.context_mark and error.context_mark.line + 1 != line:
            what += f" {error.context.splitlines()[0]} that begins on line {error.context_mark.line + 1}"
    lines = text.splitlines()
    if 0 < line <= len(lines) and "\t" in lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]:
        what = "the line is indented with a tab; YAML wants spaces"
    location_ = f"{path}, line {line}" if line else str(path)
    return f"{location_}: {what}; mend it with `perdure config edit`"


def _noun(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"{value!r}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of `load`: settings, home folder, and the origin of each value that is not a default."""

    settings: Settings
    home: Path
    origins: Origins
    # The project's own settings file, if one applies, and warnings about the parts that do not.
    project_file: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The user's config.yaml, which may not exist."""
        return self.home / CONFIG_FILE

    @property
    def prompts(self) -> Path:
        """The folder of the user's prompt overrides, which may not exist."""
        return self.home / "prompts"


def load(
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    home: Path | None = None,
    folder: Path | None = None,
    is_endpoint_of: Callable[[str, str | None, str], bool] | None = None,
) -> Loaded:
    """Merge and validate all sources of settings. Raises ConfigError naming every invalid value and its location.

    With a working `folder`, the settings of its project apply, too: after the user's file, before the environment. A
    flag that names a provider drops the endpoint of the files unless `is_endpoint_of(base_url, provider of the files,
    provider of the flag)` holds.
    """
    environ = os.environ if environ is None else environ
    home = home or home_dir(environ)
    file = read(home / CONFIG_FILE)
    data, origins = file.data, file.origins
    project_file, warnings = _apply_project(data, origins, folder, home) if folder is not None else (None, ())
    if is_endpoint_of is not None and (provider := (flags or {}).get("model.provider")):
        _drop_other_endpoint(data.get("model"), str(provider), is_endpoint_of)
    for key, variable, value in _from_environment(environ):
        put(data, key.path, value)
        origins[key.name] = f"the variable {variable}"
    for name, value in (flags or {}).items():
        key = _find_flag(name)
        put(data, key.path, from_text(key, value) if isinstance(value, str) else value)
        origins[key.name] = _COMMAND_LINE
    data, origins = rename_settings(data, origins)
    settings, errors = check(data, origins)
    if settings is None:
        error = as_error(errors)
        is_flag = all(origins.get(problem.name) == _COMMAND_LINE for problem in errors)
        raise InvalidFlag(str(error)) if is_flag else error
    return Loaded(settings, home, origins, project_file, warnings)


def _drop_other_endpoint(model: Any, provider: str, is_endpoint_of: Callable[[str, str | None, str], bool]) -> None:
    """Drop address and model of the files when a flag names another provider, whose key must not be sent there.

    The embedded model has no address, and runs no other provider's model: of the files it keeps the path of a file.
    """
    if not isinstance(model, dict):
        return
    base_url, is_embedded = model.get("base_url"), provider == "local"
    if (not base_url and not is_embedded) or (is_embedded and str(model.get("name")).lower().endswith(".gguf")):
        return
    configured = model.get("provider")
    if not is_endpoint_of(str(base_url or ""), str(configured) if configured else None, provider):
        for key in ("base_url", "name", "context_length"):
            model.pop(key, None)


def _find_flag(name: str) -> keys.Key:
    try:
        return keys.find(name)
    except ConfigError as error:
        raise InvalidFlag(str(error)) from None


def _apply_project(
    data: dict[str, Any], origins: dict[str, str], folder: Path, home: Path
) -> tuple[Path | None, tuple[str, ...]]:
    """Merge the project's settings into the user's; return the project file and a warning for each ignored setting."""
    project = project_folder(folder, user_home=Path.home(), perdure_home=home)
    path = project / CONFIG_FILE if project is not None else None
    if path is None or not path.is_file():
        return None, ()
    file = read(path)
    renamed, project_origins = rename_settings(file.data, file.origins)
    project_settings = select_settings(flatten(renamed, dict.fromkeys(keys.sections())), path)
    for name, value in project_settings.values.items():
        if name == "tools.disabled" and isinstance(value, list):
            # A project takes tools away; it cannot give back what the user has disabled.
            tools = data.get("tools")
            before = tools.get("disabled") if isinstance(tools, dict) else None
            value = [*(before if isinstance(before, list) else []), *value]
        put(data, tuple(name.split(".")), value)
        origins[name] = project_origins.get(name, str(path))
    return path, project_settings.warnings


def load_settings(
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    home: Path | None = None,
) -> Settings:
    """Load and return the settings alone, without their origins and problems."""
    return load(environ=environ, flags=flags, home=home).settings


def validate_settings(data: Mapping[str, Any]) -> Settings:
    """Validate settings passed as a dict by library users. Raises ConfigError that names every wrong value."""
    settings, errors = check(*rename_settings(data, {}))
    if settings is None:
        raise as_error(errors)
    return settings


def check_file(path: Path) -> None:
    """Validate one file, ignoring the environment. Raises ConfigError with all problems."""
    file = read(path)
    if errors := check(*rename_settings(file.data, file.origins))[1]:
        raise as_error(errors)


def overriding_variable(key: keys.Key, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the environment variable that overrides this key of the file; None if it is not set."""
    environ = os.environ if environ is None else environ
    return key.variable if environ.get(key.variable, "").strip() else None


def check(data: Mapping[str, Any], origins: Origins) -> tuple[Settings | None, tuple[Problem, ...]]:
    """Validate nested settings; return (settings, ()) or (None, problems)."""
    try:
        return Settings.model_validate(drop_empty(data)), ()
    except ValidationError as error:
        return None, problems(error, origins)


def from_text(key: keys.Key, text: str) -> Any:
    """Convert a value typed on the command line or in a variable to the value a config file would have."""
    if key.is_nullable and text.strip() in ("null", "~"):
        return None
    if key.is_number:
        return _number(text)
    if not key.is_list:
        return text
    if not text.strip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        parsed: Any = parse(f"{key.path[-1]}: {text}", Path(key.name)).data
    except ConfigError:
        return text  # which the settings refuse, with what they allow
    return parsed[key.path[-1]]


def _number(text: str) -> int | float | str:
    """Parse a number; any other text is returned unchanged, for validation to reject."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def put(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a nested value, creating sections; a conflicting value is left for `check` to report."""
    for part in path[:-1]:
        if data.get(part) is None:
            data[part] = {}
        data = data[part]
        if not isinstance(data, dict):
            return
    data[path[-1]] = value


def drop_empty(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings without empty sections and lists, as left when all their lines are commented out."""
    result = {}
    for name, value in data.items():
        dotted = f"{prefix}{name}"
        if dotted in keys.sections() and isinstance(value, Mapping):
            value = drop_empty(value, f"{dotted}.") or None
        if value is not None or not (dotted in keys.sections() or _is_list(dotted)):
            result[name] = value
    return result


def _is_list(name: str) -> bool:
    key = keys.all_keys().get(name)
    return key is not None and key.is_list


def _from_environment(environ: Mapping[str, str]) -> list[tuple[keys.Key, str, Any]]:
    """Return each key set by an environment variable.

    Empty variables are ignored; a mistyped one raises ConfigError.
    """
    by_variable = {key.variable: key for key in keys.all_keys().values()}
    by_letters = {variable.replace("_", ""): variable for variable in by_variable}
    old_names = {keys.variable_of(name): name for name in RENAMED}
    entries = []
    for variable, text in environ.items():
        if not variable.startswith(keys.PREFIX) or not text.strip():
            continue
        if key := by_variable.get(variable):
            entries.append((key, variable, from_text(key, text)))
        elif old := old_names.get(variable):
            key = keys.find(old)
            # Today's name holds where both are set.
            if not environ.get(key.variable, "").strip():
                entries.append((key, variable, from_text(key, text)))
        elif suggestion := by_letters.get(variable.replace("_", "")):
            raise ConfigError(f"the variable {variable} sets nothing; did you mean {suggestion}?")
        elif "__" in variable:
            name = variable.removeprefix(keys.PREFIX).replace("__", ".").lower()
            raise ConfigError(
                f"the variable {variable} sets nothing: unknown setting {name!r}{keys.did_you_mean_key(name)}"
            )
    return entries
