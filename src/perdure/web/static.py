"""Static files of the web UI: compressed once, cached by version, with a strict content security policy.

There is no build step, and nothing is loaded from another machine. A path that names no file is a view of the web UI,
so that deep links work.

The page addresses its modules and styles as `/assets/VERSION/…`, where the version is a hash of all of them: browsers
keep those without asking again. Modules import each other by relative paths, which stay within the version. The page
itself, and addresses without the current version, are revalidated by content.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
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
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
# For an address whose content cannot change: it has the version.
_CACHE_FOREVER = "public, max-age=31536000, immutable"
_VERSION_LENGTH = 16
_VERSIONED = re.compile(rf"/assets/([0-9a-f]{{{_VERSION_LENGTH}}})/")
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
        status = path.stat()
        return cls.from_bytes(path.read_bytes(), TYPES[path.suffix], (status.st_mtime_ns, status.st_size))

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, stamp: tuple[int, int]) -> _File:
        is_packed = len(data) >= _WORTH_PACKING and media_type.startswith(_PACKED_TYPES)
        packed = gzip.compress(data, 9, mtime=0) if is_packed else None
        return cls(stamp, media_type, data, packed, hashlib.sha256(data).hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class _Release:
    """The page and everything it may load, as of one time."""

    source: _File
    etags: dict[Path, str]
    version: str
    page: _File

    @classmethod
    def build(cls, source: _File, etags: dict[Path, str], *, folder: Path) -> _Release:
        """Name the version, and address the page's files by it."""
        lines = [f"{path.relative_to(folder)} {etag}" for path, etag in etags.items()]
        hashed = hashlib.sha256("\n".join(lines).encode())
        version = hashed.hexdigest()[:_VERSION_LENGTH]
        data = source.plain.replace(b'="/assets/', f'="/assets/{version}/'.encode())
        return cls(source, etags, version, _File.from_bytes(data, source.media_type, source.stamp))


class StaticFiles:
    """An ASGI app that serves the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._page = self._folder / "index.html"
        self._files: dict[Path, _File] = {}
        self._latest: _Release | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self.answer(Request(scope))
        await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("only GET", 405, {"Allow": "GET, HEAD", **HEADERS})
        name = str(request.scope["path"]).removeprefix(str(request.scope.get("root_path", "")))
        version = match[1] if (match := _VERSIONED.match(name)) else None
        path = self._path_of(_VERSIONED.sub("/assets/", name, count=1) if version else name)
        if path is None:
            return PlainTextResponse("no such file", 404, HEADERS)
        if path == self._page:
            return _response((await asyncio.to_thread(self._release)).page, request)
        file, is_final = await asyncio.to_thread(self._versioned_file, path, version)
        return _response(file, request, cache_control=_CACHE_FOREVER if is_final else "no-cache")

    def _path_of(self, name: str) -> Path | None:
        """Return the file of a path; a path without a file name is a view of the web UI."""
        requested = name.lstrip("/")
        if "\0" in requested:
            return None
        candidate = (self._folder / requested).resolve()
        if candidate.is_relative_to(self._folder) and candidate.suffix in TYPES and candidate.is_file():
            return candidate
        looks_like_file = "." in requested.rpartition("/")[2]
        return None if looks_like_file or not self._page.is_file() else self._page

    def _file(self, path: Path) -> _File:
        cached, now = self._files.get(path), path.stat()
        if cached is None or cached.stamp != (now.st_mtime_ns, now.st_size):
            cached = self._files[path] = _File.read(path)
        return cached

    def _release(self) -> _Release:
        """Return the page with the version of all files as they are now."""
        paths = sorted((self._folder / "assets").rglob("*"))
        etags = {path: self._file(path).etag for path in paths if path.suffix in TYPES and path.is_file()}
        source, latest = self._file(self._page), self._latest
        if latest is None or latest.source != source or latest.etags != etags:
            latest = self._latest = _Release.build(source, etags, folder=self._folder)
        return latest

    def _versioned_file(self, path: Path, version: str | None) -> tuple[_File, bool]:
        """Return a file, and whether it is what this version of its address will always mean."""
        file = self._file(path)
        if version is None:
            return file, False
        release = self._latest or self._release()
        return file, version == release.version and release.etags.get(path) == file.etag


def static_files(folder: Path | None = None) -> StaticFiles:
    """Return the app that serves the web UI's files."""
    return StaticFiles(folder or Path(__file__).parent / "static")


def _response(file: _File, request: Request, *, cache_control: str = "no-cache") -> Response:
    takes_gzip = file.packed is not None and "gzip" in request.headers.get("accept-encoding", "").lower()
    etag = f'"{file.etag}{"-gz" if takes_gzip else ""}"'
    headers = {**HEADERS, "Cache-Control": cache_control, "ETag": etag}
    cached = {t.strip().removeprefix("W/") for t in request.headers.get("if-none-match", "").split(",")}
    if etag in cached or "*" in cached:
        return Response(status_code=304, headers=headers)
    if takes_gzip:
        headers["Content-Encoding"] = "gzip"
    body = file.packed if takes_gzip and file.packed is not None else file.plain
    return Response(body, media_type=file.media_type, headers=headers)
