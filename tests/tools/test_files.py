"""`read_file`, `write_file`, `patch` and `search_files`."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Literal

import pytest

from perdure.core.errors import ToolError
from perdure.tools.builtin.files import FileEditor, FileReader, find_matches
from perdure.tools.builtin.search import FileSearch
from perdure.tools.tool import ToolContext
from perdure.tools.workspace import Workspace
from support.outputs import MemoryOutputs

HERE = ToolContext("call_1", conversation_id="c_1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("def main():\n    print('hello')\n\n\ndef other():\n    print('hello')\n")
    return tmp_path


@pytest.fixture
def reader(folder: Path) -> FileReader:
    return FileReader(Workspace(folder), outputs=MemoryOutputs(), page_chars=2_000)


@pytest.fixture
def editor(folder: Path) -> FileEditor:
    return FileEditor(Workspace(folder))


def test_read_file_numbers_lines_and_marks_the_end(reader: FileReader) -> None:
    text = reader.read_file(HERE, "src/app.py", limit=2).text
    assert text.splitlines()[:2] == ["     1|def main():", "     2|    print('hello')"]
    assert text.endswith("[more: continue with offset=3]")
    assert reader.read_file(HERE, "src/app.py", offset=5).text.endswith("[end of src/app.py]")


@pytest.mark.spec("H2")
def test_following_the_page_offsets_reads_everything(reader: FileReader, folder: Path) -> None:
    lines = [f"line {i} " + "x" * (i % 700) for i in range(1, 400)]
    lines[200] = "long " * 3_000
    (folder / "big.txt").write_text("\n".join(lines))
    texts: dict[int, str] = {}
    at: dict[str, int] | None = {"offset": 1}
    while at is not None:
        *page, last = reader.read_file(HERE, "big.txt", **at).text.splitlines()
        for row in page:
            number, _, text = row.partition("|")
            texts[int(number)] = texts.get(int(number), "") + text
        result = last.removeprefix("[more: continue with ").removesuffix("]")
        at = {k: int(v) for k, v in (x.split("=") for x in result.split(", "))} if last.startswith("[more") else None
    assert [texts[i] for i in sorted(texts)] == lines


@pytest.mark.spec("H4")
def test_stored_output_of_one_huge_line_is_paginated(folder: Path) -> None:
    outputs = MemoryOutputs()
    sink = outputs.begin("c_1", "call")
    sink.write("a" * 5_000 + "NEEDLE" + "b" * 5_000)
    address = sink.close().address
    reader = FileReader(Workspace(folder), outputs=outputs, page_chars=2_000)
    assert "NEEDLE" in reader.read_file(HERE, address, column=4_900).text
    with pytest.raises(ToolError, match="no output 'gone'"):
        reader.read_file(HERE, "output:gone")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "the path is empty"),
        ("a\0b", "not a path"),
        ("x" * 5_000, "not a path"),
        ("src/ap.py", "src/ap.py does not exist; did you mean src/app.py?"),
        ("scr/app.py", "did you mean src?"),
        ("nowhere/a.py", "there is no nowhere in"),
        ("blob.bin", "is a binary file"),
    ],
)
def test_unreadable_path_is_an_error_with_the_reason(reader: FileReader, folder: Path, path: str, says: str) -> None:
    (folder / "blob.bin").write_bytes(b"\0\1\2")
    with pytest.raises(ToolError) as error:
        reader.read_file(HERE, path)
    assert says in str(error.value)


def test_offset_past_the_end_reports_the_number_of_lines(reader: FileReader) -> None:
    with pytest.raises(ToolError, match="has 6 lines; offset 99 is past its end"):
        reader.read_file(HERE, "src/app.py", offset=99)


def test_empty_files_folders_and_other_encodings_are_read(reader: FileReader, folder: Path) -> None:
    (folder / "empty").touch()
    (folder / "wide.txt").write_bytes("größe".encode("utf-16"))
    (folder / "broken.txt").write_bytes(b"ok \xff end")
    assert reader.read_file(HERE, "empty").text == "empty is empty"
    assert "größe" in reader.read_file(HERE, "wide.txt").text
    assert "ok � end" in reader.read_file(HERE, "broken.txt").text
    assert "app.py (" in reader.read_file(HERE, "src").text


def test_write_file_creates_folders_and_keeps_the_mode(editor: FileEditor, folder: Path) -> None:
    assert editor.write_file("new/deep/a.txt", "one\ntwo").text == "Created new/deep/a.txt: 2 lines"
    script = folder / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    assert editor.write_file("run.sh", "new\n").text.startswith("Replaced")
    assert script.stat().st_mode & 0o777 == 0o755
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []


def test_the_diff_of_a_replaced_file_has_no_secrets_of_it(editor: FileEditor, folder: Path) -> None:
    """It goes to subscribers of events, also of services; the model never reads it."""
    key = "sk-ant-api03-" + "aB3dE5fG7hJ9kL1mN2pQ" * 4
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq9\nx8Jd0Lk2Vn3Qw4Er5Ty6\n-----END RSA PRIVATE KEY-----"
    (folder / "settings.py").write_text(f"A = 1\nKEY = '{key}'\n{block}\nB = 2\n")
    diff = editor.write_file("settings.py", "A = 1\nB = 3\n").diff
    assert diff[-2:] == ("-B = 2", "+B = 3")
    assert diff[1] == " A = 1"
    assert sum("[REDACTED]" in line for line in diff) == 3
    assert not any(piece in line for line in diff for piece in (key[20:], "MIIEow", "x8Jd0"))
    assert editor.write_file(".npmrc", "a").diff == ()
    (folder / ".npmrc").write_text("//registry/:_authToken=abc\n")
    assert editor.write_file(".npmrc", "b").diff[0] == "@@ replaces a file that may hold credentials, 27 bytes @@"


def test_failed_write_changes_nothing(editor: FileEditor) -> None:
    with pytest.raises(ToolError, match="is a folder"):
        editor.write_file("src", "x")
    with pytest.raises(ToolError, match="cannot be written"):
        editor.write_file("src/app.py/below", "x")


def test_patch_with_one_match_is_applied_and_returns_a_diff(editor: FileEditor, folder: Path) -> None:
    result = editor.patch("src/app.py", "def main():\n    print('hello')", "def main():\n    print('bye')")
    assert "+    print('bye')" in result
    assert (folder / "src" / "app.py").read_text().count("hello") == 1


def test_patch_with_two_matches_names_the_lines(editor: FileEditor, folder: Path) -> None:
    with pytest.raises(ToolError, match=r"occurs 2 times in src/app.py \(lines 2, 6\)"):
        editor.patch("src/app.py", "print('hello')", "pass")
    editor.patch("src/app.py", "print('hello')", "pass", replace_all=True)
    assert "hello" not in (folder / "src" / "app.py").read_text()


def test_patch_ignores_whitespace_and_quotes_and_keeps_the_indentation(editor: FileEditor, folder: Path) -> None:
    (folder / "a.py").write_text("class A:\n    def f(self):\n        return 'x'  \n")
    result = editor.patch("a.py", "def f(self):\n    return ‘x’", "def f(self):\n    return 'y'")
    assert "matched despite differences" in result
    assert (folder / "a.py").read_text() == "class A:\n    def f(self):\n        return 'y'\n"


def test_first_line_without_indentation_does_not_shift_the_rest(editor: FileEditor, folder: Path) -> None:
    (folder / "a.py").write_text("class A:\n    def f(self):\n        one()\n        two()\n")
    editor.patch("a.py", "one()\n    two()", "one()\n    if x:\n        two()")
    expected = "class A:\n    def f(self):\n        one()\n        if x:\n            two()\n"
    assert (folder / "a.py").read_text() == expected


def test_patch_without_a_match_shows_the_nearest_text(editor: FileEditor) -> None:
    with pytest.raises(ToolError) as error:
        editor.patch("src/app.py", "def main():\n    print('hullo there')", "x")
    assert "The nearest match is at line 1" in str(error.value)
    assert "+     print('hello')" in str(error.value)
    with pytest.raises(ToolError, match="nor anything similar"):
        editor.patch("src/app.py", "zzzzzzzzzz", "x")


@pytest.mark.parametrize(("old", "new", "says"), [("", "x", "is empty"), ("a", "a", "are the same")])
def test_patch_that_changes_nothing_is_an_error(editor: FileEditor, old: str, new: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        editor.patch("src/app.py", old, new)


def test_newlines_and_invalid_utf8_survive_a_patch(editor: FileEditor, folder: Path) -> None:
    (folder / "dos.txt").write_bytes(b"one\r\ntwo\xff\r\nthree\r\n")
    editor.patch("dos.txt", "one\n", "1\n")
    assert (folder / "dos.txt").read_bytes() == b"1\r\ntwo\xff\r\nthree\r\n"


RIPGREP = shutil.which("rg")


def fake_ripgrep(folder: Path, script: str) -> str:
    path = folder / "rg"
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(0o700)
    return str(path)


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.timeout(20)
def test_an_invalid_pattern_that_ripgrep_quotes_at_length_is_searched_literally(tmp_path: Path) -> None:
    script = r"""
