"""What a program would print, as far as reading can tell: enough to follow text into a shell, a file or the network."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile

from perdure.tools.shell_safety.expand import SECRET_NAME
from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.limits import Unreadable
from perdure.tools.shell_safety.parse import decode_escapes
from perdure.tools.shell_safety.types import (
    DECODED,
    DOWNLOADED,
    FILE,
    FRESH,
    PROGRAM,
    SECRET,
    UNKNOWN,
    has_taint,
    taints_of,
)

_MAX_PRINTED_CHARS = 200_000
DOWNLOADERS = frozenset(
    {"curl", "wget", "fetch", "http", "https", "aria2c", "lynx", "w3m", "links", "lwp-request", "axel"}
)
_FROM_NETWORK = DOWNLOADERS | {
    "nc",
    "ncat",
    "netcat",
    "socat",
    "telnet",
    "openssl",
    "ssh",
    "ftp",
    "tftp",
    "gsutil",
    "dig",
}
_TRANSFORMS = frozenset(
    {
        "tr",
        "sed",
        "awk",
        "gawk",
        "perl",
        "cut",
        "rev",
        "tac",
        "python",
        "python3",
        "ruby",
        "node",
        "php",
        "fold",
        "paste",
    }
)
_PASS_THROUGH = frozenset(
    {"tee", "head", "tail", "sort", "uniq", "grep", "egrep", "rg", "pv", "sponge", "less", "more", "nl"}
)
_DECODERS = {
    "base64",
    "gbase64",
    "base32",
    "basenc",
    "xxd",
    "uudecode",
    "openssl",
    "gpg",
    "gunzip",
    "zcat",
    "xzcat",
    "bzcat",
    "gzip",
    "xz",
    "bzip2",
    "zstd",
    "zstdcat",
    "hexdump",
}


def output_of(run: Invocation, files: Mapping[str, str]) -> str:
    """The text on its standard output, marks for what cannot be known."""
    special = _SPECIAL.get(run.name)
    if special is not None:
        return special(run, files)
    stdin = run.stdin or ""
    if run.name in _DECODERS and _decodes(run):
        return _decode(run, files)
    if run.name in _FROM_NETWORK:
        return DOWNLOADED
    if run.name in _PASS_THROUGH:
        return stdin or FILE
    if run.name in _TRANSFORMS:
        if run.name == "rev" and stdin and not has_taint(stdin):
            return "\n".join(line[::-1] for line in stdin.split("\n")) + DECODED
        if not stdin:
            # Text that inline code makes up is not written out anywhere.
            return PROGRAM + (DECODED if run.has("-c", "-e") or run.name in ("awk", "gawk") else "")
        return taints_of(stdin) + UNKNOWN + ("" if has_taint(stdin) else DECODED)
    return PROGRAM + taints_of(stdin, SECRET + DOWNLOADED)


def _echo(run: Invocation, files: Mapping[str, str]) -> str:
    words = list(takewhile(lambda a: re.fullmatch(r"-[neE]+", a), run.args))
    options = "".join(words)
    text = " ".join(run.args[len(words) :])
    return (decode_escapes(text) if "e" in options else text) + ("" if "n" in options else "\n")


def _printf(run: Invocation, files: Mapping[str, str]) -> str:
    if not run.args:
        return ""
    if run.args[0] == "--":
        return _printf(Invocation(run.name, run.args[1:], run.zones), files)
    shape, values = decode_escapes(run.args[0]), deque(run.args[1:])

    def fill(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        value = values.popleft() if values else ""
        return decode_escapes(value) if match.group().endswith("b") else value

    out: list[str] = []
    for _ in range(64):
        before = len(values)
        out.append(re.sub(r"%[-+ #0-9.*]{0,20}[a-zA-Z]|%%", fill, shape))
        if not values or len(values) == before:
            break
        if sum(map(len, out)) > _MAX_PRINTED_CHARS:
            raise Unreadable
    return "".join(out)


def _cat(run: Invocation, files: Mapping[str, str]) -> str:
    paths = [p for p in (*run.operands, *run.reads) if p != "-"]
    if not paths:
        return run.stdin or ""
    texts = [_file_text(p, run, files) for p in paths]
    if sum(map(len, texts)) > max(_MAX_PRINTED_CHARS, *map(len, files.values()), 0) * 2:
        raise Unreadable
    return "".join(texts)


def _file_text(path: str, run: Invocation, files: Mapping[str, str]) -> str:
    if path in files:
        return files[path]
    text = files.get(run.classify(path).path)
    if text is not None:
        return text
    return SECRET if run.zones.is_private(path) else FILE


def _find(run: Invocation, files: Mapping[str, str]) -> str:
    return "".join(f"{p}\n" for p in paths_of_find(run))


def paths_of_find(run: Invocation) -> list[str]:
    """What `find` would come across, as patterns: every start with its last -name."""
    starts = []
    for a in run.args:
        if a.startswith(("-", "(", "!", "\\")):
            break
        starts.append(a)
    names = [run.args[i + 1] for i, a in enumerate(run.args[:-1]) if a in ("-name", "-iname", "-path", "-wholename")]
    pattern = posixpath.basename(names[-1].removesuffix("/*")) if names else "*"
    return [f"{s.rstrip('/') or '/'}/**/{pattern}" for s in (starts or ["."])]


def _which(run: Invocation, files: Mapping[str, str]) -> str:
    return "\n".join(run.operands[-1:]) + "\n"


def _environment(run: Invocation, files: Mapping[str, str]) -> str:
    if run.operands and not any(SECRET_NAME.search(o) for o in run.operands):
        return PROGRAM
    return SECRET


def _ls(run: Invocation, files: Mapping[str, str]) -> str:
    return "\n".join(run.operands) if run.operands and not run.has("-l") else UNKNOWN


def _decodes(run: Invocation) -> bool:
    if run.name in ("base64", "gbase64", "base32", "basenc"):
        return run.has("-d", "-D", "--decode")
    if run.name in ("gzip", "xz", "bzip2", "zstd"):
        return run.has("-d", "--decompress", "-c")
    if run.name == "xxd":
        return run.has("-r") or any("r" in o for o in run.options)
    if run.name == "openssl":
        return "-d" in run.args
    if run.name == "gpg":
        return run.has("-d", "--decrypt")
    return True


def _decode(run: Invocation, files: Mapping[str, str]) -> str:
    text = run.stdin or "".join(_file_text(p, run, files) for p in run.operands[:1])
    taints = taints_of(text, DOWNLOADED + SECRET)
    if has_taint(text):
        return DECODED + taints
    try:
        if run.name == "xxd":
            raw = bytes.fromhex(re.sub(r"[^0-9a-fA-F]", "", text))
        elif run.name == "base32":
            raw = base64.b32decode(text.strip())
        else:
            raw = base64.b64decode(text.strip())
    except (ValueError, binascii.Error):
        return DECODED
    return raw.decode("utf-8", "replace") + DECODED


def _curl(run: Invocation, files: Mapping[str, str]) -> str:
    return DOWNLOADED if not run.has("-o", "-O", "--output", "--remote-name") else ""


def _wget(run: Invocation, files: Mapping[str, str]) -> str:
    is_printed = any(re.fullmatch(r"-\w*O-", a) or a == "--output-document=-" for a in run.args)
    return DOWNLOADED if is_printed or run.value_of("-O", "-qO", "--output-document") in ("-", "/dev/stdout") else ""


def _nothing(run: Invocation, files: Mapping[str, str]) -> str:
    return ""


def _fresh(run: Invocation, files: Mapping[str, str]) -> str:
    return FRESH


def _folder(run: Invocation, files: Mapping[str, str]) -> str:
    return run.zones.folder or UNKNOWN


def _secret(run: Invocation, files: Mapping[str, str]) -> str:
    return SECRET


def _seq(run: Invocation, files: Mapping[str, str]) -> str:
    return "1"


_SPECIAL: dict[str, Callable[[Invocation, Mapping[str, str]], str]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "bat": _cat,
    "find": _find,
    "fd": lambda run, files: UNKNOWN,
    "ls": _ls,
    "which": _which,
    "command": _which,
    "type": _which,
    "env": _environment,
    "printenv": _environment,
    "mktemp": _fresh,
    "pwd": _folder,
    "curl": _curl,
    "wget": _wget,
    "pass": _secret,
    "security": _secret,
    "history": _secret,
    "seq": _seq,
    "cd": _nothing,
    "true": _nothing,
    ":": _nothing,
}
