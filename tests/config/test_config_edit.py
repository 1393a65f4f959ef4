"""`config set`: checked first, comments kept, whole or not at all, for its owner alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config import edit, load
from perdure.config.load import load_settings
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError

FILE = """\
# My settings. Do not lose this line.

compression:
    # half was too early for me
    threshold: 0.6   # tried 0.5, 0.7
    enabled: true

    # protect_last_n: 30

# what I talk to
model: {name: "x", provider: y} # flow
fallback_providers: # in order
- groq/llama   # fast
# then the other
- openrouter
# the end
"""


def write(home: Path, text: str) -> Path:
    path = home / "config.yaml"
    path.write_text(text)
    return path


def settings(home: Path) -> Settings:
    return load_settings(home=home, environ={})


def comments(text: str) -> set[str]:
    return {line[line.index("#") :].rstrip() for line in text.splitlines() if "#" in line}


def test_only_the_value_changes(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    edit.set_value(tmp_path, "compression.threshold", ".75")
    assert path.read_text() == FILE.replace("threshold: 0.6   #", "threshold: 0.75   #")
    edit.set_value(tmp_path, "model.name", "a, b}")
    assert path.read_text().count("'a, b}', provider: y} # flow") == 1
    assert settings(tmp_path).model.name == "a, b}"


def test_a_new_key_joins_its_section_behind_its_commented_lines(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    edit.set_value(tmp_path, "compression.protect_last_n", "9")
    assert "    # protect_last_n: 30\n    protect_last_n: 9\n\n# what I talk to" in path.read_text()
    edit.set_value(tmp_path, "auxiliary.vision.model", "v")
    assert path.read_text().endswith("# the end\nauxiliary:\n    vision:\n        model: v\n")


def test_a_replaced_list_keeps_every_comment_in_and_around_it(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    edit.set_value(tmp_path, "fallback_providers", "deepseek")
    text = path.read_text()
    assert "fallback_providers: [deepseek]\n# the end\n" in text
    assert comments(text) == comments(FILE)


def test_unset_takes_out_one_entry_and_the_default_holds(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    assert edit.unset_value(tmp_path, "compression.threshold")
    assert path.read_text() == FILE.replace("    threshold: 0.6   # tried 0.5, 0.7\n", "")
    assert edit.unset_value(tmp_path, "model.provider")
    assert edit.unset_value(tmp_path, "model.name")
    assert "model: {} # flow" in path.read_text()
    assert settings(tmp_path).model == Settings().model
    assert not edit.unset_value(tmp_path, "model.name")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "compression:\n  threshold: 0.7\n"),
        ("# only words", "# only words\ncompression:\n  threshold: 0.7\n"),
        ("---\n# c\n", "---\n# c\ncompression:\n  threshold: 0.7\n"),
        ("compression:\n", "compression:\n  threshold: 0.7\n"),
        ("compression:", "compression:\n  threshold: 0.7\n"),
        ("compression: null # c\n", "compression: # c\n  threshold: 0.7\n"),
        ("compression: ~\nmodel:\n  name: x\n", "compression:\n  threshold: 0.7\nmodel:\n  name: x\n"),
        ("compression:\n  # threshold: 0.6\nmodel:\n", "compression:\n  threshold: 0.7\n  # threshold: 0.6\nmodel:\n"),
        ("compression: {}\n", "compression: {threshold: 0.7}\n"),
        ("compression: {enabled: true,}\n", "compression: {enabled: true, threshold: 0.7}\n"),
        ("{}\n", "{compression: {threshold: 0.7}}\n"),
        ("compression: {threshold: # why\n  0.5}\n", "# why\ncompression: {threshold: 0.7}\n"),
        ("compression:\n  threshold: |\n    0.5\n\n# end\n", "compression:\n  threshold: 0.7\n\n# end\n"),
        ("model:\n  name: x\n...\n", "model:\n  name: x\ncompression:\n  threshold: 0.7\n...\n"),
        ('"compression":\n  "threshold": 0.5\n', '"compression":\n  "threshold": 0.7\n'),
    ],
)
def test_corners_of_yaml(before: str, after: str, tmp_path: Path) -> None:
    path = write(tmp_path, before)
    edit.set_value(tmp_path, "compression.threshold", "0.7")
    assert path.read_text() == after
    assert settings(tmp_path).compression.threshold == 0.7


def test_windows_line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"# c\r\nmodel:\r\n  name: x\r\n")
    edit.set_value(tmp_path, "model.provider", "groq")
    assert path.read_bytes() == b"# c\r\nmodel:\r\n  name: x\r\n  provider: groq\r\n"


def test_what_cannot_be_changed_safely_is_left_alone(tmp_path: Path) -> None:
    text = "model: &m\n  name: &n x\n  provider: *n\n"
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=r"cannot be changed safely; use `perdure config edit`"):
        edit.set_value(tmp_path, "model.name", "y")
    assert path.read_text() == text


def test_a_bad_value_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"compression\.threshold = 2 is not allowed: a share: a number above 0, at most 1"
    ):
        edit.set_value(tmp_path / "home", "compression.threshold", "2")
    assert not (tmp_path / "home" / "config.yaml").exists()
    path = write(tmp_path, FILE)
    for key, value in [("compression.treshold", "1"), ("compression", "x"), ("fallback_providers", "[{modl: x}]")]:
        with pytest.raises(ConfigError):
            edit.set_value(tmp_path, key, value)
    assert path.read_text() == FILE


def test_wrong_values_elsewhere_do_not_keep_one_from_being_mended(tmp_path: Path) -> None:
    write(tmp_path, "compression:\n  threshold: 7\n  enabled: perhaps\nmodle: x\n")
    written = edit.set_value(tmp_path, "compression.threshold", "0.7")
    assert written.value == 0.7
    assert [problem.name for problem in written.others] == ["compression.enabled", "modle"]
    written = edit.set_value(tmp_path, "compression.enabled", "no")
    assert written.value is False
    assert [problem.name for problem in written.others] == ["modle"]


def test_a_key_inside_what_is_no_section_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "compression: true\n")
    with pytest.raises(ConfigError, match="compression = true is not allowed"):
        edit.set_value(tmp_path, "compression.threshold", "0.7")


def test_the_file_is_for_its_owner_alone_and_no_scraps_stay(tmp_path: Path) -> None:
    home = tmp_path / "home"
    edit.set_value(home, "store.url", "postgresql://me:secret@db/x")
    assert home.stat().st_mode & 0o777 == 0o700
    path = home / "config.yaml"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    edit.set_value(home, "model.name", "x")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in home.iterdir()] == ["config.yaml"]


def test_a_link_to_a_dotfiles_folder_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.yaml"
    real.write_text("# kept\n")
    (tmp_path / "config.yaml").symlink_to(real)
    edit.set_value(tmp_path, "model.name", "x")
    assert (tmp_path / "config.yaml").is_symlink()
    assert real.read_text() == "# kept\nmodel:\n  name: x\n"


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "config.yaml"
    folder.mkdir()
    with pytest.raises(ConfigError, match="cannot write"):
        edit.write_private(folder, "x")
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


def test_two_writers_at_once_both_count(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from perdure.config import edit\n"
        "for i in range(8): edit.set_value(Path(sys.argv[1]), sys.argv[2], str(i + 1))"
    )
    names = ("agent.max_turns", "delegation.max_iterations")
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in names]
    assert [process.wait() for process in running] == [0, 0]
    assert (settings(tmp_path).agent.max_turns, settings(tmp_path).delegation.max_iterations) == (8, 8)


def test_the_first_file_explains_every_key_and_means_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, edit.template())
    assert settings(tmp_path) == Settings()
    bare = "\n".join(line.removeprefix("#") for line in edit.template().splitlines()[1:])
    assert load.parse(bare, path).data["compression"]["threshold"] == 0.5
    path.write_text(bare)
    assert settings(tmp_path) == Settings()
    edit.set_value(tmp_path, "compression.threshold", "0.7")
    assert settings(tmp_path).compression.threshold == 0.7


_names = st.sampled_from(["model", "compression", "alpha", "beta", "gamma"])
_scalars = st.sampled_from(["1", "0.5", "true", "word", "'a # b'", '"x: y"', "null", "", "[1, two]", "{k: v}"])
_remarks = st.sampled_from(["", " # why", "   #because"])
_REMARK = re.compile(r"# why|#because|# about \w+ \d+|# last words")


@st.composite
def files(draw: st.DrawFn, depth: int = 0, indent: int = 0) -> str:
    """A YAML mapping as people write it: remarks everywhere, sections, lists, blank lines."""
    pad, lines = " " * indent, []
    for name in draw(st.lists(_names, min_size=depth, max_size=4, unique=True)):
        if draw(st.booleans()):
            lines.append(f"{pad}# about {name} {draw(st.integers(0, 99))}")
        kind = draw(st.sampled_from(["scalar", "scalar", "section", "list"] if depth < 2 else ["scalar"]))
        if kind == "scalar":
            lines.append(f"{pad}{name}: {draw(_scalars)}{draw(_remarks)}")
        elif kind == "section":
            lines.append(f"{pad}{name}:{draw(_remarks)}")
            lines.append(draw(files(depth=depth + 1, indent=indent + draw(st.sampled_from([1, 2, 4])))).rstrip("\n"))
        else:
            dash = pad + draw(st.sampled_from(["", "  "])) + "- "
            lines.append(f"{pad}{name}:")
            lines += [f"{dash}item{i}{draw(_remarks)}" for i in range(draw(st.integers(1, 3)))]
        lines += [""] * draw(st.integers(0, 1))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n# last words\n"]))


@given(
    text=files(),
    path=st.lists(_names, min_size=1, max_size=3).map(tuple),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, min_size=1, max_size=3),
        max_leaves=4,
    ),
)
def test_any_file_with_any_value_reads_back_as_meant_and_keeps_its_comments(
    text: str, path: tuple[str, ...], value: object
) -> None:
    before = load.parse(text, Path("f")).data
    node = before
    for part in path[:-1]:
        if not isinstance(node.get(part), dict):
            if node.get(part) is not None:
                return  # a value in the way of a section is refused before the text is touched
            node[part] = {}
        node = node[part]
    node[path[-1]] = value
    after = edit.with_value(text, path, value)
    assert load.parse(after, Path("f")).data == before
    assert sorted(_REMARK.findall(after)) == sorted(_REMARK.findall(text))


@given(text=files(depth=1))
def test_any_entry_can_be_taken_out_of_any_file(text: str) -> None:
    before = load.parse(text, Path("f")).data
    for name in before:
        rest = {key: value for key, value in before.items() if key != name}
        assert load.parse(edit.without(text, (name,)), Path("f")).data == rest


OLD_FILES = {
    "in its section": "compression:\n  summary_model: x\n  threshold: 0.6\n",
    "with its dotted name": "compression.summary_model: x\ncompression:\n  threshold: 0.6\n",
    "by both names": "compression:\n  summary_model: x\n  threshold: 0.6\nauxiliary:\n  compression:\n    model: y\n",
    "in every way": (
        "compression.summary_model: z\ncompression: {summary_model: x, threshold: 0.6}\n"
        "auxiliary:\n  compression:\n    model: y\n"
    ),
}


@pytest.mark.filterwarnings("ignore::perdure.config.deprecated.DeprecatedSetting")
@pytest.mark.parametrize("name", ["auxiliary.compression.model", "compression.summary_model"])
@pytest.mark.parametrize("how", OLD_FILES)
def test_unset_takes_a_setting_out_by_all_of_its_names(tmp_path: Path, how: str, name: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(OLD_FILES[how], "utf-8")
    assert load_settings(home=tmp_path, environ={}).auxiliary.compression.model in ("x", "y")
    assert edit.unset_value(tmp_path, name)
    assert "model" not in path.read_text("utf-8").replace("threshold", "")
    settings = load_settings(home=tmp_path, environ={})
    assert (settings.auxiliary.compression.model, settings.compression.threshold) == (None, 0.6)
    assert not edit.unset_value(tmp_path, name)
