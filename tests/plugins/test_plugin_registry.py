"""M2: where plug-ins come from, which one a name means, and what happens to a broken one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import ConfigError, EngineNotFound, PluginBroken, PluginNotFound
from perdure.plugins import PluginRegistry


class BuiltIn:
    pass


class Other:
    pass


@dataclass(frozen=True)
class Point:
    """An installed package's entry point, as importlib.metadata would give it."""

    name: str
    value: str
    target: Any

    def load(self) -> Any:
        if isinstance(self.target, Exception):
            raise self.target
        return self.target


def registry(folder: Path | None = None, *points: Point) -> PluginRegistry:
    return PluginRegistry(
        "context engine",
        folder,
        "perdure.context_engines",
        builtins={"compressor": BuiltIn},
        not_found=EngineNotFound,
        installed=lambda group: points if group == "perdure.context_engines" else (),
    )


def write_plugin(folder: Path, name: str, code: str) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(code)
    return place


@pytest.mark.spec("M2")
def test_folder_comes_before_code_and_code_before_package(tmp_path: Path) -> None:
    engines = registry(tmp_path, Point("lcm", "pack:Lcm", Other))
    assert engines.load("lcm") is Other
    engines.register("lcm", dict)
    assert engines.load("lcm") is dict
    write_plugin(tmp_path, "lcm", "class Folder: pass\nplugin = Folder\n")
    assert engines.load("lcm").__name__ == "Folder"
    assert [(f.origin, bool(f.ignored)) for f in engines.discover() if f.name == "lcm"] == [
        ("folder", False),
        ("code", True),
        ("package", True),
    ]


@pytest.mark.spec("M2")
def test_compressor_always_means_the_built_in(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    write_plugin(tmp_path / "p", "compressor", f"open({str(marker)!r}, 'w')\nplugin = dict\n")
    engines = registry(tmp_path / "p", Point("compressor", "evil:Engine", Other))
    assert engines.load("compressor") is BuiltIn
    with pytest.raises(ConfigError, match="built in"):
        engines.register("compressor", Other)
    assert engines.names() == ("compressor",)
    assert [f.origin for f in engines.discover() if f.ignored] == ["folder", "package"]
    assert not marker.exists()


@pytest.mark.spec("M2")
def test_listing_runs_no_plugin_code(tmp_path: Path) -> None:
    write_plugin(tmp_path, "loud", "raise RuntimeError('I was imported')\n")
    engines = registry(tmp_path, Point("pack", "pack:Engine", RuntimeError("I was imported")))
    assert engines.names() == ("compressor", "loud", "pack")


@pytest.mark.spec("M2")
def test_an_unknown_name_is_refused_with_what_exists(tmp_path: Path) -> None:
    write_plugin(tmp_path, "lossless", "plugin = dict\n")
    with pytest.raises(EngineNotFound) as caught:
        registry(tmp_path).load("losless")
    assert str(caught.value) == (
        "context engine 'losless' not found (did you mean 'lossless'?); installed: compressor, lossless"
    )


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
        ("import a_module_nobody_has", "ModuleNotFoundError"),
        ("x = 1", "defines no 'plugin'"),
        ("plugin = 42", "a class or function is wanted, not 42"),
    ],
)
def test_a_broken_folder_says_where_and_why_and_start_falls_back(tmp_path: Path, code: str, said: str) -> None:
    place = write_plugin(tmp_path, "bad", code)
    engines = registry(tmp_path)
    with pytest.raises(PluginBroken) as caught:
        engines.load("bad")
    assert str(place) in str(caught.value)
    assert said in str(caught.value)

    started = engines.start("bad", default="compressor", build=lambda make: make())
    assert isinstance(started.value, BuiltIn)
    assert started.name == "compressor"
    assert said in started.warning
    assert "installed: compressor, bad" in started.warning
    assert started.warning.endswith("Using 'compressor' instead.")


@pytest.mark.spec("M2")
def test_start_falls_back_loudly_on_an_unknown_name_listing_what_exists() -> None:
    started = registry().start("gone", default="compressor", build=lambda make: make())
    assert isinstance(started.value, BuiltIn)
    assert started.warning == ("context engine 'gone' not found; installed: compressor. Using 'compressor' instead.")


@pytest.mark.spec("M2")
def test_start_falls_back_when_the_plugin_cannot_be_made() -> None:
    def explode() -> None:
        raise ZeroDivisionError

    engines = registry()
    engines.register("bomb", explode)
    started = engines.start("bomb", default="compressor", build=lambda make: make())
    assert isinstance(started.value, BuiltIn)
    assert "'bomb' failed to start: ZeroDivisionError; installed: compressor, bomb" in started.warning


def test_start_says_nothing_when_all_is_well() -> None:
    engines = registry()
    engines.register("mine", Other)
    started = engines.start("mine", default="compressor", build=lambda make: make())
    assert (started.name, type(started.value), started.warning) == ("mine", Other, "")


