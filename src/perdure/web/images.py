"""Images of a message, as the page may show them: pictures sent inline, and nothing fetched from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

from perdure.core.messages import ImagePart, Message, OtherPart, Part
from perdure.web.shapes import ImageRow

# A page of screenshots must not weigh hundreds of megabytes: what is beyond this is named, not carried.
_PAGE_CHARS = 12_000_000
# Pictures only: whatever else calls itself an image is not shown as one.
_PICTURE = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=\s]*\Z")


class ImageRoom:
    """What is left for images on one page."""

    def __init__(self, chars: int = _PAGE_CHARS) -> None:
        self._chars = chars

    def takes(self, url: str) -> bool:
        if len(url) > self._chars:
            return False
        self._chars -= len(url)
        return True


def image_rows(message: Message, room: ImageRoom) -> list[ImageRow]:
    """Every image of a message, in its order."""
    if isinstance(message.content, str):
        return []
    return [_row(url, room) for part in message.parts if (url := _url_of(part)) is not None]


def _row(url: str, room: ImageRoom) -> ImageRow:
    is_inline = url.startswith("data:")
    source = f"an image of {max(1, len(url) * 3 // 4 // 1024):,} KB" if is_inline else url
    is_shown = _PICTURE.match(url) is not None and room.takes(url)
    return ImageRow(data_url=url if is_shown else None, source=source)


def _url_of(part: Part) -> str | None:
    """Where an image is, in whichever of the services' shapes it was sent."""
    if isinstance(part, ImagePart):
        return part.url
    if not isinstance(part, OtherPart):
        return None
    raw = part.raw
    if raw.get("type") == "input_image" and isinstance(raw.get("image_url"), str):
        return str(raw["image_url"])
    source = raw.get("source")
    if raw.get("type") == "image" and isinstance(source, Mapping):
        if isinstance(source.get("url"), str):
            return str(source["url"])
        return f"data:{source.get('media_type', '')};base64,{source.get('data', '')}"
    return None
