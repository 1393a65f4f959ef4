"""An editor talks to an agent: text, tools, diffs, approvals, plans, modes, commands, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.store.store import open_store
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.editor import Answer, Editor, editor_here
from support.gateway_process import last_user_text, obedient
from support.packages import package

acp = package("acp", reason="the extra `acp` is not installed")
schema = package("acp.schema")

Story = Callable[[Editor], Awaitable[None]]


def _tell(
    tmp_path: Path,
    story: Story,
    script: Any = obedient,
    *,
    answer: Answer | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Simulator:
    async def run(sim: Simulator) -> None:
        async with editor_here(tmp_path, sim, answer=answer, settings=settings) as ed:
            await asyncio.wait_for(story(ed), 120)

    with Simulator(script=script) as sim:
        asyncio.run(run(sim))
        assert sim.violations == []
    return sim


def _calls(name: str, arguments: Mapping[str, Any], answer: str = "Done.") -> Callable[[ScriptRequest], Step]:
    """A model that calls one tool for every message, then answers."""

    def script(asked: ScriptRequest) -> Step:
        if asked.body["messages"][-1]["role"] == "tool":
            return Say(answer)
        return Say("", calls=(Call(name, dict(arguments)),))

    return script


@pytest.mark.spec("P2", "A4")
def test_an_answer_is_streamed_stored_and_accounted_as_acp(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()

        assert await ed.ask(session_id, "slowly one two three four five") == "end_turn"
        assert ed.client.text() == "one two three four five"
        assert len(ed.client.of_kind("agent_message_chunk")) > 1

    _tell(tmp_path, story)

    with open_store(tmp_path / "home" / "perdure.db") as store:
        (conversation,) = store.conversations.list().conversations
        assert (conversation.source, conversation.title) == ("acp", "slowly one two three four five")
        assert [row.group for row in store.ledger.usage("source")] == ["acp"]


def test_thinking_is_sent_as_thoughts_and_the_window_as_usage(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        await ed.ask(await ed.new(), "think twice")

        assert ed.client.text("agent_thought_chunk") == "hm"
        assert ed.client.text() == "twice"
        usage = ed.client.of_kind("usage_update")[-1]
        assert usage.size > usage.used > 0

    _tell(tmp_path, story)


def test_a_command_of_the_model_is_a_tool_call_from_start_to_end(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        await ed.ask(await ed.new(), "run echo hello")

        (start,) = ed.client.of_kind("tool_call")
        assert (start.kind, start.title, start.status) == ("execute", "echo hello", "pending")
        assert start.raw_input == {"command": "echo hello"}
        updates = ed.client.of_kind("tool_call_update")
        assert {u.tool_call_id for u in updates} == {start.tool_call_id}
        assert [u.status for u in updates if u.status] == ["in_progress", "completed"]
        assert "hello" in updates[-1].content[0].content.text

    _tell(tmp_path, story)


def test_tool_calls_have_ids_of_their_own_where_a_model_repeats_its_ids(tmp_path: Path) -> None:
    def script(asked: ScriptRequest) -> Step:
        results = sum(m["role"] == "tool" for m in asked.body["messages"])
        return Say("", calls=(Call("todo", {}, id="call_1"),)) if results < 3 else Say("Done.")

    async def story(ed: Editor) -> None:
        await ed.ask(await ed.new(), "go")

        ids = [u.tool_call_id for u in ed.client.of_kind("tool_call")]
        assert len(set(ids)) == len(ids) == 3
        done = [u.tool_call_id for u in ed.client.of_kind("tool_call_update") if u.status == "completed"]
        assert done == ids

    _tell(tmp_path, story, script)


def test_a_written_file_is_a_diff_with_the_content_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    target = tmp_path / "project" / "a.txt"
    target.write_text("old\n")

    async def story(ed: Editor) -> None:
        await ed.ask(await ed.new(), "write")

        (start,) = ed.client.of_kind("tool_call")
        assert (start.kind, start.locations[0].path) == ("edit", str(target.resolve()))
        for update in (start, ed.client.of_kind("tool_call_update")[-1]):
            (diff,) = update.content
            assert (diff.type, diff.path, diff.old_text, diff.new_text) == ("diff", str(target), "old\n", "new\n")
        assert target.read_text() == "new\n"

    _tell(tmp_path, story, _calls("write_file", {"path": "a.txt", "content": "new\n"}))


def test_a_patch_is_a_diff_and_a_failed_one_is_its_error(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "patch")

        assert ed.client.of_kind("tool_call")[0].content[0].old_text == "one"
        failed = ed.client.of_kind("tool_call_update")[-1]
        assert failed.status == "failed"
        assert "does not exist" in failed.content[0].content.text

    _tell(tmp_path, story, _calls("patch", {"path": "none.txt", "old": "one", "new": "two"}))


ASK = {"permissions.mode": "ask"}


def test_a_command_is_asked_about_and_runs_once_allowed(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        await ed.ask(await ed.new(), "run touch new.txt")

        call, options = ed.client.questions[0]
        assert call.tool_call_id == ed.client.of_kind("tool_call")[0].tool_call_id
        assert [(o.option_id, o.kind) for o in options] == [
            ("once", "allow_once"),
            ("session", "allow_always"),
            ("always", "allow_always"),
            ("no", "reject_once"),
        ]
        shown = "\n".join(c.content.text for c in call.content)
        assert "touch new.txt" in shown
        assert "it may change something" in shown
        assert "perdure approvals revoke" in shown
        assert (ed.folder / "new.txt").exists()

    _tell(tmp_path, story, settings=ASK)


def test_a_rejected_command_does_not_run_and_the_model_reads_the_reason(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        assert await ed.ask(await ed.new(), "run touch new.txt") == "end_turn"

        assert not (ed.folder / "new.txt").exists()
        assert [u.status for u in ed.client.of_kind("tool_call_update")][-1] == "failed"

    sim = _tell(tmp_path, story, answer=lambda call, options: ("no", "use another name"), settings=ASK)

    assert "use another name" in str(sim.requests[-1].body["messages"][-1]["content"])


def test_the_reason_of_a_rejection_may_be_in_the_meta_of_the_response(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        assert await ed.ask(await ed.new(), "run touch new.txt") == "end_turn"

    rejected = schema.AllowedOutcome(outcome="selected", option_id="no")
    response = schema.RequestPermissionResponse(outcome=rejected, field_meta={"reason": "use another name"})
    sim = _tell(tmp_path, story, answer=lambda call, options: response, settings=ASK)

    assert "use another name" in str(sim.requests[-1].body["messages"][-1]["content"])


@pytest.mark.parametrize(("answer", "after"), [("once", ["in_progress", "completed"]), ("no", ["failed"])])
def test_a_call_is_pending_while_the_user_is_asked(tmp_path: Path, answer: str, after: list[str]) -> None:
    async def story(ed: Editor) -> None:
        asked: list[int] = []

        def reply(call: Any, options: Any) -> str:
            asked.append(len(ed.client.updates))
            return answer

        ed.client.answer = reply
        await ed.ask(await ed.new(), "run touch new.txt")

        def statuses(updates: list[Any]) -> list[str]:
            return [s for u in updates if u.session_update.startswith("tool_call") and (s := u.status)]

        assert statuses(ed.client.updates[: asked[0]])[-1] == "pending"
        assert statuses(ed.client.updates[asked[0] :]) == after

    _tell(tmp_path, story, settings=ASK)


def test_a_failed_call_leaves_the_usage_at_the_last_figure(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "say one")
        with pytest.raises(acp.RequestError):
            await ed.ask(session_id, "fail")

        assert all(update.used > 0 for update in ed.client.of_kind("usage_update"))

    _tell(tmp_path, story, ["one", Fail(status=400), Fail(status=400)])


def test_allowed_in_this_session_is_not_asked_again_and_not_stored(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "run touch a")
        await ed.ask(session_id, "run touch a")

        assert len(ed.client.questions) == 1
        await ed.ask(await ed.new(), "run touch a")
        assert len(ed.client.questions) == 2

    _tell(tmp_path, story, answer=lambda call, options: "session", settings=ASK)


def test_an_editor_that_cannot_answer_counts_as_a_no(tmp_path: Path) -> None:
    def broken(call: Any, options: Any) -> str:
        raise acp.RequestError.internal_error()

    async def story(ed: Editor) -> None:
        assert await ed.ask(await ed.new(), "run touch a") == "end_turn"
        assert not (ed.folder / "a").exists()

    _tell(tmp_path, story, answer=broken, settings=ASK)


def test_the_plan_is_sent_when_the_model_changes_it(tmp_path: Path) -> None:
    items = [{"text": "one", "status": "completed"}, {"text": "two", "status": "in_progress"}, {"text": "three"}]

    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.ask(session_id, "plan")

        (plan,) = ed.client.of_kind("plan")
        expected = [("one", "completed"), ("two", "in_progress"), ("three", "pending")]
        assert [(e.content, e.status) for e in plan.entries] == expected
        await ed.agent.load_session(cwd=str(ed.folder), session_id=session_id, mcp_servers=[])
        assert ed.client.of_kind("plan")[-1] == plan

    _tell(tmp_path, story, _calls("todo", {"items": items}))


def test_cancel_ends_the_turn_and_the_next_one_works(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        turn = asyncio.create_task(ed.ask(session_id, "count to a thousand"))
        await ed.client.until(lambda: ed.client.text())
        await ed.agent.cancel(session_id=session_id)

        assert await turn == "cancelled"
        count = len(ed.client.updates)
        assert await ed.ask(session_id, "say hello") == "end_turn"
        assert "".join(u.content.text for u in ed.client.updates[count:] if hasattr(u, "content")) == "hello"

    _tell(tmp_path, story, [Say("word " * 1_000, chunk_chars=4, chunk_delay_s=0.05), "hello"])


def test_cancel_while_a_question_is_open_ends_the_turn(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        turn = asyncio.create_task(ed.ask(session_id, "run touch a"))
        await ed.client.until(lambda: ed.client.questions)
        await ed.agent.cancel(session_id=session_id)

        assert await turn == "cancelled"
        assert not (ed.folder / "a").exists()

    _tell(tmp_path, story, answer=lambda call, options: asyncio.Event().wait(), settings=ASK)


def test_a_tool_call_that_is_cut_off_does_not_stay_in_progress(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        turn = asyncio.create_task(ed.ask(session_id, "run sleep 60"))
        await ed.client.until(lambda: any(u.status == "in_progress" for u in ed.client.of_kind("tool_call_update")))
        await ed.agent.cancel(session_id=session_id)

        assert await turn == "cancelled"
        assert ed.client.of_kind("tool_call_update")[-1].status == "failed"

    _tell(tmp_path, story)


def test_a_call_of_a_reply_that_was_dropped_does_not_stay_pending(tmp_path: Path) -> None:
    call = Call("todo", {})

    async def story(ed: Editor) -> None:
        with pytest.raises(acp.RequestError, match="the connection was lost"):
            await ed.ask(await ed.new(), "go")

        started = [u.tool_call_id for u in ed.client.of_kind("tool_call")]
        ends = {u.tool_call_id: u.status for u in ed.client.of_kind("tool_call_update") if u.status}
        assert [ends.get(update_id) for update_id in started] == ["failed"] * len(started)

    _tell(tmp_path, story, lambda asked: Say("", calls=(call, call), drop_after=6))


def test_a_second_prompt_waits_for_the_first(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        first = asyncio.create_task(ed.ask(session_id, "slowly one two three"))
        await ed.client.until(lambda: ed.client.text())
        second = asyncio.create_task(ed.ask(session_id, "say four"))

        assert (await first, await second) == ("end_turn", "end_turn")
        assert ed.client.text() == "one two threefour"

    _tell(tmp_path, story)


@pytest.mark.spec("P6")
def test_a_second_prompt_stops_the_first_where_the_setting_demands_it(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        first = asyncio.create_task(ed.ask(session_id, "count to a thousand"))
        await ed.client.until(lambda: ed.client.text())
        second = asyncio.create_task(ed.ask(session_id, "say hello"))

        assert (await first, await second) == ("cancelled", "end_turn")
        assert ed.client.text().endswith("hello")

    script = [Say("word " * 1_000, chunk_chars=4, chunk_delay_s=0.05), "hello"]
    _tell(tmp_path, story, script, settings={"agent.while_busy": "interrupt"})


def test_modes_are_the_permission_modes_and_plan_changes_nothing(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        response = await ed.agent.new_session(cwd=str(ed.folder), mcp_servers=[])
        assert [m.id for m in response.modes.available_modes] == ["plan", "ask", "edits", "all"]
        assert response.modes.current_mode_id == "edits"
        await ed.agent.set_session_mode(session_id=response.session_id, mode_id="plan")
        await ed.ask(response.session_id, "write")

        assert not (ed.folder / "a.txt").exists()
        with pytest.raises(acp.RequestError, match="there is no mode 'yolo'"):
            await ed.agent.set_session_mode(session_id=response.session_id, mode_id="yolo")

    _tell(tmp_path, story, _calls("write_file", {"path": "a.txt", "content": "x"}))


def test_commands_are_advertised_and_answered_without_the_model(tmp_path: Path) -> None:
    (tmp_path / "project" / ".perdure" / "commands").mkdir(parents=True)
    (tmp_path / "project" / ".perdure" / "commands" / "greet.md").write_text("say hello $ARGUMENTS")

    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.client.until(lambda: ed.client.of_kind("available_commands_update"))
        names = [c.name for c in ed.client.of_kind("available_commands_update")[0].available_commands]
        assert {"compress", "usage", "model", "undo", "search", "greet", "help"} <= set(names)
        assert not {"new", "resume", "quit", "stop"} & set(names)

        assert await ed.ask(session_id, "/usage") == "end_turn"
        assert ed.client.text() == "Nothing has been said yet.\n\n"
        assert await ed.ask(session_id, "/greet you") == "end_turn"
        assert ed.client.text().endswith("hello you")

    sim = _tell(tmp_path, story)
    assert len(sim.requests) == 1


def test_a_compaction_can_be_cancelled(tmp_path: Path) -> None:
    def script(asked: ScriptRequest) -> Step:
        is_summary = not asked.body.get("tools")
        return Say("A summary.", delay_s=60) if is_summary else Say("word " * 500)

    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        for number in range(8):
            await ed.ask(session_id, f"question {number} " + "about many things " * 100)
        turn = asyncio.create_task(ed.ask(session_id, "/compress"))
        await ed.client.until(lambda: "compacting" in ed.client.text("agent_thought_chunk"))
        await ed.agent.cancel(session_id=session_id)

        assert await turn == "cancelled"
        assert await ed.ask(session_id, "and now?") == "end_turn"

    _tell(tmp_path, story, script)


def test_each_session_works_in_its_own_folder(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()

    async def story(ed: Editor) -> None:
        here = await ed.new()
        there = (await ed.agent.new_session(cwd=str(other), mcp_servers=[])).session_id
        await ed.ask(here, "run pwd")
        await ed.ask(there, "run pwd")

        shown = [u.content[0].content.text for u in ed.client.of_kind("tool_call_update") if u.status == "completed"]
        assert [str(ed.folder) in shown[0], str(other) in shown[1]] == [True, True]

    _tell(tmp_path, story)


def test_links_files_and_images_reach_the_model(tmp_path: Path) -> None:
    blocks = [
        acp.text_block("say compare "),
        acp.resource_link_block("a.py", "file:///p/a%20b.py"),
        acp.text_block(" with "),
        acp.resource_block(acp.embedded_text_resource("file:///p/c.py#L1-2", "x = 1\n")),
        acp.image_block("aGk=", "image/png"),
    ]

    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        await ed.agent.prompt(session_id=session_id, prompt=blocks)

    sim = _tell(tmp_path, story)

    content = sim.requests[0].body["messages"][-1]["content"]
    assert content[0]["text"] == "say compare [a.py](/p/a b.py) with [c.py#L1-2](/p/c.py#L1-2)"
    assert content[1]["text"] == "File /p/c.py#L1-2:\nx = 1\n"
    assert content[2]["image_url"]["url"] == "data:image/png;base64,aGk="


def test_errors_are_plain_sentences(tmp_path: Path) -> None:
    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        audio = schema.AudioContentBlock(type="audio", data="", mime_type="audio/wav")
        server = schema.McpServerStdio(name="x", command="", args=[], env=[schema.EnvVariable(name="a", value="b")])
        for request, words in (
            (ed.agent.prompt(session_id=session_id, prompt=[audio]), "audio is not supported"),
            (ed.agent.prompt(session_id=session_id, prompt=[acp.text_block(" ")]), "the prompt is empty"),
            (ed.agent.prompt(session_id="a_none", prompt=[acp.text_block("x")]), "not open"),
            (ed.agent.load_session(cwd=str(ed.folder), session_id="a_none", mcp_servers=[]), "a_none"),
            (ed.agent.new_session(cwd="relative", mcp_servers=[]), "absolute path"),
            (ed.agent.new_session(cwd=str(ed.folder), mcp_servers=[server]), "cannot be used"),
            (ed.agent.authenticate(method_id="x"), "perdure login"),
            (ed.agent.prompt(session_id=session_id, prompt=[acp.text_block("fail")]), "this was not to be"),
        ):
            with pytest.raises(acp.RequestError, match=words):
                await request

    _tell(tmp_path, story)


def test_a_refusal_and_a_step_limit_are_named_as_stop_reasons(tmp_path: Path) -> None:
    def script(asked: ScriptRequest) -> Step:
        if last_user_text(asked.body) == "bad":
            return Say("", refusal="I will not.")
        return Say("Still at it.", calls=(Call("todo", {}),)) if asked.body.get("tools") else Say("Enough.")

    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        assert await ed.ask(session_id, "bad") == "refusal"
        assert await ed.ask(session_id, "loop") == "max_turn_requests"

    _tell(tmp_path, story, script, settings={"agent.max_turns": "3"})


def test_the_same_message_again_after_a_failure_finishes_its_turn(tmp_path: Path) -> None:
    steps = [Fail(status=400, body={"error": {"message": "no", "type": "invalid_request_error"}}), Say("Yes.")]

    async def story(ed: Editor) -> None:
        session_id = await ed.new()
        with pytest.raises(acp.RequestError):
            await ed.ask(session_id, "please")
        assert await ed.ask(session_id, "please") == "end_turn"

    _tell(tmp_path, story, steps)

    with open_store(tmp_path / "home" / "perdure.db") as store:
        (conversation,) = store.conversations.list().conversations
        said = [(e.message.role, e.message.text) for e in store.log.originals(conversation.id)]
        assert said == [("user", "please"), ("assistant", "Yes.")]