@pytest.mark.spec("M2")
def test_a_class_of_the_wrong_type_is_broken() -> None:
    engines = PluginRegistry("context engine", None, "none", builtins={"compressor": BuiltIn}, expects=BuiltIn)
    engines.register("wrong", Other)
    engines.register("maker", lambda: BuiltIn())
    with pytest.raises(PluginBroken, match=r"'wrong' at .* is broken: Other is no BuiltIn"):
        engines.load("wrong")
    assert isinstance(engines.load("maker")(), BuiltIn)
    assert "Other is no BuiltIn" in engines.start("wrong", default="compressor", build=lambda make: make()).warning


def test_errors_of_the_default_itself_are_raised() -> None:
    engines = registry()
    with pytest.raises(TypeError):
        engines.start("gone", default="compressor", build=lambda make: make(1))


@pytest.mark.spec("M2")
def test_an_entry_point_that_fails_to_import_is_broken_not_fatal() -> None:
    engines = registry(None, Point("pack", "pack:Engine", ImportError("no pack")))
    with pytest.raises(PluginBroken, match="pack:Engine is broken: ImportError: no pack"):
        engines.load("pack")
    assert engines.load("compressor") is BuiltIn


def test_damaged_package_metadata_never_hides_the_built_in() -> None:
    def explode(group: str) -> list[Point]:
        raise OSError(group)

    engines = PluginRegistry("context engine", None, "g", builtins={"compressor": BuiltIn}, installed=explode)
    assert engines.load("compressor") is BuiltIn
    assert engines.names() == ("compressor",)
    with pytest.raises(PluginNotFound):
        engines.load("other")


def test_folder_plugins_may_import_their_own_modules(tmp_path: Path) -> None:
    place = write_plugin(tmp_path, "my-engine", "from .inner import Engine as plugin\n")
    (place / "inner.py").write_text("class Engine: pass\n")
    assert registry(tmp_path).load("my-engine").__name__ == "Engine"


def test_two_homes_may_have_different_plugins_of_one_name(tmp_path: Path) -> None:
    write_plugin(tmp_path / "a", "same", "class A: pass\nplugin = A\n")
    write_plugin(tmp_path / "b", "same", "class B: pass\nplugin = B\n")
    first = registry(tmp_path / "a")
    second = first.within(tmp_path / "b")
    assert (first.load("same").__name__, second.load("same").__name__) == ("A", "B")


def test_a_mended_plugin_loads_after_a_failed_attempt(tmp_path: Path) -> None:
    place = write_plugin(tmp_path, "slow", "raise RuntimeError\n")
    engines = registry(tmp_path)
    with pytest.raises(PluginBroken):
        engines.load("slow")
    (place / "__init__.py").write_text("plugin = dict  # mended\n")
    assert engines.load("slow") is dict


def test_registrations_are_shared_with_a_registry_for_another_folder(tmp_path: Path) -> None:
    process_wide = registry()
    here = process_wide.within(tmp_path)
    process_wide.register("late", Other)
    assert here.load("late") is Other


def test_registering_again_replaces() -> None:
    engines = registry()
    engines.register("mine", Other)
    assert engines.load("mine") is Other
    engines.register("mine", BuiltIn)
    assert engines.load("mine") is BuiltIn


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../etc", ".hidden", "a b", "x" * 65])
def test_names_that_could_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name"):
        registry().register(name, Other)
    with pytest.raises(PluginNotFound):
        registry().load(name)


def test_what_is_not_callable_cannot_be_registered() -> None:
    with pytest.raises(ConfigError, match="not 7"):
        registry().register("seven", 7)  # type: ignore[arg-type]  # the wrong type is the point


def test_a_dotted_target_is_imported_only_when_loaded() -> None:
    engines = registry()
    engines.register("lazy", "collections:OrderedDict")
    engines.register("nowhere", "no_such_module_at_all:Engine")
    assert engines.load("lazy").__name__ == "OrderedDict"
    with pytest.raises(PluginBroken, match="no_such_module_at_all"):
        engines.load("nowhere")


def test_stray_files_and_missing_folders_are_no_plugins(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("not a plug-in")
    (tmp_path / "empty").mkdir()
    (tmp_path / "__pycache__").mkdir()
    assert registry(tmp_path).names() == ("compressor",)
    assert registry(tmp_path / "nowhere").names() == ("compressor",)


@pytest.mark.spec("M2")
def test_the_working_directory_is_never_searched(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins" / "context_engine", "sneaky", "plugin = dict\n")
    code = (
        "from pathlib import Path; from perdure.plugins import PluginRegistry;"
        "print(PluginRegistry('context engine', Path('/nowhere'), 'none', builtins={'compressor': dict}).names())"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "('compressor',)"


@pytest.mark.spec("M2")
def test_a_really_installed_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    info = tmp_path / "pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[perdure.context_engines]\nfrom_package = pack_engine:Engine\n")
    (tmp_path / "pack_engine.py").write_text("class Engine: pass\n")
    code = (
        "from perdure.plugins import PluginRegistry;"
        "r = PluginRegistry('context engine', None, 'perdure.context_engines');"
        "print(r.names(), r.load('from_package').__name__)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "('from_package',) Engine"
