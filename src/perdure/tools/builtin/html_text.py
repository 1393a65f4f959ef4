"""A web page as readable text: title, headings, links, lists, code and tables; menus, scripts and hidden parts out."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "nav", "footer", "aside", "form", "button", "select",
     "canvas", "object", "dialog", "math"}
)  # fmt: skip
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "header", "ul", "ol", "dl", "dt", "dd", "table", "tr", "blockquote",
     "figure", "figcaption", "hr", "address", "details", "summary", "fieldset"}
)  # fmt: skip
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
# A hidden one of these is skipped; others are often left open, and would take the rest of the page with them.
_HIDEABLE = frozenset({"div", "span", "section", "article", "ul", "ol", "table", "details"})
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?!\.)", re.I)
# A page with a main part this long is read from there alone.
_MAIN_CHARS = 200


class HtmlText(HTMLParser):
    """Feed it a page, then ask for `text()`."""

    def __init__(self, base_url: str = "") -> None:
        super().__init__(convert_charrefs=True)
        self._base = base_url
        self._title: list[str] = []
        self._out: list[str] = []
        self._main: list[str] = []
        self._skip: list[str] = []
        self._links: list[tuple[str, int]] = []
        self._in_title = False
        self._main_depth = 0
        self._pre_depth = 0
        self._cells = 0

    def text(self) -> str:
        """The readable text; empty where the page has none."""
        main = _tidied("".join(self._main))
        body = main if len(main) >= _MAIN_CHARS else _tidied("".join(self._out))
        title = " ".join("".join(self._title).split())
        return f"# {title}\n\n{body}" if title and not body.startswith(f"# {title}") else body

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {k: v or "" for k, v in attrs}
        if self._skip:
            if tag == self._skip[-1]:
                self._skip.append(tag)
            return
        if tag in _SKIPPED or (tag in _HIDEABLE and _is_hidden(given)):
            self._skip.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag == "base" and given.get("href"):
            self._base = urljoin(self._base, given["href"])
        else:
            self._open(tag, given)

    def _open(self, tag: str, given: dict[str, str]) -> None:
        self._main_depth += tag in ("main", "article")
        if re.fullmatch(r"h[1-6]", tag):
            self._say(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "a":
            self._links.append((given.get("href", ""), len(self._out)))
        elif tag == "li":
            self._say("\n- ")
        elif tag == "br":
            self._say("\n")
        elif tag == "pre":
            self._pre_depth += 1
            self._say("\n\n```\n")
        elif tag == "code" and not self._pre_depth:
            self._say("`")
        elif tag in ("td", "th"):
            self._say(" | " if self._cells else "")
            self._cells += 1
        elif tag == "img" and given.get("alt", "").strip():
            self._say(f"[image: {given['alt'].strip()}]")
        elif tag in _BLOCKS:
            self._cells = 0
            self._say("\n" if tag in ("tr", "dt", "dd") else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        if self._skip:
            if tag == self._skip[-1]:
                self._skip.pop()
            return
        if tag == "title":
            self._in_title = False
        elif tag == "a" and self._links:
            self._close_link()
        elif tag == "pre" and self._pre_depth:
            self._pre_depth -= 1
            self._say("\n```\n\n")
        elif tag == "code" and not self._pre_depth:
            self._say("`")
        elif re.fullmatch(r"h[1-6]", tag) or tag in ("p", "ul", "ol", "table", "blockquote"):
            self._say("\n\n")
        if tag in ("main", "article") and self._main_depth:
            self._main_depth -= 1

    def _close_link(self) -> None:
        href, start = self._links.pop()
        label = " ".join("".join(self._out[start:]).split())
        target = urljoin(self._base, href.strip()) if href.strip() and not href.startswith("#") else ""
        if label and target.startswith(("http://", "https://")) and target != label:
            self._say(f" <{target}>")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._skip:
            self._say(data if self._pre_depth else re.sub(r"\s+", " ", data))

    def _say(self, text: str) -> None:
        self._out.append(text)
        if self._main_depth:
            self._main.append(text)


def page_text(html: str, base_url: str = "") -> str:
    """The readable text of a page."""
    reader = HtmlText(base_url)
    reader.feed(html)
    reader.close()
    return reader.text()


def _is_hidden(given: dict[str, str]) -> bool:
    return "hidden" in given or given.get("aria-hidden") == "true" or bool(_HIDDEN_STYLE.search(given.get("style", "")))


def _tidied(text: str) -> str:
    """Blank lines once, no blanks at line ends; what stands between fences is left as it is."""
    pieces = text.split("```")
    for i in range(0, len(pieces), 2):
        lines = [re.sub(r"[ \t]+", " ", line).strip() for line in pieces[i].split("\n")]
        pieces[i] = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    return re.sub(r"\n{3,}", "\n\n", "```".join(pieces)).strip()
