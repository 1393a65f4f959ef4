"""Convert between the protocol and Perdure: prompts to user messages, tool calls to what an editor shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError, text_block, tool_content, tool_diff_content
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    ContentToolCallContent,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    ImageContentBlock,
    PlanEntry,
    PlanEntryStatus,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
    ToolCallLocation,
    ToolKind,
)

from perdure.core.display import call_target, strip_controls
from perdure.core.errors import ToolError
from perdure.core.messages import ImagePart, Message, ToolCall
from perdure.tools.tool import Tool, ToolRegistry
from perdure.tools.workspace import Workspace

ContentBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
ToolContent = ContentToolCallContent | FileEditToolCallContent

MAX_RESOURCE_CHARS = 100_000
MAX_IMAGE_CHARS = 7_000_000  # 5 MB in base64
MAX_RESULT_CHARS = 20_000
# Larger files are shown in a diff without their earlier content.
MAX_DIFF_BYTES = 500_000
_TITLE_CHARS = 120

_KINDS: dict[str, ToolKind] = {
    "read_file": "read",
    "write_file": "edit",
    "patch": "edit",
    "search_files": "search",
    "session_search": "search",
    "terminal": "execute",
    "process": "execute",
    "web_extract": "fetch",
    "todo": "think",
    "memory": "think",
    "delegate_task": "think",
}
_PLAN_STATES: dict[str, PlanEntryStatus] = {"pending": "pending", "in_progress": "in_progress"}


# -- prompts -----------------------------------------------------------------------------------------------------------


def parse_prompt(blocks: Sequence[ContentBlock]) -> tuple[str, Mapping[str, Any]]:
    """Return the typed text, and the user message with attached files and images. Raises RequestError.

    A link stays where it was typed; the content of an attached file becomes a part of its own after the text.
    """
    text: list[str] = []
    parts: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                text.append(block.text)
            case ResourceContentBlock():
                text.append(f"[{block.name}]({_path_of(block.uri)})")
            case EmbeddedResourceContentBlock():
                text.append(f"[{Path(_path_of(block.resource.uri)).name}]({_path_of(block.resource.uri)})")
                parts.append(_resource_part(block.resource))
            case ImageContentBlock():
                parts.append(_image_part(block.data, block.mime_type))
            case AudioContentBlock():
                raise invalid("audio is not supported; send text, images, links or files")
    typed = "".join(text)
    if not typed.strip() and not parts:
        raise invalid("the prompt is empty")
    if not parts:
        return typed, {"role": "user", "content": typed}
    return typed, {"role": "user", "content": [{"type": "text", "text": typed}, *parts] if typed.strip() else parts}


def invalid(reason: str) -> RequestError:
    """Build the error for a request that the client must change; editors display `reason`."""
    return RequestError(-32602, reason)


def _path_of(uri: str) -> str:
    """Return the path of a `file:` URI, with its line range (`#L10-20`) if it has one; any other URI unchanged."""
    parsed = urlsplit(uri)
    if parsed.scheme != "file":
        return uri
    return f"{unquote(parsed.path)}#{parsed.fragment}" if parsed.fragment else unquote(parsed.path)


def _resource_part(resource: TextResourceContents | BlobResourceContents) -> dict[str, Any]:
    path = _path_of(resource.uri)
    if isinstance(resource, BlobResourceContents):
        if (resource.mime_type or "").startswith("image/"):
            return _image_part(resource.blob, resource.mime_type or "")
        return {"type": "text", "text": f"File {path}: not shown, it is no text and no image."}
    text, note = resource.text, ""
    if len(text) > MAX_RESOURCE_CHARS:
        note = f"\n[… only its first {MAX_RESOURCE_CHARS:,} characters are shown; the whole file is at {path}]"
    return {"type": "text", "text": f"File {path}:\n{text[:MAX_RESOURCE_CHARS]}{note}"}


def _image_part(data: str, mime_type: str) -> dict[str, Any]:
    if len(data) > MAX_IMAGE_CHARS:
        raise invalid(f"an image has {len(data) * 3 / 4e6:,.1f} MB; images of up to 5 MB can be attached")
    return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}


def message_blocks(message: Message) -> Iterator[TextContentBlock | ImageContentBlock]:
    """Yield the content of a stored message, text and images."""
    if message.text.strip():
        yield text_block(message.text)
    for part in message.parts:
        if isinstance(part, ImagePart) and part.url.startswith("data:") and ";base64," in part.url:
            head, _, data = part.url.removeprefix("data:").partition(";base64,")
            yield ImageContentBlock(type="image", mime_type=head, data=data)


# -- tool calls --------------------------------------------------------------------------------------------------------


class CallPresenter:
    """Converts tool calls to what an editor displays: kind, title, files and diffs.

    Paths are absolute, as ACP requires.
    """

    def __init__(self, tools: ToolRegistry, folder: Path) -> None:
        self._tools = tools
        self._workspace = Workspace(folder)

    def kind(self, call: ToolCall) -> ToolKind:
        if call.name in _KINDS:
            return _KINDS[call.name]
        tool = self._tool(call)
        if tool is None:
            return "other"
        if tool.command_parameter is not None:
            return "execute"
        if tool.written_path_parameter is not None:
            return "edit"
        return "read" if tool.read_path_parameter is not None else "other"

    def title(self, call: ToolCall) -> str:
        target = strip_controls(call_target(call, max_chars=_TITLE_CHARS))
        return target if target and call.name == "terminal" else f"{call.name} {target}".strip()

    def locations(self, call: ToolCall) -> list[ToolCallLocation]:
        path = self._path(call)
        if path is None:
            return []
        offset = (call.parsed_arguments() or {}).get("offset")
        is_line = call.name == "read_file" and isinstance(offset, int) and offset > 0
        return [ToolCallLocation(path=str(path), line=offset if is_line else None)]

    def diff(self, call: ToolCall, *, reads_file: bool) -> list[FileEditToolCallContent]:
        """Return the file change of a `write_file` or `patch` call; empty for other calls.

        With `reads_file`, the old content is read from disk, which is right only before the call runs.
        """
        path, arguments = self._path(call), call.parsed_arguments() or {}
        if path is None:
            return []
        match call.name, arguments:
            case "write_file", {"content": str(content)}:
                before = _read_text(path) if reads_file else None
                return [tool_diff_content(str(path), content, before)]
            case "patch", {"old": str(old), "new": str(new)}:
                return [tool_diff_content(str(path), new, old)]
            case _:
                return []

    def result(self, call: ToolCall, text: str, diff: Sequence[FileEditToolCallContent]) -> list[ToolContent]:
        """Return the content of a finished call: its diff where it is an edit that worked, else its text."""
        return list(diff) if diff else text_content(text, is_code=self.kind(call) == "execute")

    def _path(self, call: ToolCall) -> Path | None:
        tool = self._tool(call)
        parameter = (tool.written_path_parameter or tool.read_path_parameter) if tool is not None else None
        path = (call.parsed_arguments() or {}).get(parameter) if parameter is not None else None
        if not isinstance(path, str) or path.startswith("output:"):
            return None
        try:
            return self._workspace.resolve(path)
        except ToolError:
            return None

    def _tool(self, call: ToolCall) -> Tool | None:
        return self._tools.find(call.name) if call.name in self._tools else None


def text_content(text: str, *, is_code: bool = False) -> list[ToolContent]:
    """Return a text as tool content, bounded; output of a command in a code fence."""
    text = strip_controls(text)
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n[… {len(text) - MAX_RESULT_CHARS:,} more characters]"
    if not text.strip():
        return []
    return [tool_content(text_block(fence_text(text) if is_code else text))]


def fence_text(text: str) -> str:
    """Return the text in a Markdown code fence longer than any fence inside it."""
    longest = max((len(line) - len(line.lstrip("`")) for line in text.split("\n")), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def plan_entries(items: object) -> list[PlanEntry]:
    """Return the steps of a `todo` call; a cancelled step is left out."""
    steps = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    return [
        PlanEntry(content=str(s.get("text", "")), priority="medium", status=_PLAN_STATES.get(state, "completed"))
        for s in steps
        if (state := str(s.get("status", "pending"))) != "cancelled"
    ]


def _read_text(path: Path) -> str | None:
    """Return the content of a text file; None if it does not exist or is too large to show."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_DIFF_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
