"""What an MCP server answers, as the values the rest of Perdure knows: tools and replies."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.messages import ImagePart, clean
from perdure.screening import screen
from perdure.tools.tool import ToolReply

MAX_NAME_CHARS = 64
_MAX_DESCRIPTION_CHARS = 4_000
_MAX_IMAGES = 10


def offered_name(server: str, tool: str) -> str:
    """`server__tool`, in the letters a provider takes; a name that had to be changed keeps a mark of the old one."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    name = f"{server}__{plain}"
    if plain == tool and len(name) <= MAX_NAME_CHARS:
        return name
    mark = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{name[: MAX_NAME_CHARS - 7]}_{mark}"


def safe_description(server: str, text: str) -> str:
    """The description, held back where it tries to give the model orders: it goes out with every request."""
    if finding := screen(text):
        return f"A tool of the MCP server {server}. Its description was held back: it {finding.why}."
    return clean(text)[:_MAX_DESCRIPTION_CHARS] or f"A tool of the MCP server {server}."


def input_schema(schema: Any) -> dict[str, Any]:
    """The schema of a tool's arguments; anything that is none becomes "takes nothing"."""
    if isinstance(schema, Mapping) and schema.get("type", "object") == "object":
        return {"type": "object", "properties": {}, **schema}
    return {"type": "object", "properties": {}}


def as_reply(result: Any) -> ToolReply:
    """A CallToolResult as text with pictures behind it."""
    blocks = list(result.content or ())
    texts = [t for t in map(_text, blocks) if t]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    images = tuple(_images(blocks))
    left_out = f"\n[{len(images) - _MAX_IMAGES} more images left out]" if len(images) > _MAX_IMAGES else ""
    text = clean("\n".join(texts)) + left_out
    fallback = f"({len(images)} image{'s' * (len(images) != 1)})" if images else "(done, no output)"
    return ToolReply(text or fallback, is_error=bool(result.is_error), parts=images[:_MAX_IMAGES])


def _text(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "audio":
            return f"[audio, {block.mime_type}, not shown]"
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case "resource":
            inside = getattr(block.resource, "text", None)
            kind = getattr(block.resource, "mime_type", None) or "data"
            return str(inside) if inside is not None else f"[{kind} at {block.resource.uri}]"
        case _:
            return ""


def _images(blocks: list[Any]) -> Iterator[ImagePart]:
    for block in blocks:
        if block.type == "image":
            yield ImagePart(f"data:{block.mime_type};base64,{block.data}")
        elif block.type == "resource" and (getattr(block.resource, "mime_type", None) or "").startswith("image/"):
            blob = getattr(block.resource, "blob", None)
            if blob:
                yield ImagePart(f"data:{block.resource.mime_type};base64,{blob}")
