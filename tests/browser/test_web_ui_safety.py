"""Whatever people, models and tools say stays text; nothing is loaded from elsewhere; the whole page is small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure.web
from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from support.browser import Page
from support.web_ui_server import WINDOW, WebUIServer, web_ui_server, web_ui_settings
from support.web_ui_story import EVIL, Story

STATIC = Path(perdure.web.__file__).parent / "static"
SeededSite = tuple[WebUIServer, Story]
EVILS = (
    EVIL,
    "<svg onload=window.pwned=1>",
    "[click](javascript:window.pwned=1) ![x](javascript:window.pwned=1) <a href='javascript:window.pwned=1'>x</a>",
    "```html\n<script>window.pwned=1</script>\n```\n| <b>a</b> |\n|---|\n| <img src=x onerror=window.pwned=1> |",
    "</textarea></pre></details><iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "> " * 40 + "<form action=//elsewhere.example><input autofocus onfocus=window.pwned=1>",
)
# Nothing of this can come from the page itself, so that one of them in the document came out of somebody's text.
FOREIGN = ", ".join(
    (
        "script:not([src^='/assets/']), link:not([href^='/assets/']), iframe, object, embed, style, base",
        "b:not(.keys b), meta[http-equiv], form[action], img[src='x'], [style*='url']",
        "[onload], [onerror], [onfocus], [onmouseover]",
        "a[href^='javascript' i]",
    )
)
# In an order in which each one replaces the one before.
VIEWS = (
    "/",
    "/c/{long}",
    "/c/{long}/context",
    "/c/{long}/m/1",
    "/c/{long}/handoff",
    "/c/{branch}",
    "/c/{delegate}",
    "/usage",
    "/?q=window&show=hits",
)


def assert_harmless(page: Page) -> None:
    assert page.run("window.pwned ?? null") is None
    assert page.run(f"[...document.querySelectorAll({json.dumps(FOREIGN)})].map(e => e.outerHTML.slice(0, 120))") == []


def test_no_text_becomes_markup_in_any_view(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link("/new"))
    for view in VIEWS:
        go(page, story, view)
        # Everything folded is opened, and every long text fetched.
        page.run("for (const d of document.querySelectorAll('details')) d.open = true")
        page.run("for (const b of document.querySelectorAll('.opened button')) b.click()")
        page.wait("!document.querySelector('.opened button:disabled:only-child')")
        if view != "/usage":
            page.wait("document.querySelector('main').textContent.includes('window.pwned=1')")
        assert_harmless(page)


def go(page: Page, story: Story, view: str) -> None:
    """To another view by its address, as a link does."""
    path = view.format(long=story.long, branch=story.branch, delegate=story.delegate)
    page.run(f"document.querySelector('main').replaceChildren(); location.hash = {('#' + path)!r}")
    page.wait("document.querySelector('.row, .timeline .message, .plot .area, .sections, .tiles')")


def echo(asked: ScriptRequest) -> Say:
    """Says back what it was told, calls a tool with it, and thinks it."""
    messages = asked.body["messages"]
    newest = str([m for m in messages if m["role"] == "user"][-1]["content"])
    if messages[-1]["role"] == "tool" or not newest.startswith("ask"):
        return Say(newest, thinking=newest)
    return Say(newest, calls=(Call("clarify", {"question": newest, "choices": [newest[:80], "no"]}),))


@pytest.fixture(scope="module")
def parrot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebUIServer]:
    folder = tmp_path_factory.mktemp("parrot")
    with (
        open_store(folder / "perdure.db") as store,
        Simulator(script=echo, window=WINDOW, chat_thinking_key="reasoning_content") as sim,
        web_ui_server(store, folder / "home", web_ui_settings(sim)) as server,
    ):
        yield server


@pytest.mark.parametrize("evil", EVILS)
def test_markup_typed_into_any_field_stays_text(page: Page, parrot: WebUIServer, evil: str) -> None:
    page.open(parrot.link("/new"))
    page.click("#say")
    page.type(f"ask {evil}")
    page.press("Enter")
    page.wait_text("A question for you")
    assert_harmless(page)
    page.run("document.querySelector('.own-words input').focus()")
    page.type(evil)
    page.press("Enter")
    page.wait("document.querySelector('.timeline .tool-call') && !document.querySelector('.turn')")
    assert_harmless(page)
    # The title, by the field and by the command; the answer of a command that does not exist.
    page.click("h1 .rename")
    page.wait("document.querySelector('.renaming input')")
    page.run("document.querySelector('.renaming input').select()")
    page.type(evil.replace("\n", " ")[:150])
    page.press("Enter")
    page.wait("document.querySelector('h1 .rename')")
    page.click("#say")
    page.type("/" + evil)
    page.press("Enter")
    page.wait("document.querySelector('.answered, .turn .problem, .timeline .message:nth-child(5)')")
    assert_harmless(page)
    page.run("location.hash = '#/?q=' + encodeURIComponent(" + repr(evil.replace("\n", " ")) + ")")
    page.wait("document.querySelector('.row, .empty')")
    assert_harmless(page)
    assert "pwned" in page.text(".results") or page.count(".empty") == 1


def test_markdown_builds_only_what_it_knows_and_links_only_to_the_web(page: Page, parrot: WebUIServer) -> None:
    page.open(parrot.link())
    tried = """# Title
