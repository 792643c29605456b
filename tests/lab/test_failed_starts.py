"""Servers that cannot start, on a host of their own: each is explained, and the old one answers as before."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.lab import hosts, memory_limit
from tests.lab.conftest import told
from tests.lab.site import Site
from tests.lab.test_switch import enabled

pytestmark = pytest.mark.long

HOST = "failing"
PORT = 30012
OLD, NEW = "sglang-tiny-tp1.service", "sglang-tiny-tp2.service"
WRITTEN = ("/etc/systemd/system", "/var/lib/slipway", "/var/cache/slipway")
WEIGHTS = "/var/lib/slipway/models/tiny-qwen3/*/model.safetensors"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The host serves the old profile."""
    hosts.reset(HOST)
    site = Site(tmp_path_factory.mktemp(HOST), HOST, PORT)
    run = site.deploy()
    assert run.returncode == 0, told(run)
    yield site
    hosts.down(HOST)


@pytest.fixture(autouse=True)
def as_before(site: Site) -> Iterator[None]:
    """Afterwards the old server answers what it answered, nothing is lost, and the next run leaves it alone."""
    answer, before = completion(), kept()
    yield
    assert completion() == answer
    assert enabled(HOST) == {OLD}
    assert before <= kept()
    served_by = process(OLD)
    run = site.deploy()
    assert run.returncode == 0, told(run)
    assert process(OLD) == served_by


def ask(command: str) -> str:
    return hosts.run(HOST, command)


def completion() -> str:
    """What the server that runs says, without any chance in it."""
    request = json.dumps({"model": "tiny", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    url = f"http://127.0.0.1:{PORT}/v1/completions"
    answer = ask(f"curl -fsS {url} -H 'Content-Type: application/json' -d '{request}'")
    return str(json.loads(answer)["choices"][0]["text"])


def kept() -> set[str]:
    """The records, and the lines of the history."""
    return set(ask("ls /var/lib/slipway/records; cat /var/lib/slipway/good.jsonl").splitlines())


def process(unit: str) -> str:
    return ask(f"systemctl show --property=MainPID,ExecMainStartTimestampMonotonic {unit}")


def explained(output: str, kind: str, advice: str) -> None:
    """The run said why and what to do, and that the old one serves again; the host keeps the reason."""
    assert re.search(rf"\b{kind}: .+\n *advice: .*{advice}", output), output
    assert f"{OLD} serves again, as before" in output
    assert kind in ask("cat /var/lib/slipway/last-failure.txt")


def test_flags_that_only_a_start_can_refuse(site: Site) -> None:
    site.profile("refused", server={"page_size": 64, "chunked_prefill_size": 1000})
    run = site.deploy("profile=refused")
    assert run.returncode == 1, told(run)
    explained(run.stderr, "flags refused", "correct the flags")
    assert "evidence: AssertionError: chunked_prefill_size must be divisible by page_size" in run.stderr


def test_weights_that_the_server_may_not_read_stop_nothing(site: Site) -> None:
    before = process(OLD)
    ask(f"chmod 0600 {WEIGHTS}")
    try:
        run = site.deploy("profile=tiny-tp2")
        assert run.returncode == 1, told(run)
        assert re.search(r"tiny-tp2: .* sglang may not read .*model\.safetensors; `chmod -R a\+rX /var", run.stderr)
        assert process(OLD) == before
    finally:
        ask(f"chmod 0644 {WEIGHTS}")


def test_weights_that_are_cut_off_under_the_run_are_brought_again_by_the_next(site: Site) -> None:
    site.model("other")
    site.profile("other", model="other")
    run = site.deploying("profile=other")
    run.until("starting sglang-other.service")
    ask(f"truncate --size=-1 {WEIGHTS.replace('tiny-qwen3', 'other')}")
    assert run.end() == 1, run.text
    explained(run.text, "weights damaged", "deploy again")
    for profile in ("other", "tiny-tp1"):
        again = site.deploy(f"profile={profile}")
        assert again.returncode == 0, told(again)


def test_a_server_that_hangs_is_ended_by_its_deadline(site: Site) -> None:
    run = site.deploying("profile=tiny-tp2", "serve_ready_limit=15")
    run.until("of at most 15 s")
    ask(f"systemctl kill --signal=STOP {NEW}")
    assert run.end() == 1, run.text
    explained(run.text, "not ready in time", "raise the limit")


@pytest.mark.skipif(
    not memory_limit.CONTROLLER.is_dir(), reason="this machine has no memory controller of version 1 to take from"
)
def test_a_rank_that_the_kernels_oom_killer_ends(site: Site) -> None:
    with memory_limit.little_memory(HOST) as group:
        run = site.deploying("profile=tiny-tp2")
        run.until("connecting the ranks")
        memory_limit.move(group, HOST, NEW, "sglang::schedul")
        assert run.end() == 1, run.text
        assert memory_limit.killed(group) == 1
    explained(run.text, "a process was killed", "OOM killer")


def test_a_server_that_dies_while_it_is_asked(site: Site) -> None:
    site.profile("dying", environment={"DYING": "1"})
    run = site.deploying("profile=dying")
    run.until("asking for real answers")
    ask("pkill --signal KILL sglang::schedul")
    assert run.end() == 1, run.text
    explained(run.text, "a process was killed", "OOM killer")


@pytest.fixture(scope="module")
def disk(site: Site) -> None:
    """What a switch writes lies on a small disk of its own from now on."""
    ask(f"""set -e
mount -t tmpfs -o size=48m,mode=755 disk /mnt
for folder in {" ".join(WRITTEN)}; do
    mkdir -p /mnt$folder
    cp -a $folder/. /mnt$folder/
    mount --bind /mnt$folder $folder
done""")


FILL = "cat /dev/zero > /mnt/filler 2> /dev/null || true"
FREE = "rm /mnt/filler"


@pytest.mark.usefixtures("disk")
def test_a_disk_that_is_full_stops_nothing(site: Site) -> None:
    ask(FILL)
    before = process(OLD)
    run = site.deploy("profile=tiny-tp2")
    assert run.returncode == 1, told(run)
    full = (
        "nothing more can be written to /etc/systemd/system, /var/lib/slipway, /var/cache/slipway: free space there"
    )
    assert full in run.stderr
    assert process(OLD) == before
    ask(FREE)


@pytest.mark.usefixtures("disk")
def test_a_disk_that_fills_up_during_a_switch(site: Site) -> None:
    site.profile("newcomer")  # the old unit names it from now on, and did not when it was accepted
    assert site.deploy().returncode == 0
    run = site.deploying("profile=tiny-tp2")
    run.until(f"starting {NEW}")
    ask(FILL)
    assert run.end() == 1, run.text
    assert "No space left on device" in run.text
    assert f"{OLD} serves again, as before" in run.text
    ask(FREE)
    for profile in ("tiny-tp2", "tiny-tp1"):
        again = site.deploy(f"profile={profile}")
        assert again.returncode == 0, told(again)
