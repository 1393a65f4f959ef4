"""Find and load plug-ins of one kind: from the user's folder, registered by code, or from installed packages.

Under one name the folder comes first, then code, then a package; a built-in name always means the built-in. Listing
reads names only: a plug-in's code runs when it is loaded by name, never because it is there. Only the folder under
`$PERDURE_HOME` is searched, not the working directory: a cloned repository must not get its code run by being entered.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from perdure.core.errors import ConfigError, PluginBroken, PluginError, PluginNotFound

Origin = Literal["built-in", "folder", "code", "package"]
# A class or function that makes the plug-in; a string "module:name" is imported when it is loaded.
Factory = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# What a folder's __init__.py has to define.
ATTRIBUTE = "plugin"

T = TypeVar("T")


class EntryPoint(Protocol):
    """The attributes of an installed package's entry point that are used."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str: ...

    def load(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class DiscoveredPlugin:
    """A plug-in and its origin; `ignored` gives the reason if it cannot be selected."""

    name: str
    origin: Origin
    location: str
    ignored: str = ""


@dataclass(frozen=True, slots=True)
class Started(Generic[T]):
    """The result of starting a plug-in: the object, its name, and a warning if the default was used instead."""

    name: str
    value: T
    warning: str = ""


def _find_installed(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # 20 ms, and only a listing or an unknown name needs it

    return entry_points(group=group)


class PluginRegistry:
    """The plug-ins of one kind (context engines, tools …): its name, the user's folder, and the entry-point group."""

    def __init__(
        self,
        kind: str,
        folder: Path | None,
        entry_point_group: str,
        *,
        builtins: Mapping[str, Factory | str] | None = None,
        expects: type | None = None,
        not_found: type[PluginNotFound] = PluginNotFound,
        installed: Callable[[str], Iterable[EntryPoint]] = _find_installed,
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.entry_point_group = entry_point_group
        self._builtins = dict(builtins or {})
        # What a plug-in has to be; a class that is something else is refused when it is loaded.
        self._expects = expects
        self._not_found = not_found
        self._installed = installed
        self._registered: dict[str, Factory | str] = {}
        self._loaded: dict[tuple[Origin, str], Factory] = {}

    def within(self, folder: Path | None) -> PluginRegistry:
        """Return a registry with the same registrations and another folder: one process may serve several homes."""
        other = PluginRegistry(
            self.kind,
            folder,
            self.entry_point_group,
            builtins=self._builtins,
            expects=self._expects,
            not_found=self._not_found,
            installed=self._installed,
        )
        other._registered = self._registered
        return other

    def register(self, name: str, factory: Factory | str) -> None:
        """Register `factory` under `name`, replacing an earlier registration.

        Raises ConfigError for a built-in name.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot name a {self.kind}; letters, digits, '_', '-' and '.' can")
        if name in self._builtins:
            raise ConfigError(f"{self.kind} {name!r} is built in and cannot be replaced; choose another name")
        if not isinstance(factory, str) and not callable(factory):
            raise ConfigError(f"{self.kind} {name!r}: a class or function is wanted, not {factory!r}")
        self._registered[name] = factory
        self._loaded.pop(("code", name), None)

    def forget(self, name: str) -> None:
        """Remove a registration made by code; does nothing where there is none."""
        self._registered.pop(name, None)
        self._loaded.pop(("code", name), None)

    def names(self) -> tuple[str, ...]:
        """Return every name that can be chosen, built-in ones first."""
        return tuple(plugin.name for plugin in self.discover() if not plugin.ignored)

    def discover(self) -> tuple[DiscoveredPlugin, ...]:
        """List all plug-ins with their location, also those that are shadowed; runs none of their code."""
        origins: dict[str, Origin] = {}
        listed = []
        for name, origin, location in self._candidates():
            ignored = ""
            if name in self._builtins and origin != "built-in":
                ignored = f"the name {name!r} always means the built-in"
            elif name in origins:
                ignored = f"the {origins[name]} of the same name comes first"
            else:
                origins[name] = origin
            listed.append(DiscoveredPlugin(name, origin, location, ignored))
        return tuple(sorted(listed, key=lambda f: (f.origin != "built-in", f.name)))

    def load(self, name: str) -> Factory:
        """Return the factory called `name`.

        Raises PluginNotFound with the names that exist, or PluginBroken with the cause.
        """
        # The first of the name wins; a built-in is found before any plug-in of the user is looked at.
        plugin = next((DiscoveredPlugin(*candidate) for candidate in self._candidates() if candidate[0] == name), None)
        if plugin is None:
            raise self._not_found(self._describe_unknown(name))
        key = (plugin.origin, name)
        if key not in self._loaded:
            self._loaded[key] = self._load_factory(plugin)
        return self._loaded[key]

    def start(self, name: str, *, default: str, build: Callable[[Factory], T]) -> Started[T]:
        """Build an object with the factory called `name`, or with the one called `default` and a warning if that fails.

        A missing or broken plug-in therefore never locks a user out. Errors of the default itself are raised.
        """
        if name == default:
            return Started(default, build(self.load(default)))
        try:
            return Started(name, build(self.load(name)))
        except PluginError as error:
            why = str(error)
        except Exception as error:  # a plug-in's own code may raise anything when it is made
            why = f"{self.kind} {name!r} failed to start: {_describe(error)}"
        if (names := ", ".join(self.names())) not in why:
            why += f"; installed: {names}"
        return Started(default, build(self.load(default)), f"{why}. Using {default!r} instead.")

    def _candidates(self) -> Iterator[tuple[str, Origin, str]]:
        """Yield the plug-ins in order of precedence, so that the first of a name wins."""
        for name, target in self._builtins.items():
            yield name, "built-in", _location_of(target)
        for path in self._folders():
            yield path.name, "folder", str(path)
        for name, target in self._registered.items():
            yield name, "code", _location_of(target)
        for point in self._points():
            yield point.name, "package", point.value

    def _folders(self) -> list[Path]:
        try:
            entries = sorted(self.folder.iterdir()) if self.folder else []
        except OSError:  # not there, not a folder, or not ours to read: then nothing is found in it
            return []
        return [p for p in entries if _NAME.fullmatch(p.name) and (p / "__init__.py").is_file()]

    def _points(self) -> list[EntryPoint]:
        try:
            return sorted(self._installed(self.entry_point_group), key=lambda p: (p.name, p.value))
        except Exception:  # damaged metadata of any package on the machine must not take Perdure down
            return []

    def _load_factory(self, plugin: DiscoveredPlugin) -> Factory:
        try:
            factory = self._import(plugin)
        except (Exception, SystemExit) as error:  # importing runs a stranger's code, which may raise anything
            raise self._broken_error(plugin, _describe(error)) from error
        if not callable(factory):
            raise self._broken_error(plugin, f"a class or function is wanted, not {factory!r}")
        if self._expects and isinstance(factory, type) and not issubclass(factory, self._expects):
            raise self._broken_error(plugin, f"{factory.__name__} is no {self._expects.__name__}")
        checked: Factory = factory
        return checked

    def _broken_error(self, plugin: DiscoveredPlugin, why: str) -> PluginBroken:
        return PluginBroken(f"{self.kind} {plugin.name!r} at {plugin.location} is broken: {why}")

    def _import(self, plugin: DiscoveredPlugin) -> Any:
        if plugin.origin == "folder":
            return _import_folder(Path(plugin.location))
        if plugin.origin == "package":
            return next(p for p in self._points() if (p.name, p.value) == (plugin.name, plugin.location)).load()
        target = self._builtins[plugin.name] if plugin.origin == "built-in" else self._registered[plugin.name]
        if not isinstance(target, str):
            return target
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)

    def _describe_unknown(self, name: str) -> str:
        names = self.names()
        close = get_close_matches(name, names, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return f"{self.kind} {name!r} not found{hint}; installed: {', '.join(names) or 'none'}"


def _import_folder(path: Path) -> Any:
    """Import a plug-in folder as a package and return its attribute `plugin`; relative imports work."""
    from importlib.util import module_from_spec, spec_from_file_location

    # The path is part of the name: two homes may each have a plug-in of one name.
    tag = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"perdure_plugin_{re.sub(r'[^A-Za-z0-9]', '_', path.name)}_{tag}"
    spec = spec_from_file_location(name, path / "__init__.py", submodule_search_locations=[str(path)])
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path / '__init__.py'}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)  # a half-run module must not be found by the next attempt
        raise
    if not hasattr(module, ATTRIBUTE):
        raise AttributeError(f"its __init__.py defines no {ATTRIBUTE!r}; add `{ATTRIBUTE} = YourClass`")
    return getattr(module, ATTRIBUTE)


def _location_of(target: Factory | str) -> str:
    if isinstance(target, str):
        return target
    return f"{getattr(target, '__module__', '?')}:{getattr(target, '__qualname__', repr(target))}"


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