[ok](https://example.org/a) [mail](mailto:a@example.org) [bad](javascript:alert(1)) [bad](data:text/html,x) [bad](//x)
https://example.org/b. `<i>` **<u>x</u>** _y_

1. one
   - inner
2. two

| a | b |
|---|---|
| 1 | <s>2</s> |

> quoted

```
<script>1</script>
```"""
    found = page.run(
        "import('/assets/js/markdown.js').then(({ markdown }) => { const d = document.createElement('div');"
        f"d.append(...markdown({tried!r}));"
        "return { tags: [...new Set([...d.querySelectorAll('*')].map(e => e.localName))].sort(),"
        "links: [...d.querySelectorAll('a')].map(a => [a.getAttribute('href'), a.rel]), text: d.textContent } })"
    )
    assert set(found["tags"]) <= {
        "a",
        "blockquote",
        "button",
        "code",
        "div",
        "em",
        "h3",
        "li",
        "ol",
        "p",
        "pre",
        "span",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    }
    rel = "noopener noreferrer nofollow"
    assert found["links"] == [
        ["https://example.org/a", rel],
        ["mailto:a@example.org", rel],
        ["https://example.org/b", rel],
    ]
    for kept in ("javascript:alert(1)", "<u>x</u>", "<s>2</s>", "<script>1</script>", "<i>"):
        assert kept in found["text"]


def test_markdown_knows_what_models_write(page: Page, parrot: WebUIServer) -> None:
    page.open(parrot.link())
    text = """### Plan
- [x] ~~old~~
- [ ] new
  - two
    - three

| left | right | centre |
|:--|--:|:-:|
| a \\| b | 1 | 2 | beyond the heads |

one\\
two, \\*not emphasis\\*, mail me@example.org
![A chart](https://example.org/chart.png)

[Mercury](https://example.org/Mercury_(planet)), (https://example.org/a_(b)), <you@example.org>,
2 &lt; 3 &mdash; &#8364; &unknown;

```python
def f():  # why
    return "x", 12
```

10. ten
11. eleven
"""
    built = page.run(
        "import('/assets/js/markdown.js').then(({ markdown }) => { const d = document.createElement('div');"
        f"d.append(...markdown({json.dumps(text)}));"
        "const texts = (s) => [...d.querySelectorAll(s)].map(e => e.textContent);"
        "return { del: texts('del'), tasks: [...d.querySelectorAll('.task')].map(e => e.ariaLabel),"
        "deep: texts('li li li'), cells: [...d.querySelectorAll('td')].map(e => [e.textContent, e.className]),"
        "breaks: texts('p br').length, paragraph: texts('p')[0], image: d.querySelector('.image-link')?.href,"
        "loaded: d.querySelectorAll('img').length, colours: texts('pre span'), start: d.querySelector('ol').start,"
        "copy: texts('.code button'), headings: texts('h3'), second: texts('p')[1],"
        "links: [...d.querySelectorAll('p a')].map(e => e.getAttribute('href')) } })"
    )
    assert built["del"] == ["old"]
    assert built["tasks"] == ["done", "to do"]
    assert built["deep"] == ["three"]
    assert built["cells"] == [["a | b", ""], ["1", "right"], ["2", "centre"]]
    assert built["breaks"] == 1
    assert "*not emphasis*" in built["paragraph"]
    # An image by address is a link: nothing is fetched before somebody clicks.
    assert (built["image"], built["loaded"]) == ("https://example.org/chart.png", 0)
    assert built["links"] == [
        "mailto:me@example.org",
        "https://example.org/chart.png",
        "https://example.org/Mercury_(planet)",
        "https://example.org/a_(b)",
        "mailto:you@example.org",
    ]
    assert built["second"] == "Mercury, (https://example.org/a_(b)), you@example.org,\n2 < 3 — € &unknown;"
    assert built["colours"] == ["def", "# why", "return", '"x"', "12"]
    assert (built["start"], built["copy"], built["headings"]) == (10, ["Copy"], ["Plan"])


def test_no_text_can_choke_the_markdown(page: Page, parrot: WebUIServer) -> None:
    page.open(parrot.link())
    units = [
        "> ",
        "* ",
        "`",
        "**",
        "[",
        "_a ",
        "| ",
        "- \n",
        "#",
        "![](",
        "<!--",
        "`a ``b ",
        "~~",
        "a@",
        "***a",
        "<http://",
        "[a](http://a(",
        "http://a((",
        "&#1",
        "```\n",
        # Forty thousand children of one paragraph whose direction the browser finds out itself.
        "a  \na  \n",
    ]
    slowest_ms = page.run(
        "import('/assets/js/markdown.js').then(({ markdown }) =>"
        f"Math.max(...{json.dumps(units)}.map(unit => {{ const t = performance.now(); markdown(unit.repeat(20000));"
        "return performance.now() - t })))"
    )
    assert slowest_ms < 2_000


def test_a_picture_is_shown_and_one_from_elsewhere_is_not_fetched(page: Page, seeded: SeededSite) -> None:
    server, story = seeded
    page.open(server.link(f"/c/{story.long}/m/1"))
    page.wait("document.querySelector('#m-1 img.shown')?.naturalWidth === 1")


def imported(name: str) -> set[str]:
    """A module and all it imports before it runs."""
    found = re.findall(r'^import .* from "\./(\w+)\.js";$', (STATIC / f"assets/js/{name}.js").read_text(), re.MULTILINE)
    return {name}.union(*map(imported, found))


def test_what_the_list_needs_is_asked_for_at_once() -> None:
    named = set(re.findall(r'(?:src|href)="/assets/js/(\w+)\.js"', (STATIC / "index.html").read_text()))
    assert named == imported("main") | imported("conversations")


def test_the_whole_web_ui_weighs_less_than_250_kb(page: Page, seeded: SeededSite) -> None:
    on_disk = sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file())
    assert on_disk < 250_000
    server, story = seeded
    page.open(server.link("/new"))
    for view in VIEWS:
        go(page, story, view)
    files = [url for url in page.requests if "/api/" not in url]
    assert len(files) == len(set(files))
