"""The TLS front before a server that is told when to go on, so that no test waits for a clock."""

import shlex
from pathlib import Path
from typing import Final

import pytest

from tests.lab import hosts
from tests.lab.conftest import Run, pyinfra, told

pytestmark = pytest.mark.usefixtures("lab")

PORT: Final = 30777
"""Of the stand-in for SGLang."""

# Sends the first of two events and holds the second until it is asked for /go.
STAND_IN: Final = f"""
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

go = threading.Event()

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        go.set()
        self.answer(b"went")
    def do_POST(self):
        size = int(self.headers["Content-Length"])
        self.rfile.read(size)
        if self.path == "/size":
            return self.answer(str(size).encode())
        go.clear()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event(b"data: first\\n\\n")
        go.wait(60)
        self.event(b"data: [DONE]\\n\\n")
        self.wfile.write(b"0\\r\\n\\r\\n")
    def event(self, text):
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(text), text))
    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

ThreadingHTTPServer(("127.0.0.1", {PORT}), Handler).serve_forever()
"""

CURL: Final = "curl -sS --max-time 30 --cacert /etc/slipway/front.pem"
URL: Final = "https://localhost:8443"


def front(folder: Path, *options: str, rate: str = "1000") -> Run:
    """The role alone, before the stand-in's port."""
    (folder / "front.py").write_text("from roles.front.tasks import front\n\nfront()\n")
    settings = [f"serve_port={PORT}", "serve_open=true", "front_port=8443", f"front_rate={rate}", "front_burst=5"]
    data = [word for setting in (*settings, *options) for word in ("--data", setting)]
    return pyinfra("-y", "inventory", str(folder / "front.py"), *data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("front")


@pytest.fixture(scope="module", autouse=True)
def before_the_stand_in(lab: str, folder: Path) -> None:
    hosts.run("lab", f"printf %s {shlex.quote(STAND_IN)} > /root/stand_in.py")
    hosts.run("lab", "systemd-run --quiet --unit=stand-in python3 /root/stand_in.py")
    run = front(folder, "front_enabled=true", "front_body_mib=1")
    assert run.returncode == 0, told(run)


def status(arguments: str) -> str:
    return hosts.run("lab", f"{CURL} -o /dev/null -w '%{{http_code}}' {arguments}")


def test_a_stream_is_passed_on_event_by_event() -> None:
    """Were it held back, the first event would wait for the second, that for /go, and /go for the first."""
    said = hosts.run(
        "lab",
        f"{CURL} -N -d x {URL}/stream | while read -r line; do "
        f'echo "$line"; case "$line" in *first*) {CURL} {URL}/go; echo;; esac; done',
    )
    assert said.split() == ["data:", "first", "went", "data:", "[DONE]"]


def test_what_shows_keys_is_not_passed_on_in_any_spelling() -> None:
    for path in ("server_info", "get_server_info", "metrics", "metrics/", "//server_info", "x/../server%5Finfo"):
        assert (path, status(f"--path-as-is {URL}/{path}")) == (path, "404")


def test_a_body_may_have_its_size_and_no_more() -> None:
    hosts.run("lab", "head -c 1000000 /dev/zero > /root/fits; head -c 1100000 /dev/zero > /root/exceeds")
    assert status(f"--data-binary @/root/fits {URL}/size") == "200"
    assert status(f"--data-binary @/root/exceeds {URL}/size") == "413"


def test_a_second_run_changes_nothing_and_nginx_of_the_distribution_does_not_run(folder: Path) -> None:
    run = front(folder, "front_enabled=true", "front_body_mib=1")
    assert run.returncode == 0, told(run)
    assert "] Success" not in run.stdout + run.stderr
    assert hosts.run("lab", "systemctl is-active nginx", check=False).strip() == "inactive"


def test_too_many_requests_from_one_address_are_told_so_after_a_reload(folder: Path) -> None:
    pid = "systemctl show --property=MainPID --value slipway-front"
    before = hosts.run("lab", pid)
    run = front(folder, "front_enabled=true", "front_body_mib=1", rate="1")
    assert run.returncode == 0, told(run)
    assert hosts.run("lab", pid) == before
    answers = hosts.run("lab", f"{CURL} -o /dev/null -w '%{{http_code}} ' --parallel '{URL}/[1-30]'").split()
    assert set(answers) == {"200", "429"}


def test_without_a_key_it_is_refused(folder: Path) -> None:
    run = front(folder, "front_enabled=true", "serve_open=false")
    assert run.returncode == 1
    assert "front_enabled lets others reach the server without a key" in run.stdout + run.stderr


def test_switched_off_it_is_gone(folder: Path) -> None:
    run = front(folder)
    assert run.returncode == 0, told(run)
    assert hosts.run("lab", "ss -Hltn 'sport = :8443'") == ""
    assert hosts.run("lab", "ls /etc/systemd/system /etc/slipway").count("front") == 2  # the certificate and its key
