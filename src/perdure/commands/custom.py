"""Slash commands that users define: Markdown files whose text is sent as a message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.config.project import project_folder
from perdure.prompt_injection import screen
from perdure.tools.credential_paths import CREDENTIAL_PATTERN

_NAME = re.compile(r"[a-z]+(?:-[a-z]+)*")
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_PLACEHOLDER = "$ARGUMENTS"
_MAX_CHARS = 50_000
_MAX_COMMANDS = 100
_SUMMARY_CHARS = 70


def user_commands(home: Path, folder: Path, reserved_names: Sequence[str]) -> tuple[list[Command], list[str]]:
    """Return the commands of the user's home and of the project that has `folder`, and warnings."""
    project = project_folder(folder, user_home=Path.home(), perdure_home=home)
    folders = [home / "commands", *([project / "commands"] if project is not None else [])]
    return read_commands(folders, reserved_names)


def read_commands(folders: Iterable[Path], reserved_names: Sequence[str]) -> tuple[list[Command], list[str]]:
    """Read commands from `*.md` files; of equal names the later folder's wins.

    Also returns a warning for each bad file.
    """
    commands: dict[str, Command] = {}
    warnings: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.md"))[:_MAX_COMMANDS]:
            command, problem = _read(path, reserved_names)
            if command is not None:
                commands[command.name] = command
            elif problem:
                warnings.append(f"{path} is no command: {problem}")
    return list(commands.values()), warnings


def _read(path: Path, reserved_names: Sequence[str]) -> tuple[Command | None, str]:
    name = path.stem.lower()
    if not _NAME.fullmatch(name):
        return None, "its name may have letters and hyphens only"
    if name in reserved_names:
        return None, f"/{name} is built in"
    if CREDENTIAL_PATTERN.search(path.resolve().as_posix()):
        return None, "it links to a file with credentials"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:_MAX_CHARS]
    except OSError as error:
        return None, f"it cannot be read ({error.strerror})"
    if finding := screen(text):
        return None, f'it {finding.why} ("{finding.excerpt}")'
    front = _FRONT_MATTER.match(text)
    body = text[front.end() :].strip() if front else text.strip()
    if not body:
        return None, "it is empty"
    return Command(name, f"/{name} [text]", _summary(front[1] if front else "", body), partial(_run, body, path)), ""


def _run(body: str, path: Path, surface: CommandContext, argument: str) -> CommandResult:
    """Return the message to send: the file's text with `$ARGUMENTS` replaced, or the argument appended."""
    if _PLACEHOLDER in body:
        message = body.replace(_PLACEHOLDER, argument)
    else:
        message = f"{body}\n\n{argument}" if argument else body
    return CommandResult(f"from {path}", then_send=message)


def _summary(front: str, body: str) -> str:
    lines = _lines(front)
    described = next((line.partition(":")[2] for line in lines if line.lower().startswith("description:")), "")
    text = described.strip().strip("\"'") or next(_lines(body), "").lstrip("# ")
    return text if len(text) <= _SUMMARY_CHARS else f"{text[: _SUMMARY_CHARS - 1]}…"


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())
