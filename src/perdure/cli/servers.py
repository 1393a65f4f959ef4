"""Model servers on this machine: the usual ports are asked, briefly and all at once, which models they serve."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_USUAL = (("Ollama", 11434), ("LM Studio", 1234), ("llama.cpp", 8080), ("vLLM", 8000))
_TIMEOUT_S = 0.6
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class LocalServer:
    name: str
    base_url: str
    models: tuple[str, ...]


def local_servers(ports: tuple[tuple[str, int], ...] = _USUAL) -> list[LocalServer]:
    """Those that answer as a model server does; takes no longer than the slowest answer."""
    with ThreadPoolExecutor(max_workers=len(ports)) as pool:
        return [found for found in pool.map(lambda named: _ask(*named), ports) if found is not None]


def _ask(name: str, port: int) -> LocalServer | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    # Loopback only, and past any proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base_url}/models", timeout=_TIMEOUT_S) as reply:
            told = json.loads(reply.read(_MAX_BYTES))
    except (OSError, ValueError, urllib.error.URLError):
        return None
    listed = told.get("data") if isinstance(told, dict) else None
    if not isinstance(listed, list):
        return None
    models = tuple(str(m["id"]) for m in listed if isinstance(m, dict) and m.get("id"))
    return LocalServer(name, base_url, models)
