"""Find models on this machine: servers on their usual loopback ports, and GGUF files on the disk.

Only loopback is queried, without any proxy, and each request and each folder has a timeout.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 0.6
_MAX_BYTES = 1_000_000
_SCAN_S = 0.5
_MAX_DEPTH = 5
_MAX_FILES = 50
# Smaller files are vocabularies and adapters.
_LEAST_BYTES = 5_000_000
# Later parts of a split model, and the image encoder that goes with one.
_NO_MODEL = re.compile(r"-(?!0*1-of-)\d+-of-\d+\.gguf$|mmproj", re.IGNORECASE)
# Where other programs put the files they download, below a home folder.
_FOLDERS = (
    ".cache/huggingface/hub",
    ".cache/lm-studio/models",
    ".lmstudio/models",
    ".cache/llama.cpp",
    "Library/Caches/llama.cpp",
    ".local/share/nomic.ai/GPT4All",
    "models",
    "Models",
)


@dataclass(frozen=True, slots=True)
class ServerPort:
    """The usual loopback port of a model server, and the provider name for it."""

    name: str
    port: int
    provider: str


USUAL_PORTS = (
    ServerPort("Ollama", 11434, "ollama"),
    ServerPort("LM Studio", 1234, "lmstudio"),
    ServerPort("llama.cpp", 8080, "llamacpp"),
    ServerPort("vLLM", 8000, "vllm"),
)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running model server on this machine, and the models it lists."""

    name: str
    provider: str
    base_url: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF model file on this machine, with its size."""

    path: Path
    size_bytes: int


def local_servers(ports: Sequence[ServerPort] = USUAL_PORTS) -> list[LocalServer]:
    """Query the usual ports at once and return the servers that answer with a model list."""
    with ThreadPoolExecutor(max_workers=max(1, len(ports))) as pool:
        return [server for server in pool.map(_ask, ports) if server is not None]


def _ask(usual: ServerPort) -> LocalServer | None:
    base_url = f"http://127.0.0.1:{usual.port}/v1"
    models = server_models(base_url)
    return LocalServer(usual.name, usual.provider, base_url, models) if models is not None else None


def server_models(base_url: str, *, timeout_s: float = _TIMEOUT_S) -> tuple[str, ...] | None:
    """Return the models that a server lists at `base_url`, queried without a key; None if there is no such server."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base_url.rstrip('/')}/models", timeout=timeout_s) as reply:
            body = json.loads(reply.read(_MAX_BYTES))
    except (OSError, ValueError, urllib.error.URLError):
        return None
    listed = body.get("data") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        return None
    return tuple(str(m["id"]) for m in listed if isinstance(m, dict) and m.get("id"))


def model_files(user_home: Path, perdure_home: Path, *, limit_s: float = _SCAN_S) -> list[ModelFile]:
    """Return GGUF files in the folders where they usually are, by name; the time limit may leave some out."""
    until_s = time.monotonic() + limit_s
    files: dict[Path, ModelFile] = {}
    folders = [perdure_home / "models", *(user_home / folder for folder in _FOLDERS)]
    for folder in folders:
        for path in _walk(folder, until_s, _MAX_DEPTH):
            try:
                size = path.stat().st_size
                real = path.resolve()
            except OSError:
                continue
            if size >= _LEAST_BYTES and real not in files:
                files[real] = ModelFile(path, size)
            if len(files) >= _MAX_FILES:
                return sorted(files.values(), key=lambda file: file.path.name.lower())
    return sorted(files.values(), key=lambda file: file.path.name.lower())


def _walk(folder: Path, until_s: float, depth: int) -> Iterator[Path]:
    """Yield files of models below a folder; linked folders are not followed, so that the walk ends."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if time.monotonic() > until_s:
            return
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
        except OSError:
            continue
        if is_folder and depth > 0:
            yield from _walk(Path(entry.path), until_s, depth - 1)
        elif entry.name.lower().endswith(".gguf") and not _NO_MODEL.search(entry.name):
            yield Path(entry.path)
