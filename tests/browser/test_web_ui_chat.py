"""A whole conversation held on the page, with the simulator for a model."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from perdure.core.messages import Message
from perdure.store.store import open_store
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator
from support.axe import axe_findings
from support.browser import Page
from support.web_ui_server import WINDOW, WebUIServer, web_ui_server, web_ui_settings
from support.web_ui_story import PIXEL

POEM = "The lease is held by one. " * 12


def answer(asked: ScriptRequest) -> Say | Fail:
    """What the newest message asks for."""
    messages = asked.body["messages"]
    newest = str([m for m in messages if m["role"] == "user"][-1]["content"])
    if messages[-1]["role"] == "tool":
        return Say(f"The tool said: {str(messages[-1]['content'])[:200]}")
    if "Completed Actions" in newest:
        return Say("## Goal\nA poem about leases.\n## Active Task\nNothing is open.")
    # An unanswered message is sent again together with the next.
    if "fail" in newest and "leases" not in newest:
        return Fail(status=400, body={"error": {"message": "This model <b>cannot</b> do that."}})
    if "quickly" in newest:
        return Say("Right away.")
    if "slowly" in newest:
        return Say(POEM * 20, chunk_delay_s=0.02)
    if "delete" in newest:
        return Say("I will clean up.", calls=(Call("terminal", {"command": "rm -rf ./sources /tmp/perdure-nothing"}),))
    if "disguise" in newest:
        command = f"rm -rf ~/perdure-nothing/\u202etxt.elif\u202c && echo \u200bzero{' && echo again' * 300}"
        return Say("", calls=(Call("terminal", {"command": command}),))
    if "which" in newest:
        return Say("", calls=(Call("clarify", {"question": "Which colour?", "choices": ["red", "green"]}),))
    return Say(
        f"# A heading\n\nSome **strong** words and `code`.\n\n- one\n- two\n\n{POEM}",
        thinking="Hm. " * 9,
        chunk_delay_s=0.005,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebUIServer]:
    folder = tmp_path_factory.mktemp("chat")
    with (
        open_store(folder / "perdure.db") as store,
        Simulator(script=answer, window=WINDOW, chat_thinking_key="reasoning_content") as sim,
        web_ui_server(store, folder / "home", web_ui_settings(sim)) as running,
    ):
        yield running


def say(page: Page, text: str) -> None:
    page.click("#say")
    page.type(text)
    page.press("Enter")


def said(page: Page, inside: str) -> list[str]:
    return list(page.run(f"[...document.querySelectorAll('{inside} .user .plain')].map(e => e.innerText)"))


def test_a_conversation_begins_streams_and_goes_on(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Tell me about leases.")
    # It streams: part of the answer stands there while the turn still runs.
    page.wait(
        "document.querySelector('.turn .assistant .prose')?.innerText.length > 20"
        "&& !document.querySelector('.stop').hidden"
    )
    page.wait("document.querySelector('.timeline .assistant strong') && document.querySelector('.stop').hidden")
    assert page.run("location.hash").startswith("#/c/c_")
    assert page.count(".turn") == 0
    assert page.text(".timeline .prose ul").split() == ["one", "two"]
    assert page.text(".thinking summary").startswith("Thinking")
    # The gauge: tokens, window, and a tick where compaction begins.
    assert "of 8k" in page.text(".desk .gauge-words")
    assert page.count(".gauge-tick") == 1
    say(page, "And again.")
    page.wait("document.querySelectorAll('.timeline .message').length === 4 && !document.querySelector('.turn')")


def test_stop_ends_the_turn_and_keeps_what_came(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Say it slowly.")
    page.wait("document.querySelector('.turn .assistant')?.innerText.length > 100")
    page.click(".stop")
    page.wait("document.querySelector('.timeline') && document.querySelector('.stop')?.hidden", timeout_s=5)
    page.wait_text("The lease is held", inside=".timeline")


def test_a_message_sent_meanwhile_waits_for_its_turn(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Tell me something.")
    page.wait("document.querySelector('.turn .assistant')")
    say(page, "And another thing.")
    page.wait("document.querySelectorAll('.timeline .message').length === 4 && !document.querySelector('.turn')")
    assert said(page, ".timeline") == [
        "Tell me something.",
        "And another thing.",
    ]


@pytest.mark.parametrize(("choice", "outcome"), [("Refuse", "do not try it in another form"), ("Allow once", "exit")])
def test_a_dangerous_command_waits_for_approval(page: Page, server: WebUIServer, choice: str, outcome: str) -> None:
    page.prefer("dark" if choice == "Refuse" else "light")
    page.open(server.link("/new"))
    say(page, "Please delete the build.")
    page.wait_text("May this run?")
    assert "rm -rf ./sources" in page.text(".question")
    assert "waits for you" in page.text(".tool-call")
    assert "running" not in page.text(".tool-call").lower()
    assert "Waiting for your answer." in page.text(".turn .status")
    # An Enter that was on its way when the question came must not answer it.
    assert page.run("document.activeElement.matches('.question')")
    page.press("Enter")
    assert page.count(".question:not(.closed)") == 1
    assert axe_findings(page) == []
    page.click(f"text/{choice}")
    page.wait("document.querySelector('.timeline .tool-call') && !document.querySelector('.turn')")
    assert outcome in page.run("document.querySelector('.timeline').textContent").lower()


@pytest.mark.parametrize("width", [1440, 390])
def test_an_approval_shows_what_will_run_and_what_each_answer_covers(
    page: Page, server: WebUIServer, width: int
) -> None:
    page.resize(width, 700)
    page.open(server.link("/new"))
    say(page, "Run it in disguise.")
    page.wait_text("May this run?")
    # What cannot be seen is spelled out, and nothing of the command is left out.
    shown = page.text(".question pre")
    assert "<U+202E>txt.elif<U+202C> && echo <U+200B>zero" in shown
    assert shown.count("echo again") == 300
    assert page.text(".question mark").startswith("rm -rf ~/perdure-nothing/<U+202E>")
    # The row of the call above the question is as honest.
    row = page.run("document.querySelector('details.tool-call').textContent")
    assert "<U+202E>txt.elif<U+202C>" in row
    assert "\u202e" not in row
    assert page.run("[...document.querySelectorAll('.question h3')].map(e => e.innerText)") == [
        "What will run", "Why it asks",
    ]  # fmt: skip
    # Each button says what it does, to a screen reader, too.
    described = "b => document.getElementById(b.getAttribute('aria-describedby')).innerText"
    effects = page.run(f"[...document.querySelectorAll('.question button')].map({described})")
    assert [effect.split(" ")[:4] for effect in effects] == [
        ["It", "does", "not", "run."], ["It", "runs", "now.", "The"],
        ["It", "runs", "now;", "later"], ["The", "same", "in", "every"],
    ]  # fmt: skip
    covers = page.text(".question .covers")
    # By the names of the buttons; a command is shown as one.
    assert covers.startswith("“Always allow” allows")
    assert "“Allow in this session” until" in covers
    assert "delete-outside" in page.text(".question .covers code")
    assert "In the folder " in page.text(".question")
    # However long it is, it scrolls inside the card, and every choice is in scope below it.
    box = "document.querySelector('.question pre')"
    assert page.run(f"{box}.scrollHeight > {box}.clientHeight && {box}.scrollWidth <= {box}.clientWidth")
    buttons = "[...document.querySelectorAll('.question button')]"
    assert page.run(f"{buttons}.map(b => b.innerText)") == [
        "Refuse", "Allow once", "Allow in this session", "Always allow",
    ]  # fmt: skip
    assert page.run("document.querySelector('.question').offsetHeight <= innerHeight")
    # Refusing weighs as much as allowing.
    styles = "[s.color, s.backgroundColor, s.borderColor, s.fontWeight, b.offsetHeight]"
    look = f"(b => {{ const s = getComputedStyle(b); return {styles}.join() }})"
    first, second = page.run(f"{buttons}.slice(0, 2).map({look})")
    assert first == second
    assert page.count(".question button.primary") == 0
    page.click("text/Refuse")
    page.wait("document.querySelector('.timeline .tool-call.refused')")
    assert page.text(".timeline .tool-call.refused .state") == "refused"


def test_a_question_of_the_models_is_answered(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Ask me which.")
    page.wait_text("Which colour?")
    page.wait("document.querySelector('.own-words input')")
    page.run("document.querySelector('.own-words input').focus()")
    page.type("blue, please")
    page.press("Enter")
    page.wait("document.querySelector('.timeline .tool-call') && !document.querySelector('.turn')")
    page.wait_text("The tool said: blue, please")


def test_an_open_question_is_there_again_after_a_reload(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Hello there.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    say(page, "Ask me which.")
    page.wait_text("Which colour?")
    page.call("Page.reload")
    page.wait_text("Which colour?")
    page.click("text/green")
    page.wait_text("The tool said: green")


def test_what_was_written_and_not_sent_is_there_again(page: Page, server: WebUIServer) -> None:
    session = server.store.create(title="Drafts")
    server.store.append(session.id, [Message.from_dict({"role": "user", "content": "hello"})])
    page.open(server.link(f"/c/{session.conversation_id}"))
    page.wait("document.querySelector('.timeline .user')")
    page.click("#say")
    page.type("half a thought")
    page.run("location.hash = '#/usage'")
    page.wait("!document.querySelector('#say')")
    page.run("location.hash = '#/new'")
    page.wait("document.querySelector('#say')?.value === ''")
    page.run("history.back()")
    page.wait("!document.querySelector('#say')")
    page.run("history.back()")
    page.wait("document.querySelector('#say')?.value === 'half a thought'")
    page.click("#say")
    page.press("Enter")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    page.call("Page.reload")
    page.wait("document.querySelector('#say')?.value === ''")


def test_what_is_being_typed_stays_when_the_first_turn_of_a_new_chat_ends(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Say it slowly.")
    page.wait("document.querySelector('.turn .assistant')")
    page.click("#say")
    page.type("And another thing.")
    page.press("Escape")  # stops the turn, so that the conversation is shown like any other
    page.wait("document.querySelector('.timeline .user') && !document.querySelector('.turn')")
    page.wait("document.activeElement?.value === 'And another thing.'")
    page.press("Enter")
    page.wait("document.querySelectorAll('.timeline .user').length === 2 && !document.querySelector('.turn')")
    page.open(server.link("/new"))
    page.wait("document.querySelector('#say')?.value === ''")


def test_an_address_that_names_no_message_says_so(page: Page, server: WebUIServer) -> None:
    session = server.store.create(title="Short")
    server.store.append(session.id, [Message.from_dict({"role": "user", "content": "hello"})])
    for asked in ("99999", "abc", "0"):
        page.open(server.link(f"/c/{session.conversation_id}/m/{asked}"))
        page.wait_text(f"There is no message {asked} in this conversation. The newest is #1")
    page.run(f"location.hash = '#/c/{session.conversation_id}/m/1'")
    page.wait("document.activeElement?.id === 'm-1' && !document.querySelector('.missing')")
    page.run(f"location.hash = '#/c/{session.conversation_id}/nonsense'")
    page.wait_text("There is nothing at this address.")


def test_a_turn_under_way_goes_on_after_a_reload_and_can_be_stopped(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Say it slowly.")
    page.wait("document.querySelector('.turn .assistant')?.innerText.length > 100")
    say(page, "And then quickly.")
    page.call("Page.reload")
    # What had come, and what comes: no word twice, and one's own message once, from the log.
    page.wait("document.querySelector('.turn .assistant')?.innerText.length > 100")
    came = len(page.text(".turn .assistant"))
    page.wait(f"document.querySelector('.turn .assistant').innerText.length > {came} + 200")
    streamed = page.text(".turn .assistant .prose")
    assert (POEM * 20).startswith(streamed.strip())
    assert said(page, ".timeline") == ["Say it slowly."]
    assert said(page, ".turns") == ["And then quickly."]
    assert page.text("button[type=submit]") == "Queue"
    page.click(".stop")
    page.wait("document.querySelectorAll('.timeline .user').length === 2 && document.querySelector('.stop').hidden")
    page.wait("!document.querySelector('.turn')")
    # The stopped reply stays in the log, before the answer to the second message.
    replies = page.run("[...document.querySelectorAll('.timeline .assistant .prose')].map(p => p.innerText.trim())")
    assert (POEM * 20).startswith(replies[0])
    assert replies[1:] == ["Right away."]


def test_a_turn_begun_elsewhere_streams_here_and_can_be_stopped(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Hello there.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    conversation_id = page.run("location.hash").removeprefix("#/c/")
    sent = httpx.post(
        f"{server.url}/api/messages",
        headers={"Authorization": f"Bearer {server.token}"},
        json={"content": "Say it slowly.", "chat": "elsewhere", "conversation_id": conversation_id},
        trust_env=False,
    )
    assert sent.status_code == 202
    page.wait("document.querySelector('.turn .assistant')?.innerText.length > 100")
    # The message itself comes with the next look at the log, which may be a moment behind the stream.
    page.wait_text("Say it slowly.", inside="main")
    assert said(page, "main") == ["Hello there.", "Say it slowly."]
    page.click(".stop")
    page.wait("document.querySelector('.stop').hidden && !document.querySelector('.turn')")
    page.wait_text("The reply was stopped", inside=".timeline")


def test_slash_commands_complete_and_answer(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Tell me about leases.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    page.click("#say")
    page.type("/")
    page.wait("document.querySelectorAll('.commands li').length > 5")
    page.type("co")
    page.wait("document.querySelectorAll('.commands li').length === 2")
    page.press("ArrowDown")
    page.press("Tab")
    assert page.run("document.querySelector('#say').value") == "/context "
    # The chart says it better than text.
    page.press("Enter")
    page.wait("location.hash.endsWith('/context') && document.querySelector('.plot .area')")
    page.click("text/Timeline")
    page.wait("document.querySelector('.timeline .assistant')")
    say(page, "/usage")
    page.wait_text("tokens", inside=".answered")
    say(page, "/title What leases are")
    page.wait_text("What leases are", inside="h1")
    say(page, "/nonsense")
    page.wait_text("There is no command /nonsense", inside=".answered.error")


def test_a_compaction_on_the_way_is_told_and_its_handoff_opens(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    for turn in range(3):
        say(page, f"Question {turn}: " + "some words to fill the window with. " * 90)
        page.wait(
            f"document.querySelectorAll('.timeline .user').length === {turn + 1} && !document.querySelector('.turn')"
        )
    say(page, "/compress leases")
    page.wait_text("Compacted", inside=".answered")
    page.wait("document.querySelector('.timeline .handoff')")
    page.click("text/What was kept: the handoff and its sources")
    page.wait_text("What the model reads now")
    page.wait_text("because you asked for it")
    page.click("#focus")
    page.type("the second question")
    page.press("Enter")
    page.wait("document.querySelector('.command-status').innerText.length > 12")


def test_a_turn_that_fails_says_why_and_the_next_one_goes_on(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Please fail.")
    failure = "document.querySelector('.timeline .event.turn_failed')?.innerText.includes('cannot')"
    page.wait(failure)
    say(page, "Tell me about leases.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    # It stays where it happened, for whoever reads it later.
    page.call("Page.reload")
    order = "[...document.querySelectorAll('.timeline .message, .timeline .event')].map(e => e.classList[1])"
    page.wait(f"{failure} && ({order}).slice(0, 3).join() === 'user,turn_failed,user'")
    assert said(page, ".timeline") == [
        "Please fail.",
        "Tell me about leases.",
    ]


# The first answer's connection breaks after a few pieces, as a bad network would have it.
BREAK_ONCE = """(() => {
  const real = fetch;
  let isBroken = false;
  self.fetch = async (url, options) => {
    const answer = await real(url, options);
    if (isBroken || url !== "/api/messages") return answer;
    isBroken = true;
    const reader = answer.body.getReader();
    let pieces = 0;
    const body = new ReadableStream({ async pull(out) {
      const { value, done } = await reader.read();
      if (done || (pieces += 1) > 4) out.error(new TypeError("the connection is gone"));
      else out.enqueue(value);
    } });
    return new Response(body, { status: answer.status, headers: answer.headers });
  };
})()"""


def test_a_lost_connection_is_taken_up_again_where_it_broke(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    page.wait("document.querySelector('#say')")
    page.run(BREAK_ONCE)
    say(page, "Tell me about leases.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    assert any(url.endswith("/events") for url in page.requests)
    assert page.text(".timeline .assistant").count("The lease is held by one.") == POEM.count(
        "The lease is held by one."
    )
    assert page.count(".problem") == 0


def test_escape_leaves_the_list_and_enter_sends_only_with_words(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    page.click("#say")
    page.press("Enter")
    assert page.count(".turn") == 0
    page.type("/he")
    page.wait("!document.querySelector('.commands').hidden")
    page.press("Escape")
    assert page.run("document.querySelector('.commands').hidden")


def test_a_question_is_edited_and_an_answer_regenerated_in_a_branch(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Answer quickly.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    say(page, "Tell me of laeses quickly.")
    page.wait("document.querySelectorAll('.timeline .assistant').length === 2 && !document.querySelector('.turn')")
    first = page.run("location.hash")
    page.click("#m-3 [aria-label='Edit message 3']")
    page.wait("document.activeElement?.name === 'text'")
    page.run("document.activeElement.select()")
    page.type("Tell me of leases quickly.")
    page.click("text/Send in a branch")
    page.wait(f"location.hash.startsWith('#/c/c_') && location.hash !== {first!r}")
    page.wait("document.querySelectorAll('.timeline .assistant').length === 2 && !document.querySelector('.turn')")
    page.wait_text("Tell me of leases quickly.", inside=".timeline")
    assert said(page, ".timeline") == ["Answer quickly.", "Tell me of leases quickly."]
    branch = page.run("location.hash")
    page.click("[aria-label='Regenerate message 4']")
    page.wait(f"location.hash.startsWith('#/c/c_') && location.hash !== {branch!r}")
    page.wait("document.querySelectorAll('.timeline .assistant').length === 2 && !document.querySelector('.turn')")
    page.wait_text("Tell me of leases quickly.", inside=".timeline")
    assert said(page, ".timeline") == ["Answer quickly.", "Tell me of leases quickly."]
    # The conversation it began in is as it was, and leads to the branch.
    page.run(f"location.hash = {first!r}")
    page.wait_text("laeses", inside=".timeline")
    page.wait("document.querySelector('.children')")


def test_the_first_answer_is_regenerated_in_a_branch_that_leads_back(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Answer quickly, at first.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    first = page.run("location.hash")
    page.click("[aria-label='Regenerate message 2']")
    page.wait(f"location.hash.startsWith('#/c/c_') && location.hash !== {first!r}")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    assert said(page, ".timeline") == ["Answer quickly, at first."]
    again = page.run("location.hash")
    page.click("[aria-label='Edit message 1']")
    page.wait("document.activeElement?.name === 'text'")
    page.run("document.activeElement.select()")
    page.type("Answer quickly, otherwise.")
    page.click("text/Send in a branch")
    page.wait(f"location.hash.startsWith('#/c/c_') && location.hash !== {again!r}")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    page.wait("document.querySelector('h1').textContent.includes('otherwise')")
    page.click("text/branched from another")
    page.wait(f"location.hash === {again!r}")
    page.click("text/branched from another")
    page.wait(f"location.hash === {first!r}")


def test_files_and_images_are_attached_and_others_refused(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    page.wait("document.querySelector('.attach')")
    page.run(
        "(() => { const put = (...files) => { const t = new DataTransfer(); for (const f of files) t.items.add(f);"
        "const i = document.querySelector('.attachments input'); i.files = t.files;"
        "i.dispatchEvent(new Event('change')); };"
        f"const png = Uint8Array.from(atob({PIXEL.partition(',')[2]!r}), c => c.charCodeAt(0));"
        "put(new File(['a,b\\n1,2'], 'table.csv', { type: 'text/csv' }),"
        "new File([png], 'dot.png', { type: 'image/png' }), new File([new Uint8Array([0, 255])], 'x.bin')); })()"
    )
    page.wait_text("x.bin is neither text nor", inside=".attachments")
    page.wait("document.querySelectorAll('.attached li').length === 2")
    say(page, "Look at these quickly.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    question = page.run("document.querySelector('.timeline .user .plain').innerText")
    assert question.startswith("Look at these quickly.")
    assert "table.csv:" in question
    assert "1,2" in question
    page.wait("document.querySelector('.timeline .user img.shown')?.naturalWidth === 1")
    assert page.count(".attached li") == 0


def test_queued_messages_say_their_position_and_a_stopped_reply_has_its_sign(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Say it slowly.")
    page.wait("document.querySelector('.turn .assistant')")
    say(page, "/help")
    say(page, "And answer this quickly.")
    page.wait_text("Queued, number 2 in line.", inside=".turns")
    assert page.run("[...document.querySelectorAll('.turn.queued .status')].at(-1).innerText").endswith("2 in line.")
    assert axe_findings(page) == []
    page.click(".stop")
    page.wait("document.querySelector('.event.turn_stopped .sign, .event.partial .sign')?.innerText === '■'")
    page.wait("document.querySelector('.stop')?.hidden")


def test_an_attachment_still_being_read_is_there_after_the_first_turn(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    page.wait("document.querySelector('.composer')")
    page.run(
        "(() => { const file = new File(['late'], 'late.txt', { type: 'text/plain' });"
        "const read = new Promise((resolve) => { window.finishReading = resolve; });"
        "file.arrayBuffer = () => read.then(() => new TextEncoder().encode('late').buffer);"
        "const drop = new Event('drop', { bubbles: true, cancelable: true });"
        "Object.defineProperty(drop, 'dataTransfer', { value: { files: [file] } });"
        "document.querySelector('.composer').dispatchEvent(drop) })()"
    )
    say(page, "Answer quickly.")
    page.wait("document.querySelector('.timeline .assistant') && !document.querySelector('.turn')")
    page.run("window.finishReading()")
    page.wait_text("late.txt", inside=".attached")
    say(page, "Read it quickly.")
    page.wait_text("late.txt:", inside=".timeline")


def test_a_refusal_with_a_reason_reaches_the_model(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    say(page, "Please delete the sources.")
    page.wait("document.querySelector('.question.approval input')")
    page.click(".question.approval input")
    page.type("use mv instead")
    page.press("Enter")
    page.wait("!document.querySelector('.turn') && document.querySelector('.timeline .tool-call')")
    conversation = page.run("location.hash.split('/')[2]")
    [result] = [e.message for e in server.store.log.originals(conversation) if e.message.role == "tool"]
    assert result.tool_state == "refused"
    assert "the user refused: “use mv instead”" in result.text


def test_pasted_text_is_marked_as_such(page: Page, server: WebUIServer) -> None:
    page.open(server.link("/new"))
    page.click("#say")
    page.type("Look quickly: ")
    page.run(
        "(() => { const field = document.querySelector('#say'), data = new DataTransfer();"
        "data.setData('text', 'Always answer in Latin.\\r\\n');"
        "field.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));"
        "document.execCommand('insertText', false, 'Always answer in Latin.') })()"
    )
    page.press("Enter")
    page.wait("document.querySelectorAll('.timeline .message').length === 2 && !document.querySelector('.turn')")
    conversation = page.run("location.hash.split('/')[2]")
    [entry] = [e for e in server.store.log.originals(conversation) if e.message.is_real_user]
    assert [entry.message.text[a:b] for a, b in entry.message.pasted] == ["Always answer in Latin."]
