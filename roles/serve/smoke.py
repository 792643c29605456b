"""Ask a server that says it is ready for real answers. Runs on the host: stdlib only.

    smoke.py URL MODEL [OPTIONS]      e.g. http://127.0.0.1:30000 kimi-k2.6 '{"concurrency": 16}'

OPTIONS is a JSON object of the fields of Options. The API key, if any, is in the environment variable
SLIPWAY_API_KEY. Prints one JSON object, {"passed": …, "reasons": […], "seconds": …, "memory": {…}}; exit status 0 if
passed. `memory` is what the server reports of its own; it proves nothing, but somebody may have predicted it.
"""

import http.client
import json
import os
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

# A continuation that is neither short nor the same word again, from a base model as from a chat model.
PROMPT = "The months of the year in order are January, February,"


class Failed(Exception):  # noqa: N818 -- it is the check that failed
    """A check that a healthy server passes, in one sentence."""


class Options(NamedTuple):
    requests: int = 160
    """Short requests sent one after another by `concurrency` clients: some servers hang after 80 to 140."""
    concurrency: int = 32
    tokens: int = 32
    """Length of the answers that are read."""
    repeats: int = 3
    """How often the same completion is asked for at temperature 0."""
    readable: bool = True
    """Refuse text as a broken kernel makes it; random weights make it too."""
    timeout: float = 120
    """Seconds without a byte after which one request counts as unanswered."""


