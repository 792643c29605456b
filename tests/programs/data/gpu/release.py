"""Stands in for `sglang serve` of a release: logs what a server logs, and answers what it answers."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORDS = sys.argv[1:]
USAGE = {
    "weight": 15.28,
    "kvcache": 103.04,
    "token_capacity": 750326,
    "startup_available": 17.9,
    "graph": {"prefill": 1.44, "decode": 0.25},
}


def value(flag: str) -> str:
    return WORDS[WORDS.index(flag) + 1]


class Server(ThreadingHTTPServer):
    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answers: dict[str, object] = {
            "/ready": {},
            "/server_info": {"internal_states": [{"memory_usage": USAGE}]},
            "/v1/models": {"data": [{"id": value("--served-model-name")}]},
        }
        self.answer(json.dumps(answers[self.path]))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens, text = asked["max_tokens"], "w1 w2"
        if asked.get("stream"):
            piece = json.dumps({"choices": [{"text": "w1"}]})
            self.answer(f"data: {piece}\n\ndata: {piece}\n\ndata: [DONE]\n\n")
        elif "messages" in asked:
            self.answer(json.dumps({"choices": [{"message": {"content": text}}]}))
        else:
            self.answer(json.dumps({"choices": [{"text": text}], "usage": {"completion_tokens": tokens}}))

    def answer(self, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    if "--no-such-flag" in WORDS:
        sys.exit("sglang serve: error: unrecognized arguments: --no-such-flag 3")
    assert json.loads((Path(value("--model-path")) / "config.json").read_text())["hidden_size"]
    print("[2026-11-30 20:00:00] Load weight begin. avail mem=139.08 GB", flush=True)
    if value("--load-format") != "dummy":
        print(f"RuntimeError: Cannot find any model weights with `{value('--model-path')}`", flush=True)
        sys.exit(1)
    server = Server(("127.0.0.1", int(value("--port"))), Handler)
    held = {"tp": 0, "pp": 0, "draft": False, "weights": 16381470724, "kv": 110638202880, "tokens": 750327}
    print("rank holds: " + json.dumps(held))
    print("[2026-11-30 20:00:01] Load weight end. elapsed=1.0 s, avail mem=123.92 GB, mem usage=15.28 GB.")
    print("[2026-11-30 20:00:01] Memory pool end. avail mem=20.10 GB")
    print("[2026-11-30 20:00:02] max_total_num_tokens=750326, available_gpu_mem=17.90 GB", flush=True)
    server.serve_forever()


main()
