"""Taint tracking: whether a command's output is a literal, or comes from a file, the network, a secret or a decoder.

Text that is written out (`echo`, `cat` of a here-document) is followed into a shell, a file or a database client.
Nothing else is computed: the output of any other program is a marker, and a shell that runs it is unreadable.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from perdure.tools.shell_safety.expand import SECRET_NAME
from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.parse import decode_escapes
from perdure.tools.shell_safety.types import (
    DECODED,
    DOWNLOADED,
    FILE,
    FRESH,
    PROGRAM,
    SECRET,
    SHELL_SETUP,
    TOO_LONG,
    UNKNOWN,
    Unreadable,
    has_taint,
    taints_of,
    word_set,
)

_MAX_PRINTED_CHARS = 200_000
_MAX_PATH_CHARS = 300
_DOWNLOADERS = word_set("curl wget fetch http https aria2c lynx w3m links lwp-request axel")
_FROM_NETWORK = _DOWNLOADERS | word_set("nc ncat netcat socat telnet openssl ssh ftp tftp gsutil dig")
_TRANSFORMS = word_set(
    "tr sed awk gawk perl cut rev tac python python3 ruby node php fold paste column expand unexpand"
)
_PASS_THROUGH = word_set("tee head tail sort uniq grep egrep rg pv sponge less more nl")
_DECODERS = word_set(
    "base64 gbase64 base32 basenc xxd uudecode openssl gpg gunzip zcat xzcat bzcat gzip xz bzip2 zstd zstdcat "
    "hexdump unxz bunzip2 uncompress lz4cat"
)
# Programs that print the content of files or of a database.
_PRINTS_FILES = word_set("tar bsdtar gtar zip 7z cpio pg_dump pg_dumpall mysqldump mongodump sqlite3 strings od")
# Programs that print shell code to be evaluated, by their first words.
_PRINTS_SETUP = re.compile(
    r"(?:ssh-agent|gpg-agent|keychain|direnv|brew shellenv|pyenv|rbenv|nodenv|jenv|goenv|fnm|nvm|mise|asdf|rtx|zoxide"
    r"|starship|oh-my-posh|poetry env|cs java|atuin|fzf|minikube|docker-machine|eksctl|dircolors|opam|luarocks|thefuck"
    r"|register-python-argcomplete|conda|mamba|micromamba|vagrant|lesspipe|resize|rustup|hub alias|\S+ completions?)\b"
)


def output_of(run: Invocation, files: Mapping[str, str]) -> str:
    """Return the predicted stdout, with taint markers for what is unknown."""
    if (special := _SPECIAL.get(run.name)) is not None:
        return special(run, files)
    stdin = run.stdin or ""
    if run.name in _DECODERS and _decodes(run):
        text = stdin or "".join(_file_text(p, run, files) for p in run.operands[:1])
        return DECODED + taints_of(text, DOWNLOADED + SECRET)
    prints_secret = any(run.zones.is_private(o) for o in run.operands if len(o) < _MAX_PATH_CHARS)
    if run.name in _FROM_NETWORK and (run.name != "openssl" or "s_client" in run.operands):
        return DOWNLOADED
    if run.name in _PASS_THROUGH:
        return stdin or FILE
    if run.name in _TRANSFORMS:
        # Text generated or changed by code is hidden from analysis.
        is_hidden = run.has("-c", "-e") or run.name in ("awk", "gawk")
        output = taints_of(stdin) + UNKNOWN + DECODED if stdin else PROGRAM + (DECODED if is_hidden else "")
        return output + (SECRET if prints_secret else "")
    if run.name in _PRINTS_FILES:
        return FILE + taints_of(stdin, SECRET)
    if _PRINTS_SETUP.match(" ".join((run.name, *run.args[:2]))):
        return SHELL_SETUP
    return PROGRAM + taints_of(stdin, SECRET + DOWNLOADED + FILE) + (SECRET if prints_secret else "")


def _echo(run: Invocation, files: Mapping[str, str]) -> str:
    at = 0
    while at < len(run.args) and re.fullmatch(r"-[neE]+", run.args[at]):
        at += 1
    options, text = "".join(run.args[:at]), " ".join(run.args[at:])
    return (decode_escapes(text) if "e" in options else text) + ("" if "n" in options else "\n")


def _printf(run: Invocation, files: Mapping[str, str]) -> str:
    """Return plain text as it is; an argument that is formatted counts as decoded."""
    args = run.args[1:] if run.args[:1] == ("--",) else run.args
    if args and not re.search(r"%|\\[^n]", args[0]):
        return args[0].replace("\\n", "\n")
    if args and re.fullmatch(r"(?:%s|\\n|\s)+", args[0]):
        return ("" if "\\" in args[0] else DECODED) + "\n".join(args[1:]) + "\n"
    return DECODED + "\n".join(args)


def _cat(run: Invocation, files: Mapping[str, str]) -> str:
    paths = [p for p in (*run.operands, *run.reads) if p != "-"]
    if not paths:
        return run.stdin or ""
    texts = [_file_text(p, run, files) for p in paths]
    if sum(map(len, texts)) > max(_MAX_PRINTED_CHARS, *map(len, files.values()), 0) * 2:
        raise Unreadable(TOO_LONG)
    return "".join(texts)


def _file_text(path: str, run: Invocation, files: Mapping[str, str]) -> str:
    text = files.get(path, files.get(run.classify(path).path))
    if text is not None:
        return text
    return SECRET if run.zones.is_private(path) else FILE


def _find(run: Invocation, files: Mapping[str, str]) -> str:
    return "".join(f"{p}\n" for p in paths_of_find(run))


def paths_of_find(run: Invocation) -> list[str]:
    """Return the paths that `find` would match, as patterns: every start folder with the last -name."""
    starts = []
    for a in run.args:
        if a.startswith(("-", "(", "!", "\\")):
            break
        starts.append(a)
    names = [run.args[i + 1] for i, a in enumerate(run.args[:-1]) if a in ("-name", "-iname", "-path", "-wholename")]
    pattern = posixpath.basename(names[-1].removesuffix("/*")) if names else "*"
    return [f"{s.rstrip('/') or '/'}/**/{pattern}" for s in (starts or ["."])]


def _process_ids(run: Invocation, files: Mapping[str, str]) -> str:
    """Return a marker with the names of the processes, so that a later `kill` can be matched to them."""
    names = [re.sub(r"[^\w.-]", "_", o[:60].strip("^$[]")) for o in run.operands[-3:]] or [""]
    return "".join(f"{PROGRAM}{name}\n" for name in names)


# Servers by the port that they usually listen on.
SERVER_PORTS = {
    "22": "sshd",
    "80": "nginx",
    "443": "nginx",
    "3306": "mysqld",
    "5432": "postgres",
    "6379": "redis-server",
    "27017": "mongod",
}


def _port_owners(run: Invocation, files: Mapping[str, str]) -> str:
    """Return a marker with the servers of the ports that `lsof -i :port` is asked for."""
    ports = (re.search(r":(\d{1,5})\Z", a) for a in run.args)
    names = [SERVER_PORTS.get(port[1], "") for port in ports if port is not None]
    return "".join(f"{PROGRAM}{name}\n" for name in names or [""])


def _environment(run: Invocation, files: Mapping[str, str]) -> str:
    return PROGRAM if run.operands and not any(SECRET_NAME.search(o) for o in run.operands) else SECRET


def _decodes(run: Invocation) -> bool:
    if run.name in ("base64", "gbase64", "base32", "basenc"):
        return run.has("-d", "-D", "--decode")
    if run.name in ("gzip", "xz", "bzip2", "zstd"):
        return run.has("-d", "--decompress")
    if run.name == "xxd":
        return any("r" in o for o in run.options)
    if run.name == "openssl":
        return "-d" in run.args
    return run.name != "gpg" or run.has("-d", "--decrypt")


def _curl(run: Invocation, files: Mapping[str, str]) -> str:
    return DOWNLOADED if run.value_of("-o", "--output") in (None, "-") and not run.has("-O", "--remote-name") else ""


def _wget(run: Invocation, files: Mapping[str, str]) -> str:
    is_printed = any(re.fullmatch(r"-\w*O-", a) or a == "--output-document=-" for a in run.args)
    return DOWNLOADED if is_printed or run.value_of("-O", "-qO", "--output-document") in ("-", "/dev/stdout") else ""


def _git(run: Invocation, files: Mapping[str, str]) -> str:
    return run.zones.workspace or PROGRAM if "--show-toplevel" in run.args else PROGRAM


def _dirname(run: Invocation, files: Mapping[str, str]) -> str:
    return "\n".join(posixpath.dirname(o) or "." for o in run.operands)


def is_computed(text: str) -> bool:
    """Whether the commands of a script, not only their arguments, are unknown."""
    removal = str.maketrans("", "", SHELL_SETUP)
    return not text.strip() or any(
        has_taint(line.strip()[:1].translate(removal)) for line in re.split(r"[\n;|&]", text)
    )


def downloaded_files(run: Invocation) -> tuple[str, ...]:
    """Return the file that a download is saved to, if there is one."""
    if run.name not in _DOWNLOADERS:
        return ()
    path = run.value_of(*(("-O", "--output-document") if run.name == "wget" else ("-o", "--output", "--out")))
    urls = [o for o in run.operands if re.search(r"[/.]", o)]
    saves = run.name != "curl" or run.has("-O", "--remote-name", "-J")
    if (path is None or (run.name == "curl" and run.has("-O"))) and urls and saves:
        path = posixpath.basename(urls[-1].split("?")[0])
    return (path,) if path and path != "-" else ()


_Output = Callable[[Invocation, Mapping[str, str]], str]
_SPECIAL: dict[str, _Output] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "bat": _cat,
    "find": _find,
    "git": _git,
    "dirname": _dirname,
    "fd": lambda run, files: UNKNOWN,
    "ls": lambda run, files: "\n".join(run.operands) if run.operands and not run.has("-l") else UNKNOWN,
    "env": _environment,
    "printenv": _environment,
    "pgrep": _process_ids,
    "pidof": _process_ids,
    "lsof": _port_owners,
    "mktemp": lambda run, files: FRESH,
    "pwd": lambda run, files: run.zones.folder or UNKNOWN,
    "curl": _curl,
    "wget": _wget,
    "seq": lambda run, files: "1",
    **dict.fromkeys(("which", "command", "type"), lambda run, files: "\n".join(run.operands[-1:]) + "\n"),
    **dict.fromkeys(("pass", "security", "history", "secret-tool", "gopass", "op"), lambda run, files: SECRET),
    **dict.fromkeys(("cd", "true", ":", "export", "set", "source", "."), lambda run, files: ""),
}
