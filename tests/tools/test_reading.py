"""Auxiliary readers: quotes are checked against the page, addresses against the hits; plain results without a model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from perdure.core.errors import ConfigError, NotFound
from perdure.core.messages import ImagePart
from perdure.core.ports import AuxiliaryTask, Page, SearchHit, SearchReport, Summary
from perdure.core.visibility import User, Visibility
from perdure.store.search.documents import score_documents
from perdure.tools.builtin.agent_tools import SessionSearch
from perdure.tools.builtin.reading import CitedPassage, HitReader, PageReader, ReadingFailure, check_quotes
from perdure.tools.builtin.web import FetchLimits, WebReader
from perdure.tools.tool import Tool, ToolContext, ToolReply

FILLER = "The harbour is quiet in winter and busy in summer, and little else happens there. "
PAGE = f"{FILLER * 120}The lamp was lit\nfor the first time in 1698. {FILLER * 1_000}It’s 49 metres high. {FILLER * 20}"
CONTEXT = ToolContext("call_1", conversation_id="c_1", user=User("u"))


class ScriptedModels:
    """Auxiliary models that answer by script and remember their prompts."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers = list(answers)
        self.prompts: list[str] = []

    def has_model(self, task: AuxiliaryTask) -> bool:
        return True

    async def ask(
        self,
        task: AuxiliaryTask,
        prompt: str,
        *,
        conversation_id: str,
        max_tokens: int,
        images: Sequence[ImagePart] = (),
    ) -> Summary:
        self.prompts.append(prompt)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Summary(answer, "small-1")


def _read(models: ScriptedModels, question: str = "When was the lamp lit?") -> str | ReadingFailure:
    reader = PageReader(models, score=score_documents, prompts_folder=None)
    return asyncio.run(reader.read(PAGE, question, conversation_id="c_1"))


@pytest.mark.spec("P1")
def test_quotes_that_the_page_lacks_are_removed() -> None:
    answer = (
        "Lit in 1698.\n> The lamp was lit for the first time in 1698.\nBuilt of oak.\n> It was built of oak and iron."
    )
    checked, count = check_quotes(answer, PAGE)
    at = PAGE.index("The lamp was lit")
    assert count == 1
    assert f"> The lamp was lit for the first time in 1698. [offset {at}]" in checked
    assert "oak and iron" not in checked
    assert "do not rely on the statement above" in checked
    assert check_quotes("> It's 49 metres high.", PAGE)[1] == 1


@pytest.mark.spec("P1")
def test_a_long_page_is_reduced_to_the_question() -> None:
    models = ScriptedModels("In 1698.\n> The lamp was lit for the first time in 1698.")
    answer = _read(models)
    assert isinstance(answer, str)
    assert "[Extracted by small-1" in answer
    assert "first time in 1698" in models.prompts[0]
    assert len(models.prompts[0]) < 70_000 < len(PAGE)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("NOT ON THIS PAGE", "did not find an answer"),
        ("In 1698, trust me.", "no quote that the page contains"),
        ("In 1700.\n> The lamp was lit in 1700.", "no quote that the page contains"),
        (ConfigError("no key"), "no model could read it: no key"),
    ],
)
def test_an_answer_that_cannot_be_checked_is_not_used(reply: str | Exception, reason: str) -> None:
    failure = _read(ScriptedModels(reply))
    assert isinstance(failure, ReadingFailure)
    assert reason in failure.reason


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (PAGE if self.path == "/long" else "A short page.").encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _web(models: ScriptedModels) -> Tool:
    reader = PageReader(models, score=score_documents, prompts_folder=None)
    return WebReader(FetchLimits(private_networks=("127.0.0.0/8",)), reader=reader).tool()


def _call(tool: Tool, **arguments: Any) -> ToolReply:
    reply: ToolReply = asyncio.run(tool.handler(context=CONTEXT, **arguments))
    return reply


@pytest.mark.spec("P1")
def test_web_extract_answers_a_question_or_shows_the_page(address: str) -> None:
    models = ScriptedModels("In 1698.\n> The lamp was lit for the first time in 1698.", ConfigError("no key"))
    tool = _web(models)
    assert "question" in tool.parameters["properties"]
    asked = _call(tool, url=f"{address}/long", question="When was the lamp lit?").text
    assert "first time in 1698. [offset" in asked
    assert len(asked) < 1_000
    failed = _call(tool, url=f"{address}/long", question="When was the lamp lit?").text
    assert failed.startswith("[Not reduced to your question: no model could read it: no key]\nThe harbour")
    assert _call(tool, url=f"{address}/long").text.startswith("The harbour")
    assert _call(tool, url=f"{address}/short", question="What is it?").text == "A short page."
    assert len(models.prompts) == 2
    assert "question" not in WebReader().tool().parameters["properties"]


class _Hits:
    """Two hits, one of another conversation."""

    def search(
        self, query: str, *, visibility: Visibility, scope: Mapping[str, Any] | None = None, limit: int = 20, **_: Any
    ) -> Sequence[SearchHit]:
        here = SearchHit("c_1", "s_1", "s_1", "m:7", "user", 0, "the «port» is 5432")
        there = SearchHit("c_2", "s_2", "s_2", "m:9", "tool", 0, "«port» 6543")
        return [here, there][:limit]

    def report(self, query: str, *, visibility: Visibility, limit: int = 20, **_: Any) -> SearchReport:
        return SearchReport(tuple(self.search(query, visibility=visibility, limit=limit)), texts=2)

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        texts = {"m:7": "the port is 5432", "c_2/m:9": "port 6543"}
        if address not in texts:
            raise NotFound(address)
        return Page(address, texts[address], 0, len(texts[address]), None)


@pytest.mark.spec("P1")
def test_session_search_answers_with_checked_addresses_beside_the_hits() -> None:
    models = ScriptedModels("It is 5432 [m:7], elsewhere 6543 [c_2/m:9], or 1 [m:99].", "It is 5432.", ConfigError("x"))
    tool = SessionSearch(_Hits(), reader=HitReader(models, prompts_folder=None)).tool()
    answered = _call(tool, query="which port?", answer=True).text
    assert answered.startswith("[Answered by small-1 from the results below]\nIt is 5432 [m:7]")
    assert "not among the results, do not rely on: m:99" in answered
    assert "the «port» is 5432" in answered
    assert "[c_2/m:9]\nport 6543" in models.prompts[0]
    assert "cited none of them" in _call(tool, query="which port?", answer=True).text
    failed = _call(tool, query="which port?", answer=True).text
    assert failed.startswith("[Not answered: no model could read them: x]")
    assert "the «port» is 5432" in failed
    assert not _call(tool, query="which port?").text.startswith("[")
    assert len(models.prompts) == 3
    assert "answer" not in SessionSearch(_Hits()).tool().parameters["properties"]


@pytest.mark.parametrize("answer", ["Yes [m:7, m:8].", "Yes (m:7; m:8).", "Yes (see the notes) (m:7)."])
def test_hits_are_cited_by_the_address_they_were_given(answer: str) -> None:
    models = ScriptedModels(answer)
    passages = [CitedPassage("m:7", "a"), CitedPassage("m:8", "b")]
    read = asyncio.run(HitReader(models, prompts_folder=None).read(passages, "q", conversation_id="c_1"))
    assert isinstance(read, str)
    assert "do not rely" not in read
