"""The page's own files: right types, packed, cached by version, locked down, and nothing outside their folder."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import perdure.web
from perdure.web import static_files
from perdure.web.static import TYPES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "static"
    (made / "js").mkdir(parents=True)
    (made / "index.html").write_text("<!doctype html><title>page</title>" + "<p>" * 400, "utf-8")
    (made / "js" / "main.js").write_text("export const answer = 42;\n" * 100, "utf-8")
    (made / "js" / "tiny.js").write_text("1", "utf-8")
    (made / "secret.py").write_text("no", "utf-8")
    (tmp_path / "outside.txt").write_text("no", "utf-8")
    (made / "link.txt").symlink_to(tmp_path / "outside.txt")
    return made


@pytest.fixture
def client(folder: Path) -> TestClient:
    return TestClient(static_files(folder))


def test_types_and_policy_are_on_every_answer(client: TestClient) -> None:
    for path in ("/", "/js/main.js", "/nothing.js"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/js/main.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_a_file_is_packed_for_whoever_takes_it_so(client: TestClient, folder: Path) -> None:
    packed = client.get("/js/main.js", headers={"accept-encoding": "gzip, br"})
    plain = client.get("/js/main.js", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(gzip.compress((folder / "js/main.js").read_bytes(), 9, mtime=0))
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content == (folder / "js/main.js").read_bytes()
    assert "content-encoding" not in client.get("/js/tiny.js").headers


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_what_has_not_changed_is_not_sent_again(client: TestClient, folder: Path, encoding: str) -> None:
    headers = {"accept-encoding": encoding}
    first = client.get("/js/main.js", headers=headers)
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/js/main.js", headers={**headers, "if-none-match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    (folder / "js" / "main.js").write_text("export const answer = 43;\n" * 101, "utf-8")
    changed = client.get("/js/main.js", headers={**headers, "if-none-match": first.headers["etag"]})
    assert (changed.status_code, changed.text[:25]) == (200, "export const answer = 43;")


def addresses(client: TestClient) -> list[str]:
    return re.findall(r'="(/assets/[^"]+)"', client.get("/").text)


@pytest.fixture
def assets(folder: Path) -> Path:
    """Two modules, of which the page names one."""
    made = folder / "assets"
    made.mkdir()
    (made / "main.js").write_text('import "./part.js";', "utf-8")
    (made / "part.js").write_text("part = 1;", "utf-8")
    (folder / "index.html").write_text('<!doctype html><script type="module" src="/assets/main.js"></script>', "utf-8")
    return made


def test_files_are_kept_by_version_and_the_page_asks_for_the_new_one(client: TestClient, assets: Path) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    (before,) = addresses(client)
    # What main.js imports is addressed beside it.
    for address in (before, before.replace("main", "part")):
        assert client.get(address).headers["cache-control"] == "public, max-age=31536000, immutable"
    part = client.get(before.replace("main", "part"))
    again = client.get(before.replace("main", "part"), headers={"if-none-match": part.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"]) == (304, part.headers["cache-control"])
    (assets / "part.js").write_text("part = 22;", "utf-8")
    # Changed before the page was loaded again: an old address does not keep the new content.
    changed = client.get(before.replace("main", "part"))
    assert (changed.text, changed.headers["cache-control"]) == ("part = 22;", "no-cache")
    (after,) = addresses(client)
    assert after != before
    assert client.get("/", headers={"if-none-match": page.headers["etag"]}).status_code == 200
    assert "immutable" in client.get(after.replace("main", "part")).headers["cache-control"]
    assert client.get(before).headers["cache-control"] == "no-cache"


def test_a_version_opens_no_other_path(client: TestClient, assets: Path) -> None:
    (address,) = addresses(client)
    version = address.split("/")[2]
    assert client.get("/assets/main.js").headers["cache-control"] == "no-cache"
    assert client.get(f"/assets/{'0' * 16}/main.js").headers["cache-control"] == "no-cache"
    for path in (f"/assets/{version}/../../outside.txt", f"/assets/{version}/%2e%2e/%2e%2e/outside.txt",
                 f"/assets/{version}/missing.js", f"/assets/{version}/{version}/main.js"):  # fmt: skip
        assert client.get(path).status_code == 404


def test_a_file_asked_for_before_the_page_is_kept_too(folder: Path, assets: Path) -> None:
    """A gateway that was restarted answers pages that are still open."""
    (address,) = addresses(TestClient(static_files(folder)))
    assert "immutable" in TestClient(static_files(folder)).get(address).headers["cache-control"]


def test_a_path_that_names_no_file_is_a_view_of_the_page(client: TestClient) -> None:
    page = client.get("/").content
    assert client.get("/c/c_1m7g/at/57").content == page
    assert client.get("/usage").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/js/missing.js").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/../outside.txt", "/%2e%2e/outside.txt", "/js/..%2f..%2foutside.txt", "//etc/passwd.txt", "/secret.py",
     "/link.txt", "/%00.js", "/js/..\\..\\outside.txt"],
)  # fmt: skip
def test_nothing_outside_the_folder_and_no_other_type_is_served(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.text != "no"


def test_only_reading_is_offered(client: TestClient) -> None:
    assert client.post("/").status_code == 405
    head = client.head("/js/main.js")
    assert (head.status_code, head.content) == (200, b"")


def test_the_page_as_it_ships_is_whole_and_light() -> None:
    """Everything index.html loads is there, comes from here, and weighs little on the wire."""
    shipped = Path(perdure.web.__file__).parent / "static"
    client = TestClient(static_files())
    index = client.get("/").text
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', index)
    assert loaded
    assert not [url for url in loaded if "//" in url]
    assert all(client.get(url if url.startswith("/") else f"/{url}").status_code == 200 for url in loaded)
    files = [f for f in shipped.rglob("*") if f.is_file()]
    assert {f.suffix for f in files} <= {*TYPES, ".md", ""}
    on_the_wire = sum(
        int(client.get(f"/{f.relative_to(shipped)}", headers={"accept-encoding": "gzip"}).headers["content-length"])
        for f in files
        if f.suffix in TYPES
    )
    assert on_the_wire < 300_000