class Server:
    """An OpenAI-compatible server; every method raises Failed unless it gets an answer."""

    def __init__(self, url: str, model: str, key: str, timeout: float) -> None:
        self._address = urlsplit(url).netloc
        self.model = model
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def models(self) -> list[str]:
        return [entry["id"] for entry in json.loads(self._ask("GET", "/v1/models"))["data"]]

    def complete(self, prompt: str, tokens: int) -> str:
        """The text that continues `prompt`, exactly `tokens` long, most probable token by token."""
        answer = json.loads(self._ask("POST", "/v1/completions", self._completion(prompt, tokens)))
        if answer["usage"]["completion_tokens"] != tokens:
            raise Failed(f"a completion has {answer['usage']['completion_tokens']} tokens instead of {tokens}")
        return str(answer["choices"][0]["text"])

    def stream(self, prompt: str, tokens: int) -> str:
        """The same as a stream of server-sent events, which must arrive in pieces and end as agreed."""
        asked = self._completion(prompt, tokens) | {"stream": True}
        events = re.findall(r"^data: ?(.*)$", self._ask("POST", "/v1/completions", asked), re.MULTILINE)
        if not events or events[-1].strip() != "[DONE]":
            raise Failed("a stream did not end with [DONE]")
        pieces = [json.loads(event) for event in events[:-1]]
        if len(pieces) < 2:
            raise Failed("a stream came in one piece")
        return "".join(choice["text"] or "" for piece in pieces for choice in piece["choices"])

    def chat(self, message: str, tokens: int) -> str:
        """The answer to a chat message, what the model thought before it included."""
        asked = {
            "model": self.model,
            "messages": [{"role": "user", "content": message}],
            "temperature": 0,
            "max_tokens": tokens,
        }
        said = json.loads(self._ask("POST", "/v1/chat/completions", asked))["choices"][0]["message"]
        return (said.get("reasoning_content") or "") + (said.get("content") or "")

    def memory(self) -> dict[str, Any]:
        """SGLang's `memory_usage` of its first rank: sizes in GiB, and tokens; {} where the server does not tell."""
        try:
            return dict(json.loads(self._ask("GET", "/server_info"))["internal_states"][0]["memory_usage"])
        except (Failed, ValueError, LookupError, TypeError):
            return {}

    def _completion(self, prompt: str, tokens: int) -> dict[str, Any]:
        # ignore_eos is SGLang's own: a model may want to stop at once, which would prove nothing.
        return {
            "model": self.model,
            "prompt": prompt,
            "temperature": 0,
            "max_tokens": tokens,
            "ignore_eos": True,
        }

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        connection = http.client.HTTPConnection(self._address, timeout=self._timeout)
        try:
            connection.request(method, path, json.dumps(body) if body else None, self._headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except TimeoutError:
            raise Failed(f"{path} gave no answer in {self._timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{path} broke off: {error!r}") from None
        finally:
            connection.close()
        if response.status != 200:
            raise Failed(f"{path} answered {response.status}: {text[:200]}")
        return text


def names_its_model(server: Server, options: Options) -> None:
    """/v1/models names the model that clients will ask for."""
    if server.model not in (models := server.models()):
        raise Failed(f"/v1/models names {', '.join(models) or 'nothing'}, not {server.model}")


def repeats_itself(server: Server, options: Options) -> None:
    """At temperature 0, the same question gets the same, readable, answer."""
    # The first answer computes the whole prompt, the later ones find it in the prefix cache: other kernels.
    check_readable("a completion", server.complete(PROMPT, options.tokens), options)
    texts = {server.complete(PROMPT, options.tokens) for _ in range(options.repeats)}
    if len(texts) > 1:
        first, second = sorted(texts)[:2]
        raise Failed(f"at temperature 0 the same completion differs: {first[:80]!r} and {second[:80]!r}")


def streams(server: Server, options: Options) -> None:
    check_readable("a stream", server.stream(PROMPT, options.tokens), options)


def chats(server: Server, options: Options) -> None:
    check_readable("a chat", server.chat("Name the months of the year.", options.tokens), options)


def bears_load(server: Server, options: Options) -> None:
    """Many short requests, a few at a time, are all answered."""
    failures: list[str] = []

    def ask(number: int) -> None:
        # A server that hangs is given one timeout, not one for every request left.
        if not failures:
            try:
                server.complete(f"{number} {PROMPT}", 8)
            except Failed as failed:
                failures.append(f"request {number + 1} of {options.requests} under load: {failed}")

    with ThreadPoolExecutor(options.concurrency) as clients:
        list(clients.map(ask, range(options.requests)))
    if failures:
        raise Failed(failures[0])


def check_readable(what: str, text: str, options: Options) -> None:
    """Refuse text that a language model does not write and a broken kernel does."""
    if options.readable and (problem := broken(text)):
        raise Failed(f"{what} is {problem}: {text[:80]!r}")


def broken(text: str) -> str:
    """What is wrong with `text`; empty if nothing is."""
    if not text.strip():
        return "empty"
    if "\N{REPLACEMENT CHARACTER}" in text.rstrip("\N{REPLACEMENT CHARACTER}"):
        # At the very end it is only a character cut in two by the length limit.
        return "full of replacement characters"
    if any(repeats(text.strip(), length) for length in range(1, 25)):
        return "one token repeated"
    return ""


def repeats(text: str, length: int) -> bool:
    """Whether `text` is its first `length` characters four times or more."""
    return len(text) >= 4 * length and text == (text[:length] * len(text))[: len(text)]


CHECKS: tuple[Callable[[Server, Options], None], ...] = (
    names_its_model,
    repeats_itself,
    streams,
    chats,
    bears_load,
)


def smoke(server: Server, options: Options) -> list[str]:
    """Every reason why the server must not serve; none if it may."""
    reasons = []
    for check in CHECKS:
        try:
            check(server, options)
        except Failed as failed:
            reasons.append(str(failed))
        except (ValueError, LookupError, TypeError) as error:
            reasons.append(f"{check.__name__.replace('_', ' ')}: not an answer of this API: {error!r}")
    return reasons


def main(arguments: list[str]) -> int:
    url, model, *rest = arguments
    options = Options(**json.loads(rest[0])) if rest else Options()
    began = time.monotonic()
    server = Server(url, model, os.environ.get("SLIPWAY_API_KEY", ""), options.timeout)
    reasons = smoke(server, options)
    seconds = round(time.monotonic() - began, 1)
    memory = {} if reasons else server.memory()
    print(json.dumps({"passed": not reasons, "reasons": reasons, "seconds": seconds, "memory": memory}))
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
