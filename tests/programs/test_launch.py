"""The program that starts a server with keys: SGLang gets them, and nobody else on the host does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roles.serve import launch

API_KEY, ADMIN_KEY = "api-0123456789abcdef", "admin-0123456789abcdef"

# What SGLang does with its flags, as far as keys are concerned: it logs them, and its ranks import the program anew.
SGLANG = """
import json, logging, multiprocessing, sys
from pathlib import Path

def rank(results):
    results.put(Path("/proc/self/cmdline").read_text())

def main():
    logging.basicConfig(level="INFO", stream=sys.stderr, force=True)
    logging.info("server_args=%s", sys.argv)
    logging.info(f"api_key={sys.argv[-1]}")
    logging.info("100 %")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=rank, args=(results,))
    process.start()
    seen = results.get()
    process.join()
    print(json.dumps([sys.argv, Path("/proc/self/cmdline").read_text() + seen]))
"""


def started(folder: Path, **keys: str) -> tuple[list[str], str, str]:
    """The arguments that SGLang got, the command lines that others see, and the log."""
    package, credentials = folder / "path/sglang/cli", folder / "credentials"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text(SGLANG)
    credentials.mkdir()
    for name, key in keys.items():
        (credentials / name.replace("_", "-")).write_text(f"{key}\n")
    done = subprocess.run(
        [sys.executable, "-P", launch.__file__, "serve", "--port", "1"],
        env={**os.environ, "PYTHONPATH": str(folder / "path"), "CREDENTIALS_DIRECTORY": str(credentials)},
        capture_output=True,
        text=True,
        check=True,
    )
    arguments, command_lines = json.loads(done.stdout)
    return arguments, command_lines, done.stderr


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str, str]:
    return started(tmp_path_factory.mktemp("both"), api_key=API_KEY, admin_key=ADMIN_KEY)


def test_sglang_gets_the_keys_after_its_other_flags(both: tuple[list[str], str, str]) -> None:
    assert both[0] == [
        *("sglang", "serve", "--port", "1"),
        *("--api-key", API_KEY, "--admin-api-key", ADMIN_KEY),
    ]


def test_the_command_lines_of_the_server_and_its_ranks_hold_no_key(both: tuple[list[str], str, str]) -> None:
    assert "launch.py" in both[1]
    assert "spawn_main" in both[1]
    assert API_KEY not in both[1]
    assert ADMIN_KEY not in both[1]


def test_the_log_holds_no_key_and_all_else(both: tuple[list[str], str, str]) -> None:
    assert API_KEY not in both[2]
    assert ADMIN_KEY not in both[2]
    assert "INFO:root:server_args=['sglang', 'serve', '--port', '1', '--api-key', '(key)'" in both[2]
    assert "INFO:root:api_key=(key)" in both[2]
    assert "INFO:root:100 %" in both[2]


def test_one_key_alone(tmp_path: Path) -> None:
    assert started(tmp_path, api_key=API_KEY)[0][4:] == ["--api-key", API_KEY]
