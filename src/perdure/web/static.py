"""Static files of the web UI: compressed once, revalidated by content, with a strict content security policy.

There is no build step, and nothing is loaded from another machine. A path that names no file is a view of the web UI,
so that deep links work.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

# Other types are not served: browsers can be misled about types they have to guess.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # File names do not change with their content, so browsers revalidate them.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
_PACKED_TYPES = ("text/", "application/", "image/svg")
# Smaller files do not compress.
_WORTH_PACKING = 512


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is sent; reloaded when its date or size changes."""

    stamp: tuple[int, int]
    media_type: str
    plain: bytes
    packed: bytes | None
    etag: str

    @classmethod
    def read(cls, path: Path) -> _File:
        cached = path.stat()
        data, media_type = path.read_bytes(), TYPES[path.suffix]
        is_packed = len(data) >= _WORTH_PACKING and media_type.startswith(_PACKED_TYPES)
        packed = gzip.compress(data, 9, mtime=0) if is_packed else None
        etag = hashlib.sha256(data).hexdigest()[:32]
        return cls((cached.st_mtime_ns, cached.st_size), media_type, data, packed, etag)


class StaticFiles:
    """An ASGI app that serves the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._files: dict[Path, _File] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self.answer(Request(scope))
        await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("only GET", 405, {"Allow": "GET, HEAD", **HEADERS})
        path = self._path_of(str(request.scope["path"]).removeprefix(str(request.scope.get("root_path", ""))))
        if path is None:
            return PlainTextResponse("no such file", 404, HEADERS)
        return _response(await asyncio.to_thread(self._file, path), request)

    def _path_of(self, name: str) -> Path | None:
        """Return the file of a path; a path without a file name is a view of the web UI."""
        requested = name.lstrip("/")
        if "\0" in requested:
            return None
        candidate = (self._folder / requested).resolve()
        if candidate.is_relative_to(self._folder) and candidate.suffix in TYPES and candidate.is_file():
            return candidate
        page = self._folder / "index.html"
        looks_like_file = "." in requested.rpartition("/")[2]
        return None if looks_like_file or not page.is_file() else page

    def _file(self, path: Path) -> _File:
        cached, now = self._files.get(path), path.stat()
        if cached is None or cached.stamp != (now.st_mtime_ns, now.st_size):
            cached = self._files[path] = _File.read(path)
        return cached


def static_files(folder: Path | None = None) -> StaticFiles:
    """Return the app that serves the web UI's files."""
    return StaticFiles(folder or Path(__file__).parent / "static")


def _response(file: _File, request: Request) -> Response:
    takes_gzip = file.packed is not None and "gzip" in request.headers.get("accept-encoding", "").lower()
    etag = f'"{file.etag}{"-gz" if takes_gzip else ""}"'
    headers = {**HEADERS, "ETag": etag}
    cached = {t.strip().removeprefix("W/") for t in request.headers.get("if-none-match", "").split(",")}
    if etag in cached or "*" in cached:
        return Response(status_code=304, headers=headers)
    if takes_gzip:
        headers["Content-Encoding"] = "gzip"
    body = file.packed if takes_gzip and file.packed is not None else file.plain
    return Response(body, media_type=file.media_type, headers=headers)
