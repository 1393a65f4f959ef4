"""The embedded model's own process: `python -m perdure.providers.local_server MODEL --n-ctx N`.

It reads one line of settings from its standard input, loads the model, prints one line of JSON with its address, and
serves until that input closes. The pipe is what ties it to its parent: it closes however the parent ends, a kill
included. (A parent-death signal would follow the *thread* that started us, which may be long gone.)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

# A forked sibling may hold the other end of the pipe open; the parent's id tells the truth then.
_WATCH_S = 1.0


def serve(model: Path, *, n_ctx: int, api_key: str) -> Any:
    """A llama.cpp server on a free loopback port; it lives as long as the object returned."""
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {model.stem}
    params.n_ctx = n_ctx
    # One slot: the window is not shared out, and a conversation finds its own prefix again.
    params.n_parallel = 1
    # llama.cpp's threads wait for each other by spinning: one core stays free for everything else.
    params.cpuparams.n_threads = max(1, (os.cpu_count() or 2) - 1)
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # Any web page in a browser on this machine could otherwise talk to it.
    params.api_keys = [api_key]
    params.ui = False
    params.use_jinja = True
    return xllamacpp.Server(params)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="perdure.providers.local_server")
    parser.add_argument("model", type=Path)
    parser.add_argument("--n-ctx", type=int, default=8192)
    given = parser.parse_args(arguments)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # llama.cpp writes its log to standard output; only our one line belongs there.
    os.dup2(2, 1)
    api_key = str(json.loads(sys.stdin.readline() or "{}").get("api_key", ""))
    parent = os.getppid()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        server = serve(given.model, n_ctx=given.n_ctx, api_key=api_key)
        told = {"base_url": str(server.listening_address)}
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told), file=answer, flush=True)
    while "error" not in told and os.getppid() == parent:
        time.sleep(_WATCH_S)
    _leave()
    return 1


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    _leave()


def _leave() -> None:
    # At once: llama.cpp's threads would otherwise finish what nobody waits for.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
