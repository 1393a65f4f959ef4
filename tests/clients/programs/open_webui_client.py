"""Open WebUI: a server of its own with its built-in tools, and two messages of one chat as the browser sends them."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import uuid

import httpx

START_S, ANSWER_S = 180, 60


def main():
    request = json.load(sys.stdin)
    folder = pathlib.Path(tempfile.mkdtemp())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "DATA_DIR": str(folder / "data"),
        "OPENAI_API_BASE_URL": os.environ["PERDURE_URL"],
        "OPENAI_API_KEY": os.environ["PERDURE_KEY"],
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "test",
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "RAG_EMBEDDING_ENGINE": "openai",
        "ANONYMIZED_TELEMETRY": "False",
    }
    program = pathlib.Path(sys.executable).with_name("open-webui")
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [program, "serve", "--host", "127.0.0.1", "--port", str(port)], env=environment, stdout=log, stderr=log
        )
    try:
        print(json.dumps(converse(f"http://127.0.0.1:{port}", request)))
    finally:
        server.terminate()
        server.wait()


def converse(url, request):
    client = httpx.Client(base_url=url, trust_env=False, timeout=ANSWER_S)
    wait_for(lambda: is_up(client), START_S)
    token = client.post("/api/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
    client.headers["Authorization"] = f"Bearer {token}"
    models = [m["id"] for m in client.get("/api/models").json()["data"]]
    chat = Chat(client)
    return {
        "models": models,
        "tools": chat.say(request["open_webui_plan"]),
        "again": chat.say("and then?"),
    }


def is_up(client):
    try:
        return client.get("/health").status_code == 200
    except httpx.HTTPError:
        return False


def wait_for(condition, limit_s):
    give_up = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > give_up:
            raise TimeoutError("Open WebUI did not get there")
        time.sleep(0.3)
    return value


class Chat:
    """One stored chat: each message is answered in the background, and read from the chat."""

    def __init__(self, client):
        self.client = client
        self.messages = {}
        self.id = None

    def say(self, text):
        parent = next(reversed(self.messages), None)
        asked, answer, now = str(uuid.uuid4()), str(uuid.uuid4()), int(time.time())
        common = {"childrenIds": [], "timestamp": now}
        question = {**common, "id": asked, "parentId": parent, "childrenIds": [answer], "role": "user"}
        question |= {"content": text, "models": ["perdure"]}
        self.messages[asked] = question
        reply = {**common, "id": answer, "parentId": asked, "role": "assistant", "content": "", "model": "perdure"}
        self.messages[answer] = reply
        history = {"messages": self.messages, "currentId": answer}
        chat = {"title": "New Chat", "models": ["perdure"], "history": history, "messages": [], "tags": []}
        path = "/api/v1/chats/new" if self.id is None else f"/api/v1/chats/{self.id}"
        self.id = self.client.post(path, json={"chat": chat}).raise_for_status().json()["id"]
        sent = [{"role": m["role"], "content": m["content"]} for m in self.messages.values() if m["id"] != answer]
        body = {
            "stream": True,
            "model": "perdure",
            "messages": sent,
            "params": {},
            "tool_servers": [],
            "features": {},
            "variables": {},
            "session_id": str(uuid.uuid4()),
            "chat_id": self.id,
            "id": answer,
            "parent_id": asked,
            "user_message": question,
            "background_tasks": {},
        }
        self.client.post("/api/chat/completions", json=body).raise_for_status()
        self.messages[answer] = wait_for(lambda: self.finished(answer), ANSWER_S)
        return self.messages[answer]["content"] or str(self.messages[answer].get("error"))

    def finished(self, answer):
        stored = self.client.get(f"/api/v1/chats/{self.id}").json()["chat"]["history"]["messages"].get(answer, {})
        return stored if stored.get("done") or stored.get("error") else None


main()
