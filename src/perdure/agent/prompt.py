"""The system prompt: assembled once per session from parts that do not change while it lives, then only repeated.

Identity, memory, skills, context files, platform notes, in this order. The same sources give the same bytes. What a
compaction adds (a short note) is a block of its own after the cached part, never a change to it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from perdure.core.ports import MemorySnapshot
from perdure.prompt_injection import screen
from perdure.tools.credential_paths import CREDENTIAL_PATTERN

# Read in this order; the first two are equivalents for different tools, so only one is used.
CONTEXT_FILES = (("AGENTS.md", "CLAUDE.md"), (".cursorrules",))
CONTEXT_FILE_CHARS = 20_000
SKILL_LINE_CHARS = 200
_MEMORY_TITLES = ("What you know about the user (USER.md)", "What you noted to remember (MEMORY.md)")
_SKILLS_TITLE = "Skills: read the file before you use one"
_PLATFORM_TITLE = "Where you run"
# The value of a YAML key that goes on in the lines below it.
_BLOCK_MARK = re.compile(r"[|>][+-]?|")
# How the parts after the memory begin.
_LATER = (f"# {_SKILLS_TITLE}\n", "# From ", f"# {_PLATFORM_TITLE}\n")


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A context file of the working folder or of one above it; `left_out` gives the reason if its text is omitted."""

    name: str
    text: str = ""
    left_out: str = ""

    @property
    def title(self) -> str:
        return f"From {self.name}" if "/" in self.name else f"From {self.name} in the working folder"


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill the model can read when it needs it; the prompt has only its name, path and a line about it."""

    name: str
    path: str
    about: str


@dataclass(frozen=True, slots=True)
class PromptSources:
    """Sources of a system prompt, read once: identity, memory, skills, context files and platform notes."""

    identity: str
    memory: MemorySnapshot = field(default_factory=lambda: MemorySnapshot("", ""))
    skills: Sequence[Skill] = ()
    context_files: Sequence[ContextFile] = ()
    platform_notes: str = ""


def assemble(sources: PromptSources) -> str:
    """Build the system prompt from its sources; empty sources add nothing."""
    parts = [
        sources.identity.strip(),
        *_memory_blocks(sources.memory).values(),
        _add_title(_SKILLS_TITLE, "\n".join(_skill_line(s) for s in sources.skills)),
        *(_add_title(f.title, _render_file(f)) for f in sources.context_files),
        _add_title(_PLATFORM_TITLE, sources.platform_notes.strip()),
    ]
    return "\n\n".join(p for p in parts if p)


def refresh_prompt(prompt: str, memory: MemorySnapshot, read_sources: Callable[[MemorySnapshot], PromptSources]) -> str:
    """Return the system prompt for a continuation session: rebuilt if memory has changed, else the same bytes.

    A prompt that the caller supplied is never rebuilt. The sources, which are files, are read only to rebuild.
    """
    if not memory.is_known or _shows_memory(prompt, memory):
        return prompt
    sources = read_sources(memory)
    # A prompt that does not start with our identity was supplied by the caller and is used unchanged.
    is_ours = bool(sources.identity.strip()) and prompt.startswith(sources.identity.strip())
    return assemble(sources) if is_ours else prompt


def read_context_files(
    folder: Path, max_chars: int = CONTEXT_FILE_CHARS, *, above: Sequence[Path] = ()
) -> list[ContextFile]:
    """Read the context files of a folder and of those above it, outermost first, screened for prompt injection.

    Long files are cut. A file that cannot be read has the reason in `left_out`.
    """
    files = []
    for location in dict.fromkeys((*above, folder)):
        for names in CONTEXT_FILES:
            path = next((p for n in names if (p := location / n).is_file()), None)
            if path is not None:
                files.append(_read(path, max_chars, name=path.name if location == folder else str(path)))
    return files


def read_skills(folder: Path) -> list[Skill]:
    """List every `<name>/SKILL.md` below a folder with its first descriptive line."""
    skills = []
    for path in sorted(folder.glob("*/SKILL.md")):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        about = _skill_summary(text)
        if screen(about) is None:
            skills.append(Skill(path.parent.name, str(path), about[:SKILL_LINE_CHARS]))
    return skills


def platform_notes(cwd: Path, surface: str) -> str:
    """Describe machine, working folder and surface for the model.

    Nothing in it changes within a session, as the time would: the prompt must stay the same.
    """
    return f"System: {platform.system()}. Working folder: {cwd}. {surface_note(surface)}"


# Surfaces on which no user is present.
_SURFACE_NOTES = {
    "schedule": "A schedule started this conversation, and no user is present: ask no questions, work with what is"
    " allowed, and finish with a report of what you did and what was refused.",
}


def surface_note(surface: str) -> str:
    """Describe how the user talks to the model: terminal, chat platform, web UI."""
    return _SURFACE_NOTES.get(surface, f"The user talks to you through: {surface}.")


def memory_part(prompt: str) -> str:
    """Return the memory section of a system prompt built here, titles included; "" if it has none."""
    pieces = [f"# {piece}" for piece in f"\n\n{prompt}".split("\n\n# ")[1:]]
    titles = tuple(f"# {title}\n" for title in _MEMORY_TITLES)
    begins = [i for i, piece in enumerate(pieces) if f"{piece}\n".startswith(titles)]
    if not begins:
        return ""
    # A heading inside the memory's own text does not end it; the next part of the prompt does.
    ends = next((i for i in range(begins[-1], len(pieces)) if pieces[i].startswith(_LATER)), len(pieces))
    return "\n\n".join(pieces[begins[0] : ends])


def _memory_blocks(memory: MemorySnapshot) -> dict[str, str]:
    """Return the memory sections of the prompt by title; "" for an empty one."""
    texts = (("USER.md", memory.user), ("MEMORY.md", memory.memory))
    return {
        title: _add_title(title, _screen_text(name, text)) if text else ""
        for title, (name, text) in zip(_MEMORY_TITLES, texts, strict=True)
    }


def _shows_memory(prompt: str, memory: MemorySnapshot) -> bool:
    """Whether the prompt has the memory as it is now: each section whole, and none that has become empty."""
    parts = f"\n\n{prompt}\n\n# "
    return all(
        f"\n\n{block}\n\n# " in parts if block else f"\n\n# {title}\n\n" not in parts
        for title, block in _memory_blocks(memory).items()
    )


def _read(path: Path, max_chars: int, *, name: str) -> ContextFile:
    if CREDENTIAL_PATTERN.search(path.resolve().as_posix()):
        return ContextFile(name, left_out="it links to a file with credentials")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return ContextFile(name, left_out=f"it could not be read: {error.strerror}")
    if finding := screen(text):
        return ContextFile(name, left_out=f'it {finding.why} ("{finding.excerpt}")')
    if len(text) > max_chars:
        head = text[:max_chars].rsplit("\n", 1)[0]
        text = f"{head}\n[{len(text) - len(head):,} more characters: read {name} for the rest]"
    return ContextFile(name, text)


def _render_file(file: ContextFile) -> str:
    return file.text.strip() if not file.left_out else f"[{file.name} was left out: {file.left_out}]"


def _screen_text(name: str, text: str) -> str:
    finding = screen(text)
    return text.strip() if finding is None else f'[{name} was left out: it {finding.why} ("{finding.excerpt}")]'


def _add_title(title: str, text: str) -> str:
    return f"# {title}\n\n{text}" if text else ""


def _skill_line(skill: Skill) -> str:
    return f"- {skill.name}: {skill.about} ({skill.path})"


def _skill_summary(text: str) -> str:
    """Return the `description` of a skill's front matter, else its first line that is not a heading."""
    lines = text.splitlines()
    has_front_matter = bool(lines) and lines[0].rstrip() == "---"
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == "---"), 0) if has_front_matter else 0
    for number, line in enumerate(lines[1:end], 1):
        name, _, value = line.partition(":")
        if name.strip().lower() == "description":
            value = value.strip()
            # A block or a folded value goes on in indented lines.
            rest = takewhile(lambda x: x[:1] in ("", " ", "\t"), lines[number + 1 : end])
            described = " ".join([*([] if _BLOCK_MARK.fullmatch(value) else [value]), *" ".join(rest).split()])
            return described.strip("\"' ")
    plain = (line.strip() for line in lines[end + 1 if end else 0 :])
    return next((line for line in plain if line and not line.startswith(("#", "---"))), "")
