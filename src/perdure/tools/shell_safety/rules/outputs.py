"""Find the files that a program writes, by its operands and its output options."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import git_subcommand, is_help
from perdure.tools.shell_safety.types import word_list, word_set

# Programs that write every operand.
_ALL_OPERANDS = word_set(
    "tee truncate touch rm unlink sponge chattr setfacl xattr rmdir mkdir fallocate mkfifo mknod venv virtualenv"
)
# Programs that write their last operand.
_LAST_OPERAND = word_set(
    "cp mv install ln scp rsync ditto ffmpeg convert magick sphinx-build wkhtmltopdf wkhtmltoimage qpdf"
)
# Options whose value is a file or folder that is written, by program.
_OUTPUT_OPTIONS: dict[str, tuple[str, ...]] = {
    names: tuple(options.split())
    for names, options in {
        "curl": "-o --output --output-dir -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr",
        "wget": "-O --output-document -P --directory-prefix -o --output-file -a --append-output",
        "aria2c": "-o --out -d --dir",
        "yt-dlp youtube-dl": "-o --output -P --paths",
        "sort shuf": "-o --output",
        "gcc g++ cc c++ clang clang++ ld tcc nasm as ghc gfortran emcc": "-o",
        "rustc": "-o --out-dir",
        "javac": "-d",
        "go dotnet": "-o --output",
        "pandoc dot inkscape gpg gpg2 age minisign sops base64": "-o --output",
        "openssl": "-out -keyout",
        "strace ltrace": "-o --output",
        "unzip": "-d",
        "csplit": "-f --prefix",
        "mongodump": "-o --out",
        "mysqldump mariadb-dump": "-r --result-file",
        "pg_dump pg_dumpall": "-f --file",
        "esbuild": "--outfile --outdir",
        "tsc": "--outDir --outFile",
        "terraform tofu": "-out",
        "xz gzip bzip2 zstd lz4 brotli": "-o --output",
        "find gfind": "-fprint -fprintf -fls -fprint0",
        "npm": "--pack-destination",
        "pip pip3": "-t --target --prefix --root",
        "uv": "--target --prefix",
        "cargo": "--target-dir --root",
        "cmake": "-B --prefix --install-prefix",
        "meson": "--prefix --destdir",
        "make gmake ninja": "-C --directory",
    }.items()
}
# The same for any program.
_ANY_OUTPUT = word_list(
    "--output-file --out-file --outfile --output-dir --outdir --out-dir --output-path --destdir --install-dir "
    "--dest-dir --report-file --export-file --dump-file"
)
_OPTIONS_OF = {name: options for names, options in _OUTPUT_OPTIONS.items() for name in names.split()}
_GIT_OPTIONS = {
    "archive": ("-o", "--output"),
    "format-patch": ("-o", "--output-directory"),
    "diff": ("--output",),
    "log": ("--output",),
    "show": ("--output",),
}
_GIT_VALUES = ("-b", "--branch", "-o", "--origin", "-u", "--depth", "-c", "--config", "-j", "--reference", "--name")
_NPM_CHANGES = word_set("install i ci add uninstall remove rm update link dedupe prune")
_COMPRESSORS = word_set("gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd lz4 brotli compress uncompress")
_EDITORS = word_set("vim vi nvim ex view nano ed emacs")
_EDITOR_WRITE = re.compile(r"(?:^|[|:\s])(?:w|wq|x|write|sav|saveas)!?\s+([^\s|]+)")
_SQLITE_WRITE = re.compile(r"^[ \t]*\.(?:output|once|backup|save|log)[ \t]+(?:main[ \t]+)?['\"]?([^\s'\"]+)", re.M)
# `w file`, as a command of sed or as a flag of `s`.
_SED_WRITE = re.compile(r"(?:^|[;{}\n\d$/|#,!])[ \t]{0,4}[gpiIM\d]{0,6}[wW][ \t]{1,4}([^\n;}]{1,300})")
_SQL_CHANGES = re.compile(r"\s*(?:create|insert|update|delete|drop|alter|replace|vacuum)\b", re.I)
_REMOTE = re.compile(r"[\w.+-]+://|[\w.@-]+:(?!\\)")


def written_paths(run: Invocation) -> Iterator[str]:
    """Yield the paths that a program creates, overwrites or changes; no remote ones, and not standard output."""
    if is_help(run):
        return
    for path in _candidates(run):
        if path and path != "-" and not _REMOTE.match(path):
            yield path


def _candidates(run: Invocation) -> Iterator[str]:
    if run.name in _ALL_OPERANDS:
        yield from run.operands
    elif run.name in _LAST_OPERAND:
        target = run.value_of("-t", "--target-directory") if run.name in ("cp", "mv", "install", "ln") else None
        yield from (target,) if target else run.operands[-1:]
        if run.name == "mv":
            yield from run.operands[:-1]
    elif run.name in ("sed", "gsed", "perl", "ruby") and (
        run.has("-i", "--in-place") or any(o.startswith("-i") for o in run.options)
    ):
        scripts = run.all_values_of("-e", "--expression", "-f", "--file") if run.name in ("sed", "gsed") else ()
        named = tuple(o for o in run.operands if o)
        yield from (o for o in named if o not in scripts) if scripts else named[1:]
    if run.name in ("sed", "gsed"):
        for script in (*run.all_values_of("-e", "--expression"), *run.operands[:1]):
            yield from (path.strip() for path in _SED_WRITE.findall(script))
    yield from run.all_values_of(*_OPTIONS_OF.get(run.name, ()), *_ANY_OUTPUT)
    if (special := _SPECIAL.get(run.name)) is not None:
        yield from special(run)


def tar_archive(run: Invocation) -> str | None:
    """Return the archive that `tar` uses: `cf a.tar`, `-czf a.tar`, `--file=a.tar`."""
    for i, a in enumerate(run.args[:-1]):
        if (i == 0 or a.startswith("-")) and re.fullmatch(r"-?[A-Za-z]*f", a):
            return run.args[i + 1]
    return run.value_of("--file")


def _tar(run: Invocation) -> Iterator[str]:
    letters = "".join(a for i, a in enumerate(run.args) if re.fullmatch(r"-?[A-Za-z]+", a) and (i == 0 or a[0] == "-"))
    if re.search(r"[crAu]", letters) or run.has("--create", "--append", "--update"):
        yield tar_archive(run) or ""
    else:
        yield run.value_of("-C", "--directory") or ""


def _compressor(run: Invocation) -> Iterator[str]:
    """Yield the file, which its compressed form replaces unless that goes to standard output."""
    if not run.has("-c", "--stdout", "--to-stdout", "-l", "--list", "-t", "--test"):
        yield from run.operands


def _git(run: Invocation) -> Iterator[str]:
    for command, options in _GIT_OPTIONS.items():
        if command in run.operands[:3]:
            yield from run.all_values_of(*options)
    if "bundle" in run.operands and "create" in run.operands:
        yield from run.operands[run.operands.index("create") + 1 :][:1]
    yield from _git_folders(run)


def _git_folders(run: Invocation) -> Iterator[str]:
    """Yield the new folder of `git clone`, `init`, `submodule add` and `worktree add`."""
    name, sub = git_subcommand(run)
    values = sub.all_values_of(*_GIT_VALUES)
    words = [o for o in sub.operands if o not in values]
    if name == "clone":
        yield from words[1:2] or (posixpath.basename(w.rstrip("/")) for w in words[:1])
    elif name == "init":
        yield from words[:1]
    elif name == "submodule" and words[:1] == ["add"]:
        yield from words[2:3]
    elif name == "worktree" and words[:1] == ["add"]:
        # A second worktree is usually next to the first.
        beside = posixpath.dirname(run.zones.workspace or "/")
        yield from (w for w in words[1:2] if posixpath.dirname(run.classify(w).path) != beside)


def _npm(run: Invocation) -> Iterator[str]:
    """Yield the folder of `npm --prefix`, which the commands that change packages write to."""
    if any(o in _NPM_CHANGES for o in run.operands):
        yield from run.all_values_of("--prefix")


def _make(run: Invocation) -> Iterator[str]:
    """Yield the folders that `make install PREFIX=/usr` is given as variables."""
    if any("install" in o for o in run.operands):
        yield from (value for _, sign, value in (o.partition("=") for o in run.operands) if sign and "/" in value)


def _ssh_keygen(run: Invocation) -> Iterator[str]:
    if not run.has("-l", "-y", "-F", "-R", "-B", "-e", "-i", "-H", "-L"):
        yield from run.all_values_of("-f")


def _editor(run: Invocation) -> Iterator[str]:
    yield from (o for o in run.operands if o.startswith(("/", "~")))
    commands = [*run.all_values_of("-c", "--cmd", "-sc"), *(o[1:] for o in run.operands if o.startswith("+"))]
    for command in commands:
        yield from _EDITOR_WRITE.findall(command)


def _sqlite(run: Invocation) -> Iterator[str]:
    statements = (*run.operands[1:], run.stdin or "")
    for statement in statements:
        yield from _SQLITE_WRITE.findall(statement)
    if any(_SQL_CHANGES.match(statement) for statement in statements):
        yield from run.operands[:1]


def _seven_zip(run: Invocation) -> Iterator[str]:
    if run.operands[:1] in (("a",), ("u",), ("d",)):
        yield from run.operands[1:2]
    yield from (a[2:] for a in run.args if a.startswith("-o"))


def _first_operand(run: Invocation) -> Iterator[str]:
    yield from run.operands[:1]


def _split(run: Invocation) -> Iterator[str]:
    values = run.all_values_of("-b", "-l", "-n", "-a", "-C")
    yield from [o for o in run.operands if o not in values][1:2]


def _script(run: Invocation) -> Iterator[str]:
    commands = run.all_values_of("-c", "--command")
    yield from [o for o in run.operands if o not in commands][:1]


def _docker(run: Invocation) -> Iterator[str]:
    if run.operands[:1] == ("cp",) or run.operands[:2] == ("container", "cp"):
        yield from run.operands[-1:]
    elif run.operands[:1] in (("save",), ("export",)):
        yield from run.all_values_of("-o", "--output")


def _module_archive(run: Invocation) -> Iterator[str]:
    """`python -m zipfile -e archive folder`."""
    if run.has("-e", "--extract"):
        yield from run.operands[1:2]


def _cpio(run: Invocation) -> Iterator[str]:
    yield run.value_of("-D", "--directory") or ""
    if run.has("-p", "--pass-through"):
        yield from run.operands[-1:]


def _dd(run: Invocation) -> Iterator[str]:
    yield from (a[3:] for a in run.args if a.startswith("of=") and not a.startswith("of=/dev/"))


def _patch(run: Invocation) -> Iterator[str]:
    yield from (o for o in run.operands if o.startswith(("/", "~")))
    yield from run.all_values_of("-o", "--output", "-d", "--directory")


_SPECIAL: dict[str, Callable[[Invocation], Iterator[str]]] = {
    "tar": _tar,
    "bsdtar": _tar,
    "gtar": _tar,
    "jar": _tar,
    "cpio": _cpio,
    "zipfile": _module_archive,
    "tarfile": _module_archive,
    "zip": _first_operand,
    "7z": _seven_zip,
    "7za": _seven_zip,
    "git": _git,
    "npm": _npm,
    "make": _make,
    "gmake": _make,
    "ssh-keygen": _ssh_keygen,
    "sqlite3": _sqlite,
    "split": _split,
    "gsplit": _split,
    "script": _script,
    "docker": _docker,
    "podman": _docker,
    "nerdctl": _docker,
    "dd": _dd,
    "patch": _patch,
    **dict.fromkeys(_COMPRESSORS, _compressor),
    **dict.fromkeys(_EDITORS, _editor),
}
