"""The smoke test, against a small HTTP server that is healthy, or broken in one way."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from roles.serve import smoke
from roles.serve.smoke import Options, Server

MONTHS = " March, April, May, June, July, August, September"
OPTIONS = Options(requests=12, concurrency=4, timeout=5)


class Healthy(BaseHTTPRequestHandler):
    """Answers as SGLang does."""

    model = "tiny"
    protocol_version = "HTTP/1.1"
    key = ""

    def do_GET(self) -> None:
        self.answer({"data": [{"id": self.model}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.key and self.headers["Authorization"] != f"Bearer {self.key}":
            self.answer({"message": "Unauthorized"}, status=401)
        elif self.path == "/v1/chat/completions":
            self.answer({"choices": [{"message": self.said()}]})
        elif asked.get("stream"):
            self.events([{"choices": [{"text": word}]} for word in self.pieces()])
        else:
            self.complete(asked)

    def complete(self, asked: dict[str, Any]) -> None:
        usage = {"completion_tokens": asked["max_tokens"]}
        self.answer({"choices": [{"text": self.text()}], "usage": usage})

    def text(self) -> str:
        return MONTHS

    def pieces(self) -> list[str]:
        return MONTHS.split(" ")

    def said(self) -> dict[str, str | None]:
        return {"content": None, "reasoning_content": MONTHS}

    def answer(self, body: object, status: int = 200) -> None:
        self.send(json.dumps(body).encode(), status)

    def events(self, events: list[dict[str, Any]]) -> None:
        lines = [json.dumps(event) for event in events] + ["[DONE]"]
        self.send("".join(f"data: {line}\n\n" for line in lines).encode(), 200)

    def send(self, body: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that has given up."""


@contextmanager
def served(handler: type[Healthy]) -> Iterator[str]:
    with Quiet(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def reasons(handler: type[Healthy], options: Options = OPTIONS, key: str = "") -> list[str]:
    with served(handler) as url:
        return smoke.smoke(Server(url, "tiny", key, options.timeout), options)


def test_a_healthy_server_passes() -> None:
    assert reasons(Healthy) == []


class OtherModel(Healthy):
    model = "another"


class Forgetful(Healthy):
    answers = 0

    def text(self) -> str:
        type(self).answers += 1
        return f"{MONTHS} {self.answers}"


class Empty(Healthy):
    def text(self) -> str:
        return " \n"


class Stuck(Healthy):
    def text(self) -> str:
        return "!" * 32


class Garbled(Healthy):
    def text(self) -> str:
        return "� March � April"


class Unstreamed(Healthy):
    def pieces(self) -> list[str]:
        return [MONTHS]


class CutStream(Healthy):
    def events(self, events: list[dict[str, Any]]) -> None:
        self.send(b'data: {"choices": [{"text": "a"}]}\n\n', 200)


class Speechless(Healthy):
    def said(self) -> dict[str, str | None]:
        return {"content": "", "reasoning_content": None}


class Short(Healthy):
    def complete(self, asked: dict[str, Any]) -> None:
        self.answer({"choices": [{"text": MONTHS}], "usage": {"completion_tokens": 3}})


class Tired(Healthy):
    """Fails from its tenth completion on."""

    answers = 0

    def complete(self, asked: dict[str, Any]) -> None:
        type(self).answers += 1
        if self.answers < 10:
            super().complete(asked)
        else:
            self.answer({"message": "out of memory"}, status=500)


class Stranger(Healthy):
    """Another program's answer."""

    def do_GET(self) -> None:
        self.send(b"<html>", 200)


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (OtherModel, "/v1/models names another, not tiny"),
        (Forgetful, "at temperature 0 the same completion differs"),
        (Empty, "a completion is empty"),
        (Stuck, "a completion is one token repeated: '!!!!"),
        (Garbled, "a completion is full of replacement characters"),
        (Unstreamed, "a stream came in one piece"),
        (CutStream, "a stream did not end with [DONE]"),
        (Speechless, "a chat is empty"),
        (Short, "a completion has 3 tokens instead of 32"),
        (Tired, '/v1/completions answered 500: {"message": "out of memory"}'),
        (Stranger, "names its model: not an answer of this API"),
    ],
)
def test_a_server_that_is_broken_in_one_way_is_refused_for_it(handler: type[Healthy], reason: str) -> None:
    assert any(reason in found for found in reasons(handler))


@pytest.mark.parametrize("handler", [Empty, Stuck, Garbled, Speechless])
def test_random_weights_may_write_anything(handler: type[Healthy]) -> None:
    assert reasons(handler, Options(requests=1, concurrency=1, readable=False)) == []


def test_a_server_that_hangs_under_load_costs_one_timeout_and_says_which_request() -> None:
    release, unanswered = threading.Event(), []

    class Hangs(Healthy):
        def complete(self, asked: dict[str, Any]) -> None:
            number = asked["prompt"].partition(" ")[0]
            if number.isdigit() and int(number) >= 5:
                unanswered.append(number)
                release.wait()
            super().complete(asked)

    found = reasons(Hangs, Options(requests=20, concurrency=1, timeout=0.2))
    release.set()

    assert found == ["request 6 of 20 under load: /v1/completions gave no answer in 0.2 s"]
    assert unanswered == ["5"]


def test_a_server_that_is_gone_is_a_failed_test_not_a_crash() -> None:
    with served(Healthy) as url:
        pass

    found = smoke.smoke(Server(url, "tiny", "", 5), OPTIONS)

    assert len(found) == len(smoke.CHECKS)
    assert "Connection refused" in found[0]


def test_the_key_comes_from_the_environment_and_the_verdict_is_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Guarded(Healthy):
        key = "s3cret"

    with served(Guarded) as url:
        arguments = [url, "tiny", '{"requests": 2, "concurrency": 1}']
        assert smoke.main(arguments) == 1
        refused = json.loads(capsys.readouterr().out)
        monkeypatch.setenv("SLIPWAY_API_KEY", "s3cret")
        assert smoke.main(arguments) == 0
        verdict = json.loads(capsys.readouterr().out)

    assert "answered 401" in refused["reasons"][0]
    assert (verdict["passed"], verdict["reasons"]) == (True, [])


def test_what_a_server_tells_of_its_memory_is_in_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    class Telling(Healthy):
        def do_GET(self) -> None:
            if self.path == "/server_info":
                self.answer(
                    {"internal_states": [{"memory_usage": {"weight": 71.8}}, {"memory_usage": {"weight": 1}}]}
                )
            else:
                super().do_GET()

    memory = []
    for handler in (Telling, Healthy):
        with served(handler) as url:
            assert smoke.main([url, "tiny", '{"requests": 2, "concurrency": 1}']) == 0
            memory.append(json.loads(capsys.readouterr().out)["memory"])
    assert memory == [{"weight": 71.8}, {}]


@pytest.mark.parametrize("text", [MONTHS, "no no", "1, 2, 3, 4, 5", "März, April, Mai �", "..."])
def test_ordinary_text_is_not_called_broken(text: str) -> None:
    assert smoke.broken(text) == ""


@pytest.mark.parametrize("text", ["", "\n", "the the the the the", "ababababab", "����", "\x00" * 16])
def test_what_a_broken_kernel_writes_is_called_broken(text: str) -> None:
    assert smoke.broken(text)
