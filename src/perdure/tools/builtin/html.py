"""Extract readable text from HTML: title, headings, links, lists, code and tables; no menus, scripts or hidden parts.

Pages are untrusted, so this runs in a separate process (see `isolated`; standard library only), parses in linear time,
and returns what it has at a deadline; `html.parser` is quadratic in unclosed tags and comments. Markup is parsed as
browsers do: an unclosed tag, comment or script extends to the end of the page, and a link ends where the next begins.
"""

from __future__ import annotations

import html
import json
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import urljoin

_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "nav", "footer", "aside", "form", "button", "select",
     "canvas", "object", "dialog", "math"}
)  # fmt: skip
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "header", "ul", "ol", "dl", "dt", "dd", "table", "tr", "blockquote",
     "figure", "figcaption", "hr", "address", "details", "summary", "fieldset"}
)  # fmt: skip
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# Elements whose content is raw text up to their end tag.
_RAW = frozenset({"script", "style", "iframe", "noembed", "noframes", "xmp", "textarea"})
# Hidden elements of these types are skipped; others are often unclosed, and would hide the rest of the page.
_HIDEABLE = frozenset({"div", "span", "section", "article", "ul", "ol", "table", "details"})
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?!\.)", re.I)
_STYLE_CHARS = 1_000
_MAX_ATTRIBUTES = 200
# If the main element has this much text, the rest of the page is dropped.
_MAIN_CHARS = 200
_MAX_LINK_CHARS = 4_096
_MAX_TEXT_CHARS = 5_000_000
_MAX_MEMORY_BYTES = 1 << 30
_STEPS_PER_DEADLINE_CHECK = 1_000

_TAG_NAME = re.compile(r"[^\s/>]++")
# Whitespace, an attribute name, and the start of its value: quoted, bare, or none.
_ATTRIBUTE = re.compile(r"[\s/]*+([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:([\"'])|([^\s>]*+)))?+")
# Of several in a row only the last can start a tag.
_OPEN_RUN = re.compile(r"<+(?=<)")
_TAG_END = re.compile(r"[\s/]*+>")
_ATTRIBUTE_NAMES = frozenset({"href", "alt", "style", "hidden", "aria-hidden"})
_SPACES = re.compile(r"\s+")
_BLANKS = re.compile(r"[ \t]+")
_BLANK_LINES = re.compile(r"\n{3,}")
# Out of the Unicode range, and too long for `html.unescape`.
_ENDLESS_REFERENCE = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{8,});?")
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]+)", re.I)

