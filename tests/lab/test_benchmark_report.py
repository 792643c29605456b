"""The report in a real browser: it loads without complaint, shows the numbers, and follows the dark mode."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from roles.benchmark.report import write_report
from tests.unit.benchmark_records import point, record

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
pytestmark = needs_chromium

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    (folder / "box").mkdir()
    for day, profile in enumerate(["tiny-tp1", "tiny-tp2"]):
        series = {point(1): [21.7 + day] * 3, point(8): [108.4 + day, 110 + day, 107 + day]}
        one = record(series, day=day, profile=profile, accepted=True, p95_ttft_ms=100.0, p95_tpot_ms=99.0)
        (folder / "box" / one.name).write_text(one.to_json())
    write_report(folder)
    return folder / "report.html"


def browse(page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """The document as the browser has it, and what it wrote to its console."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--enable-logging=stderr", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, "\n".join(re.findall(r".*CONSOLE.*", done.stderr))


def test_the_numbers_are_shown_and_the_console_stays_empty(page: Path, tmp_path: Path) -> None:
    document, console = browse(page, tmp_path, "--dump-dom")
    for text in ("21.7", "108.4", "tiny-tp1", "tiny-tp2", "Throughput, chat"):
        assert text in document
    assert console == ""


def test_an_error_would_be_seen(page: Path, tmp_path: Path) -> None:
    """So that the empty console above means something."""
    broken = page.with_name("broken.html")
    broken.write_text(page.read_text().replace("</body>", "<script>missing()</script></body>"))
    assert "missing is not defined" in browse(broken, tmp_path, "--dump-dom")[1]


def test_dark_mode_is_dark(page: Path, tmp_path: Path) -> None:
    """The page's own corner of a screenshot, in both modes."""
    import matplotlib.image

    corners = []
    for name, options in (("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))):
        shot = tmp_path / f"{name}.png"
        browse(page, tmp_path / name, f"--screenshot={shot}", "--window-size=1000,1400", *options)
        corners.append(float(matplotlib.image.imread(shot)[0, 0, :3].mean()))
    light, dark = corners
    assert light > 0.9
    assert dark < 0.2