for argument; do [ "$previous" = --regexp ] && pattern=$argument; previous=$argument; done
[ "$pattern" = "\[" ] && exit 1
{ echo "regex parse error:"; head -c 300000 /dev/zero | tr "\0" x; echo; echo "error: unclosed"; } >&2
exit 2
"""
    search = FileSearch(Workspace(tmp_path), ripgrep=fake_ripgrep(tmp_path, script))
    assert search.search_files(HERE, "[").startswith("[searched for the literal text: not a regular")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_ripgrep_ended_by_a_signal_is_an_error_not_an_empty_result(tmp_path: Path) -> None:
    search = FileSearch(Workspace(tmp_path), ripgrep=fake_ripgrep(tmp_path, "kill -SEGV $$"))
    with pytest.raises(ToolError, match="ended by signal 11"):
        search.search_files(HERE, "x")


@pytest.mark.parametrize("kind", ["names", "content"])
def test_an_overlong_pattern_is_refused_at_once(tmp_path: Path, kind: Literal["names", "content"]) -> None:
    (tmp_path / "a.txt").write_text("x", "utf-8")
    for search in (FileSearch(Workspace(tmp_path)), FileSearch(Workspace(tmp_path), ripgrep="/nowhere/rg")):
        with pytest.raises(ToolError, match="may have"):
            search.search_files(HERE, "[" * 30_000, kind=kind)


@pytest.fixture(params=["python", "ripgrep"])
def search(request: pytest.FixtureRequest, folder: Path) -> FileSearch:
    if request.param == "ripgrep" and RIPGREP is None:
        pytest.skip("ripgrep is not installed")
    return FileSearch(Workspace(folder), ripgrep=RIPGREP if request.param == "ripgrep" else None)


def test_content_search_returns_file_and_line(search: FileSearch) -> None:
    assert search.search_files(ToolContext("c"), r"def \w+\(").splitlines() == [
        "src/app.py:1:def main():",
        "src/app.py:5:def other():",
    ]
    assert search.search_files(ToolContext("c"), "absent").startswith("No matches.")


def test_matches_over_the_limit_are_counted(search: FileSearch, folder: Path) -> None:
    (folder / "many.txt").write_text("hit\n" * 300)
    result = search.search_files(ToolContext("c"), "hit", glob="*.txt", limit=3)
    assert result.endswith("[matches 1 to 3 of 300; continue with offset=3, or narrow the pattern or the path]")


@pytest.mark.parametrize("kind", ["content", "names"])
def test_matches_are_paginated_by_offset(search: FileSearch, folder: Path, kind: Literal["content", "names"]) -> None:
    for n in range(7):
        (folder / f"hit{n}.txt").write_text(f"hit {n}\n")
    pages: list[str] = []
    offset = 0
    while True:
        *lines, last = search.search_files(HERE, "hit", kind=kind, glob="*.txt", limit=3, offset=offset).splitlines()
        pages += lines
        if "that is all" in last:
            break
        offset = int(last.partition("offset=")[2].partition(",")[0])
    assert [line.partition(".txt")[0] for line in pages] == [f"hit{n}" for n in range(7)]
    behind = search.search_files(HERE, "hit", kind=kind, glob="*.txt", offset=50)
    assert behind == "There are 7 matches; offset 50 is past the last one."


FREEZES = r"(\w+\s?)+:$"
PROSE = "the quick brown fox jumps over the lazy dog and runs away again and again!\n"


def test_slow_pattern_stops_at_the_deadline_with_the_matches_so_far(folder: Path) -> None:
    (folder / "a.txt").write_text("note:\n")
    (folder / "notes.txt").write_text(PROSE)
    search = FileSearch(Workspace(folder), deadline_s=0.5)
    longest = 0.0
    done = threading.Event()

    def watch() -> None:
        nonlocal longest
        while not done.is_set():
            before = time.monotonic()
            time.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = search.search_files(HERE, FREEZES, glob="*.txt")
    done.set()
    watcher.join()
    assert result.startswith("a.txt:1:note:\n[stopped after 0.5 s: nested repeats")
    # The interpreter was never held: other threads went on.
    assert longest < 0.3


def test_cancelling_stops_a_slow_pattern(folder: Path) -> None:
    (folder / "notes.txt").write_text(PROSE)
    context = ToolContext("c")
    threading.Timer(0.2, context.cancel.cancel).start()
    started = time.monotonic()
    FileSearch(Workspace(folder)).search_files(context, FREEZES)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("pattern", [r"(?<=x)y\1", "(" * 5_000, "a{99999999999}", r"(?P<n>a)(?P=n)\b", "\ud800"])
def test_unusual_patterns_return_a_result(folder: Path, pattern: str) -> None:
    assert FileSearch(Workspace(folder)).search_files(HERE, pattern)


def test_file_names_with_invalid_utf8_are_searched(folder: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_text("needle\n")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert ".txt:1:needle" in FileSearch(Workspace(folder)).search_files(HERE, "needle")


def test_names_match_by_substring_or_glob(search: FileSearch) -> None:
    for pattern in ("app", "*.py"):
        assert search.search_files(ToolContext("c"), pattern, kind="names") == "src/app.py"


def test_invalid_pattern_is_searched_literally(search: FileSearch) -> None:
    result = search.search_files(ToolContext("c"), "def main(")
    assert result.startswith("[searched for the literal text: not a regular expression")
    assert result.endswith("src/app.py:1:def main():")


def test_globs_with_a_folder_match_the_whole_path(search: FileSearch) -> None:
    context = ToolContext("c")
    assert search.search_files(context, "src/**/*.py", kind="names") == "src/app.py"
    assert search.search_files(context, "**/app.py", kind="names") == "src/app.py"
    assert search.search_files(context, "def main", glob="src/*.py").startswith("src/app.py:1")
    assert search.search_files(context, "def main", glob="docs/*.py").startswith("No matches")


def test_ignored_folders_are_skipped(search: FileSearch, folder: Path) -> None:
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "x.py").write_text("def main(): ...")
    (folder / "blob.bin").write_bytes(b"def main\0")
    assert search.search_files(ToolContext("c"), "def main").count("\n") == 0


REPEATED = [f"line {n % 120}\n" for n in range(20_000)]


@pytest.mark.parametrize(
    ("text", "old", "replace_all"),
    [
        ("a: b\n" * 20_000, "a: b\n" * 10_000 + "zz", False),
        ("a: b\n" * 20_000, " a: b\n" * 10_000, True),
        ("".join(REPEATED), "line 7\n", True),
        ("".join(REPEATED), "line 7\nline 8\nline 10\n" * 500, False),
        ("".join(f"{n * 7919:0190x}\n" for n in range(8_000)), f"{12345678910111213:0190x} ", False),
    ],
    ids=["equal lines", "equal lines indented", "few kinds of lines", "long and nearly right", "long lines"],
)
def test_patch_of_a_repetitive_file_is_fast(
    editor: FileEditor, folder: Path, text: str, old: str, replace_all: bool
) -> None:
    (folder / "long.txt").write_text(text)
    started = time.process_time()
    with contextlib.suppress(ToolError):
        editor.patch("long.txt", old, "changed\n", replace_all)
    # Parts of a second; each took from five seconds to minutes.
    assert time.process_time() - started < 2


def test_normalized_matches_do_not_overlap() -> None:
    assert [(m.start, m.end) for m in find_matches("a  \na\na \na\na\n", "a \na ")] == [(0, 5), (6, 10)]
    text = "x \nx\nx\ny\n"
    assert [text[m.start : m.end] for m in find_matches(text, "x\nx\ny ")] == ["x\nx\ny"]


def test_patch_diff_has_the_line_numbers_of_the_file(editor: FileEditor, folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 1_001)))
    result = editor.patch("long.txt", "line 500\n", "line five hundred\nand one more\n")
    assert result.splitlines()[1:] == [
        "@@ -499,3 +499,4 @@",
        " line 499",
        "-line 500",
        "+line five hundred",
        "+and one more",
        " line 501",
    ]
    assert editor.patch("long.txt", "line 1\n", "line one\n").splitlines()[1] == "@@ -1,2 +1,2 @@"
    assert editor.patch("long.txt", "line 1000\n", "").splitlines()[1:] == [
        "@@ -1000,2 +1000 @@",
        " line 999",
        "-line 1000",
    ]


def test_simultaneous_patches_of_one_file_all_survive(editor: FileEditor, folder: Path) -> None:
    path = folder / "many.txt"
    path.write_text("".join(f"slot {n:02d}.\n" for n in range(40)))
    patches = [
        threading.Thread(target=editor.patch, args=("many.txt", f"slot {n:02d}.", f"changed {n:02d}."))
        for n in range(40)
    ]
    for thread in patches:
        thread.start()
    for thread in patches:
        thread.join()
    assert path.read_text() == "".join(f"changed {n:02d}.\n" for n in range(40))
