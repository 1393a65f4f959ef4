"""Long logs of many kinds: a few lines of the handoff, with the failing test, the assertion, the file and the line."""

from __future__ import annotations

import json

import pytest

import perdure
from perdure.context.tool_calls.describe import describe_call
from perdure.context.tool_calls.output import clip_located
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user

MOST_LINES = 30


def _numbered(template: str, count: int = 2_800) -> list[str]:
    return [template.format(n=n, m=n // 60 % 60, s=n % 60) for n in range(count)]


def _among(template: str, *lines: str, count: int = 2_800) -> str:
    every = _numbered(template, count)
    every[2 * count // 3 : 2 * count // 3] = lines
    return "\n".join(every)


def _behind(template: str, *lines: str) -> str:
    return "\n".join([*_numbered(template), *lines])


def _json_line(**members: object) -> str:
    return json.dumps(members)


LOGS = {
    "service": (
        "journalctl -u billing",
        _among(
            "2026-03-02T10:{m:02}:{s:02}Z INFO http request id=r{n} status=200",
            "2026-03-02T10:45:10Z ERROR billing charge failed for order ord_88213: card gateway returned 402 after 3"
            " retries (idempotency key 7f0c-22, customer cus_9911, amount 129.90 EUR, attempt 3 of 3, region"
            " eu-central-1, pod billing-7d9f) in services/billing/gateways/stripe.py:431",
        ),
        ("ord_88213", "stripe.py:431", "1 ERROR, 2800 INFO"),
    ),
    "traceback in a service log": (
        "docker logs app",
        _among(
            'Mar 02 10:{m:02}:{s:02} host app[412]: level=info msg="tick" n={n}',
            'Mar 02 10:33:20 host app[412]: level=error msg="unhandled"',
            "Traceback (most recent call last):",
            '  File "/srv/app/worker.py", line 77, in run',
            "    job()",
            '  File "/srv/app/jobs/sync.py", line 219, in job',
            '    tenant = row["tenant"]',
            "KeyError: 'tenant'",
        ),
        ("/srv/app/jobs/sync.py:219", "KeyError: 'tenant'"),
    ),
    "java": (
        "docker compose logs api",
        _among(
            "2026-03-02 10:{m:02}:{s:02}.123  INFO 1 --- [exec-{s}] c.a.OrderController : order {n} accepted",
            "2026-03-02 10:31:40.991 ERROR 1 --- [exec-4] o.a.c.Dispatcher : Servlet.service() threw exception",
            "java.lang.IllegalStateException: voucher SPRING24 already redeemed",
            "\tat com.acme.shop.VoucherService.redeem(VoucherService.java:142) ~[app.jar:na]",
            "\tat com.acme.shop.OrderController.place(OrderController.java:77) ~[app.jar:na]",
        ),
        ("SPRING24", "VoucherService.java:142"),
    ),
    "json lines": (
        "kubectl logs deploy/ledger",
        "\n".join(
            [
                *(_json_line(ts=f"t{n}", level="info", msg="served", ms=n % 90) for n in range(2_800)),
                _json_line(
                    ts="t2800", level="error", msg="unbalanced journal", journal="J-55102", caller="ledger/post.go:188"
                ),
                *(_json_line(ts=f"t{n}", level="info", msg="served", ms=n % 90) for n in range(900)),
            ]
        ),
        ("unbalanced journal", "J-55102", "post.go:188", "1 ERROR, 3700 INFO"),
    ),
    "events": (
        "kubectl get events -n shop",
        "LAST SEEN   TYPE      REASON   OBJECT      MESSAGE\n"
        + _among(
            '{s}m    Normal    Pulled   pod/web-{n}   Container image "reg/web:1" already present',
            "2m   Warning   BackOff   pod/billing-x2x1q   Back-off restarting failed container api",
            '3m   Warning   Failed    pod/billing-x2x1q   Failed to pull image "reg/billing:2.14.1": manifest unknown',
        ),
        ("billing-x2x1q", "billing:2.14.1", "manifest unknown"),
    ),
    "access log": (
        "cat /var/log/nginx/access.log /var/log/nginx/error.log",
        _among(
            '10.0.0.1 - - [02/Mar/2026:10:{m:02}:{s:02} +0000] "GET /api/items/{n} HTTP/1.1" 200 12 "-" "curl/8"',
            '10.0.0.9 - - [02/Mar/2026:10:33:20 +0000] "POST /api/checkout HTTP/1.1" 502 157 "-" "Mozilla/5.0"',
            "2026/03/02 10:33:20 [error] 31#31: *8812 connect() failed (111: Connection refused) while connecting to"
            ' upstream, client: 10.0.0.9, request: "POST /api/checkout HTTP/1.1", upstream: "http://10.2.0.17:8443/"',
        ),
        ("502 POST /api/checkout", "10.2.0.17:8443", "Connection refused"),
    ),
    "cargo": (
        "cargo test",
        _behind(
            "test parser::case_{n} ... ok",
            "test parser::nested_comment ... FAILED",
            "---- parser::nested_comment stdout ----",
            "thread 'parser::nested_comment' panicked at crates/parser/src/lexer.rs:318:9:",
            "assertion `left == right` failed",
            "  left: Comment(2)",
            "  right: Comment(3)",
            "test result: FAILED. 2800 passed; 1 failed; 0 ignored; 0 measured; finished in 4.21s",
            "error: test failed, to rerun pass `-p parser --lib`",
        ),
        ("failing: parser::nested_comment", "lexer.rs:318", "right: Comment(3)"),
    ),
    "gradle": (
        "./gradlew test",
        _behind(
            "> Task :module{n}:compileJava UP-TO-DATE",
            "InvoiceServiceTest > closesMonth() FAILED",
            "    org.opentest4j.AssertionFailedError: expected: <1300> but was: <1299>",
            "        at app//com.acme.InvoiceServiceTest.closesMonth(InvoiceServiceTest.java:87)",
            "BUILD FAILED in 3m 12s",
        ),
        ("closesMonth", "InvoiceServiceTest.java:87", "<1299>"),
    ),
    "playwright": (
        "npx playwright test",
        _behind(
            "  ✓ {n} [chromium] › tests/e2e/page{n}.spec.ts:12:5 › works ({n}ms)",
            "  1) [chromium] › tests/e2e/checkout.spec.ts:58:7 › pays by invoice ──────",
            "    Error: expect(locator).toHaveText(expected)",
            '    Expected string: "Paid 1,300.00"',
            '    Received string: "Paid 1,299.00"',
            "  1 failed",
            "    [chromium] › tests/e2e/checkout.spec.ts:58:7 › pays by invoice",
            "  2800 passed (4.2m)",
        ),
        ("1 failed, 2800 passed", "pays by invoice", "checkout.spec.ts:58", "1,299.00"),
    ),
    "a commit beside its tests": (
        "git rev-parse --short HEAD && pytest -v",
        "a91c22f\n"
        + _behind(
            "tests/test_area.py::test_case_{n} PASSED",
            "tests/test_sums.py:41: AssertionError",
            "FAILED tests/test_sums.py::test_total_rounds - assert 3 == 4",
            "=========== 1 failed, 2800 passed in 61.20s ===========",
        ),
        ("a91c22f", "test_total_rounds", "3 == 4"),
    ),
    "a line like none else": (
        "journalctl -b",
        _among(
            "Mar  2 10:{m:02}:{s:02} node7 systemd[1]: Started Session {n} of user deploy.",
            "Mar  2 10:25:00 node7 kernel: Out of memory: Killed process 48213 (ledgerd)",
        ),
        ("Killed process 48213 (ledgerd)",),
    ),
    "fatal lines with variable ids": (
        "tail -n 4000 log/production.log",
        "\n".join(
            [
                *(f"I, [10:{n % 60}] INFO -- : [{n * 7919:012x}] Completed 200 OK in {n % 90}ms" for n in range(1_900)),
                "F, [10:33] FATAL -- : [ab12] ActiveRecord::RecordNotUnique (duplicate key voucher):",
                "F, [10:33] FATAL -- : [ab12] app/models/voucher.rb:57:in `redeem!'",
                *(f"I, [10:{n % 60}] INFO -- : [{n * 7907:012x}] Completed 200 OK in {n % 90}ms" for n in range(1_500)),
            ]
        ),
        ("RecordNotUnique", "voucher.rb:57"),
    ),
    "kernel": (
        "dmesg",
        _among(
            "[ {n}.{s:06}] usb 1-{s}: new device number {n}", "[ 1800.11] EXT4-fs error (device sdb1): inode #131074"
        ),
        ("sdb1", "131074"),
    ),
    "a build in a container": (
        "docker build .",
        _behind(
            "#7 {s}.1 Get:{n} http://deb.example/debian bookworm/main amd64 pkg{n} [12 kB]",
            "#14 3.112 ERROR: Could not find a version that satisfies the requirement stripe==99.1",
            "Dockerfile:22",
            "ERROR: failed to solve: process did not complete successfully: exit code: 1",
        ),
        ("stripe==99.1", "Dockerfile:22"),
    ),
}


def _call(name: str, call_id: str, result: str, **arguments: object) -> tuple[Message, Message]:
    return assistant("Let me look.", (ToolCall(call_id, name, json.dumps(arguments)),)), tool_result(call_id, result)


def _handoff(command: str, output: str) -> str:
    opening = [user("Hello there."), assistant("Hello."), user("We work on the shop."), assistant("Fine.")]
    messages = [*opening, user("Run it and tell me."), *_call("bash", "c1", output, command=command)]
    messages += [assistant("One thing failed."), user("Look at the docs meanwhile.")]
    for n in range(30):
        messages += _call("read_file", f"d{n}", "plain words of a page\n" * 60, path=f"docs/page_{n}.md")
    messages += [assistant("The docs are fine."), user("Thanks, what next?")]
    return perdure.compress([m.to_dict() for m in messages], context_length=64_000).handoff


@pytest.mark.spec("E1b", "F1")
@pytest.mark.parametrize("name", LOGS)
def test_a_log_keeps_what_failed_and_where_in_a_few_lines(name: str) -> None:
    command, output, wanted = LOGS[name]
    handoff = _handoff(command, output)
    assert [w for w in wanted if w not in handoff] == []
    assert len(set(handoff.splitlines()) - set(_handoff(command, "ok").splitlines())) <= MOST_LINES


@pytest.mark.spec("E1b")
def test_lines_that_all_differ_are_no_log() -> None:
    words = ["alder", "birch", "cedar", "douglas", "elm", "fir", "gum", "hazel", "iris", "juniper"]
    output = "\n".join(f"{words[n % 10]} {words[n // 10 % 10]} {words[n // 100 % 10]}" for n in range(400))
    line = describe_call(ToolCall("c", "bash", json.dumps({"command": "./list.sh"})), output)
    assert "log of" not in line.line


@pytest.mark.spec("E1b")
def test_a_clipped_line_keeps_the_place_that_its_middle_names() -> None:
    text = f"{'before ' * 40}raised in billing/gateways/stripe.py:431 while{' after' * 60}"
    clipped = clip_located(text, 200)
    assert len(clipped) <= 200
    assert "billing/gateways/stripe.py:431" in clipped
