"""The clipboard: copy text out through the terminal, and take images in."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.core.files import PRIVATE_MODE, replace_file

# Terminals drop longer sequences.
MAX_COPY_BYTES = 74_000
_TIMEOUT_S = 3.0
_MAX_IMAGE_BYTES = 20_000_000
_PNG = b"\x89PNG\r\n\x1a\n"
_IMAGE_NAME = re.compile(r"\.(?:png|jpe?g|gif|webp)$", re.IGNORECASE)
# Programs that print the image in the clipboard as PNG: Wayland, X11, macOS.
IMAGE_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)


def osc52(text: str) -> str | None:
    """Return the escape sequence that asks a terminal to copy `text`; None where it would be too long."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_COPY_BYTES:
        return None
    return f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\x07"


def read_image(commands: Sequence[Sequence[str]] = IMAGE_COMMANDS) -> bytes | None:
    """Return the image in the clipboard as PNG; None where there is none, or no program that could read it."""
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.startswith(_PNG) and len(done.stdout) <= _MAX_IMAGE_BYTES:
            return done.stdout
    return None


def no_image_line(commands: Sequence[Sequence[str]] = IMAGE_COMMANDS) -> str:
    """Return the reason why `read_image` returned None."""
    if any(shutil.which(command[0]) for command in commands):
        return "There is no image in the clipboard."
    names = ", ".join(command[0] for command in commands)
    return f"An image in the clipboard is read by one of {names}; none is installed here. @path attaches an image file."


def store_image(data: bytes, folder: Path) -> Path:
    """Write a pasted image to a private file and return its path. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}.png"
    replace_file(folder / name, data, mode=PRIVATE_MODE)
    return folder / name


def dropped_image(pasted: str) -> Path | None:
    """Return the image whose path is all of a paste, as terminals type it for a dropped file; None for other text."""
    text = pasted.strip()
    if "\n" in text or len(text) > 4_096 or not _IMAGE_NAME.search(text.rstrip("'\"")):
        return None
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    path = Path(re.sub(r"\\(.)", r"\1", text))
    try:
        return path if path.is_absolute() and path.is_file() else None
    except (OSError, ValueError):
        return None


def as_mention(path: Path) -> str:
    """Return `@path` as one would type it."""
    text = str(path)
    return f'@"{text}" ' if re.search(r"\s", text) else f"@{text} "