# Encodings of the web by their labels. Python has other codecs that are not character sets (zip), are quadratic
# (punycode), or always fail (undefined).
_CHARSETS = {
    name: codec
    for codec, names in {
        "utf-8": "utf-8 utf8 unicode-1-1-utf-8",
        "utf-16": "utf-16 utf16 unicode ucs-2",
        "utf-16-le": "utf-16le",
        "utf-16-be": "utf-16be",
        # Browsers treat Latin-1 and ASCII as Windows-1252.
        "cp1252": "windows-1252 cp1252 x-cp1252 iso-8859-1 iso8859-1 iso88591 latin1 latin-1 l1 ascii us-ascii",
        **{f"iso8859-{n}": f"iso-8859-{n} iso8859-{n} iso8859{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
        "cp1254": "windows-1254 cp1254 iso-8859-9 iso8859-9 latin5",
        **{f"cp{n}": f"windows-{n} cp{n} x-cp{n}" for n in (1250, 1251, 1253, 1255, 1256, 1257, 1258)},
        "cp874": "windows-874 cp874 tis-620 iso-8859-11",
        "cp866": "ibm866 cp866 866",
        "koi8-r": "koi8-r koi8 koi8r",
        "koi8-u": "koi8-u koi8-ru",
        "mac-roman": "macintosh mac x-mac-roman",
        "mac-cyrillic": "x-mac-cyrillic",
        "gb18030": "gb18030 gbk gb2312 x-gbk chinese gb-2312 cp936",
        "big5hkscs": "big5 big5-hkscs cn-big5 x-x-big5",
        "euc-jp": "euc-jp x-euc-jp eucjp",
        "iso2022-jp": "iso-2022-jp csiso2022jp",
        "cp932": "shift-jis shift_jis sjis x-sjis windows-31j ms932 cp932",
        "cp949": "euc-kr euckr korean ks_c_5601-1987 windows-949 cp949",
    }.items()
    for name in names.split()
}


class _TextBuffer:
    """A text buffer of prose, whose whitespace is normalized, and code, which is kept verbatim."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._open: list[str] = []
        self.chars = 0

    def write(self, text: str) -> None:
        self._open.append(text)
        self.chars += len(text)

    def close_part(self, *, is_code: bool) -> None:
        """End the current part: everything written since the last one."""
        text = "".join(self._open)
        self._open.clear()
        self._done.append(text if is_code else _collapse_whitespace(text))

    def finish(self, *, is_code: bool) -> str:
        self.close_part(is_code=is_code)
        return _BLANK_LINES.sub("\n\n", "".join(self._done)).strip()


class HtmlTextExtractor:
    """Parse a page with `feed`; then get its `text()`."""

    def __init__(self, base_url: str = "", *, is_expired: Callable[[], bool] = lambda: False) -> None:
        self._base = base_url
        self._has_base = False
        self._is_expired = is_expired
        self.is_truncated = False
        self._title: list[str] = []
        self._out = _TextBuffer()
        self._main = _TextBuffer()
        self._skip: list[str] = []
        # Target of the open link, and its label so far.
        self._link: str | None = None
        self._label: list[str] = []
        self._in_title = False
        self._main_depth = 0
        self._pre_depth = 0
        self._cells = 0

    def text(self) -> str:
        """Return the readable text; empty if the page has none."""
        is_code = self._pre_depth > 0
        main = self._main.finish(is_code=is_code)
        body = main if len(main) >= _MAIN_CHARS else self._out.finish(is_code=is_code)
        title = " ".join("".join(self._title).split())
        return f"# {title}\n\n{body}" if title and not body.startswith(f"# {title}") else body

    def feed(self, page: str) -> None:
        """Parse a whole page."""
        at = steps = 0
        while (tag := page.find("<", at)) >= 0:
            if tag > at:
                self._read_data(page[at:tag])
            at = self._read_markup(page, tag)
            steps += 1
            if steps % _STEPS_PER_DEADLINE_CHECK == 0 and (self._is_expired() or self._out.chars > _MAX_TEXT_CHARS):
                self.is_truncated = True
                return
        self._read_data(page[at:])
        self._close_link()

    def _read_markup(self, page: str, tag: int) -> int:
        """Parse the markup that starts with the `<` at `tag`; return the position after it."""
        first = page[tag + 1 : tag + 2]
        if first.isascii() and first.isalpha():
            return self._read_start_tag(page, tag)
        if first == "/":
            if page[tag + 2 : tag + 3].isalpha():
                name = _TAG_NAME.match(page, tag + 2)
                self._end(name.group().lower() if name is not None else "")
            return _position_after(page, ">", tag + 2)
        if page.startswith("<!--", tag):
            # In the two shortest comments, start and end overlap.
            empty = next((e for e in ("<!-->", "<!--->") if page.startswith(e, tag)), None)
            return tag + len(empty) if empty else _position_after(page, "-->", tag + 4)
        if first in ("!", "?"):
            return _position_after(page, "]]>" if page.startswith("<![CDATA[", tag) else ">", tag + 2)
        run = _OPEN_RUN.match(page, tag)
        end = run.end() if run else tag + 1
        self._read_data(page[tag:end])
        return end

    def _read_start_tag(self, page: str, tag: int) -> int:
        match = _TAG_NAME.match(page, tag + 1)
        assert match is not None
        name, at = match.group().lower(), match.end()
        attributes: dict[str, str] = {}
        count = 0
        while (end := _TAG_END.match(page, at)) is None:
            attribute = _ATTRIBUTE.match(page, at) if count < _MAX_ATTRIBUTES else None
            if attribute is None:
                return _position_after(page, ">", at)
            count += 1
            at = attribute.end()
            key, quote, value = attribute.groups()
            if quote:
                close = page.find(quote, at)
                if close < 0:
                    return len(page)
                value, at = page[at:close], close + 1
            if len(key) <= 12 and (key := key.lower()) in _ATTRIBUTE_NAMES and key not in attributes:
                attributes[key] = value or ""
        self._start(name, attributes)
        return _raw_end(page, name, end.end()) if name in _RAW else end.end()

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skip:
            if tag == self._skip[-1] and tag not in _RAW:
                self._skip.append(tag)
            return
        if tag in _SKIPPED or (tag in _HIDEABLE and _is_hidden(attributes)):
            if tag not in _RAW:
                self._skip.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag == "base":
            if "href" in attributes and not self._has_base and len(attributes["href"]) <= _MAX_LINK_CHARS:
                self._has_base = True
                self._base = _resolve_url(self._base, _unescape(attributes["href"]))
        else:
            self._open(tag, attributes)

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        self._main_depth += tag in ("main", "article")
        if tag in _HEADINGS:
            self._write(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "a":
            self._close_link()
            self._link = attributes.get("href", "")
        elif tag == "li":
            self._write("\n- ")
        elif tag == "br":
            self._write("\n")
        elif tag == "pre":
            self._write("\n\n")
            self._end_part(is_code=self._pre_depth > 0)
            self._pre_depth += 1
            self._write("```\n")
        elif tag == "code" and not self._pre_depth:
            self._write("`")
        elif tag in ("td", "th"):
            self._write(" | " if self._cells else "")
            self._cells += 1
        elif tag == "img" and (alt := _unescape(attributes.get("alt", "")).strip()):
            self._write(f"[image: {alt}]")
        elif tag in _BLOCKS:
            self._cells = 0
            self._write("\n" if tag in ("tr", "dt", "dd") else "\n\n")

    def _end(self, tag: str) -> None:
        if self._skip:
            if tag == self._skip[-1]:
                self._skip.pop()
            return
        if tag == "title":
            self._in_title = False
        elif tag == "a":
            self._close_link()
        elif tag == "pre" and self._pre_depth:
            self._pre_depth -= 1
            self._write("\n```")
            self._end_part(is_code=True)
            self._write("\n\n")
        elif tag == "code" and not self._pre_depth:
            self._write("`")
        elif tag in _HEADINGS or tag in ("p", "ul", "ol", "table", "blockquote"):
            self._write("\n\n")
        if tag in ("main", "article") and self._main_depth:
            self._main_depth -= 1

    def _close_link(self) -> None:
        href, self._link = self._link, None
        label = " ".join("".join(self._label).split())
        self._label.clear()
        if not label or not href or len(href) > _MAX_LINK_CHARS:
            return
        href = _unescape(href).strip()
        target = _resolve_url(self._base, href) if href and not href.startswith("#") else ""
        if target.startswith(("http://", "https://")) and target != label and len(target) <= _MAX_LINK_CHARS:
            self._write(f" <{target}>")

    def _read_data(self, data: str) -> None:
        if not data or self._skip:
            return
        data = _unescape(data)
        if self._in_title:
            self._title.append(data)
        else:
            self._write(data if self._pre_depth else _SPACES.sub(" ", data))

    def _write(self, text: str) -> None:
        self._out.write(text)
        if self._main_depth:
            self._main.write(text)
        if self._link is not None:
            self._label.append(text)

    def _end_part(self, *, is_code: bool) -> None:
        self._out.close_part(is_code=is_code)
        self._main.close_part(is_code=is_code)


def html_to_text(page: str, base_url: str = "") -> str:
    """Return the readable text of a page."""
    reader = HtmlTextExtractor(base_url)
    reader.feed(page)
    return reader.text()


def _position_after(page: str, mark: str, at: int) -> int:
    """Return the position after the next `mark`, or the end of the page."""
    match = page.find(mark, at)
    return match + len(mark) if match >= 0 else len(page)


def _raw_end(page: str, tag: str, at: int) -> int:
    """Return the position after the end tag of a raw-text element."""
    match = re.compile(rf"</{tag}(?=[\s/>])", re.I).search(page, at)
    return _position_after(page, ">", match.end()) if match else len(page)


def _unescape(text: str) -> str:
    if "&" not in text:
        return text
    return html.unescape(_ENDLESS_REFERENCE.sub("\ufffd", text))


def _resolve_url(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:  # brackets that are not an IPv6 address
        return ""


def _is_hidden(attributes: dict[str, str]) -> bool:
    style = attributes.get("style", "")[:_STYLE_CHARS]
    return "hidden" in attributes or attributes.get("aria-hidden") == "true" or bool(_HIDDEN_STYLE.search(style))


def _collapse_whitespace(text: str) -> str:
    """Collapse whitespace: single spaces, none at line ends, at most one blank line."""
    text = _BLANKS.sub(" ", text).replace(" \n", "\n").replace("\n ", "\n")
    return _BLANK_LINES.sub("\n\n", text)


def decode_body(body: bytes, content_type: str) -> str:
    """Decode a body with the charset of its header or meta tag, else UTF-8; invalid bytes are replaced."""
    named = re.search(r"charset=[\"']?([\w.:-]{1,40})", content_type)
    inside = _META_CHARSET.search(body[:4_096])
    name = named.group(1) if named else inside.group(1).decode("ascii", "replace") if inside else "utf-8"
    return body.decode(_CHARSETS.get(name.lower(), "utf-8"), "replace")


def decompress(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """Decompress a gzip or deflate body up to a limit; return it and whether it is complete. Raises zlib.error."""
    for window in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        decompressor = zlib.decompressobj(window)
        try:
            out = decompressor.decompress(body, max_bytes)
        except zlib.error:
            if window < 0:
                raise
            continue
        return out, decompressor.eof
    raise AssertionError("unreachable")


def extract(job: dict[str, object], body: bytes, *, is_expired: Callable[[], bool]) -> Iterator[str]:
    """Yield the text of a fetched body, and a note if it was truncated."""
    is_whole = bool(job["is_complete"])
    max_bytes = int(str(job["max_bytes"]))
    if job["is_compressed"]:
        body, is_complete = decompress(body, max_bytes)
        is_whole = is_whole and is_complete
    content_type = str(job["content_type"])
    text = decode_body(body, content_type)
    is_truncated = False
    if "html" in content_type:
        reader = HtmlTextExtractor(str(job["url"]), is_expired=is_expired)
        reader.feed(text)
        text, is_truncated = reader.text(), reader.is_truncated
    yield text.strip()
    if is_truncated:
        yield "\n[cut here: the rest of the page took too long to read]"
    elif not is_whole:
        yield f"\n[cut here: only the first {max_bytes:,} bytes were read]"


def main() -> None:
    _limit_memory()
    job = json.loads(sys.stdin.buffer.readline())
    # CPU time, so that a busy machine does not truncate pages.
    deadline_s = time.process_time() + float(job["deadline_s"])
    try:
        response = "".join(extract(job, sys.stdin.buffer.read(), is_expired=lambda: time.process_time() > deadline_s))
    except zlib.error as error:
        response, job["is_damaged"] = f"its compressed content is damaged ({error})", True
    sys.stdout.buffer.write(b"error\n" if job.get("is_damaged") else b"text\n")
    sys.stdout.buffer.write(response.encode("utf-8", "replace"))


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    except (ImportError, OSError, ValueError):  # not on Windows; or a lower limit is set already
        return


if __name__ == "__main__":
    main()
