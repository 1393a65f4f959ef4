"""An MCP server of the protocol with sessions, which the official package no longer writes: `… PORT STATUS`.

A call in a session it does not know is refused with STATUS: 404 by the specification, 400 by some servers.
"""

from __future__ import annotations

import json
import sys
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT, STATUS = int(sys.argv[1]), int(sys.argv[2])
SESSIONS: set[str] = set()
ADD = {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session, method = self.headers.get("mcp-session-id"), request.get("method")
        if session is not None and session not in SESSIONS:
            self.reply(STATUS, {"error": "Bad Request: No valid session ID provided"})
        elif method == "initialize":
            SESSIONS.add(fresh := uuid.uuid4().hex)
            version = request["params"]["protocolVersion"]
            info = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            }
            self.answer(request, {"result": info}, {"mcp-session-id": fresh})
        elif "id" not in request:
            self.reply(202, None)
        elif method == "tools/list":
            self.answer(request, {"result": {"tools": [ADD]}})
        elif method == "tools/call":
            total = sum(request["params"]["arguments"].values())
            self.answer(request, {"result": {"content": [{"type": "text", "text": str(total)}]}})
        else:
            self.answer(request, {"error": {"code": -32601, "message": f"no method {method}"}})

    def do_GET(self) -> None:
        self.reply(405, None)

    def do_DELETE(self) -> None:
        self.reply(200, None)

    def answer(self, request: dict[str, Any], values: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.reply(200, {"jsonrpc": "2.0", "id": request["id"], **values}, headers)

    def reply(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
