"""The report and the terminal's table: the numbers are there, and nothing can break them."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from roles.benchmark.benchmark import Benchmark
from roles.benchmark.gate import judge
from roles.benchmark.record import Ceiling, Environment, Prediction, Record
from roles.benchmark.report import main, read_results, write_report
from roles.benchmark.sweep import Entry, Sweep
from roles.benchmark.table import table
from tests.unit.benchmark_records import START, point, record

BLOCK = Benchmark.read(
    {
        "concurrencies": [1, 8],
        "traffic": {"chat": {"input_tokens": 64, "output_tokens": 32}},
        "floors": [{"traffic": "chat", "concurrency": 8, "tokens_per_second": 150}],
    },
    "x",
)


def judged(profile: str, rate: float, day: int = 0, torch: str = "2.14.1") -> Record:
    series = {point(1): [rate / 5] * 3, point(8): [rate, rate * 1.02, rate * 0.98]}
    ceiling = Ceiling(traffic="chat", concurrency=8, output_tokens_per_second=1234.5)
    measured = record(series, day=day, profile=profile, p95_ttft_ms=100.0, p95_tpot_ms=60.0).model_copy(
        update={
            "references": {8: 577.8},
            "prediction": Prediction(memory={"weights_gib": 72.53}, ceilings=(ceiling,)),
            "memory": {"weights_gib": 72.61},
            "startup_seconds": 83.2,
            "environment": Environment(packages={"torch": torch}, command=("sglang", "serve", "--tp-size", "8")),
        }
    )
    return measured.model_copy(update={"verdict": judge(measured, [], BLOCK)})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two profiles, one of which misses its floor, a crash, a sweep, and a broken file."""
    folder = tmp_path_factory.mktemp("results")
    host = folder / "box"
    (host / "sweeps").mkdir(parents=True)
    fast, slow = judged("fast", 217.3), judged("slow", 101.7, day=1, torch="2.14.2")
    crash = record([], day=2, profile="crash").model_copy(
        update={"failure": "out of memory: 672 MiB asked", "log": ("<script>alert(1)</script>",)}
    )
    for one in (fast, slow, crash):
        (host / one.name).write_text(one.to_json())
    entries = (
        Entry(name="fast", status="measured", record=fast.name),
        Entry(name="slow", changes={"server.page_size": 64}, status="measured", record=slow.name),
        Entry(name="never", status="skipped", cause="tp 4 x ep 2 uses 4 of 8 GPUs"),
    )
    sweep = Sweep(key="0", host="box", base="fast", mode="ablation", level="full", started=START, entries=entries)
    (host / "sweeps" / "0.json").write_text(sweep.model_dump_json())
    (host / "broken.json").write_text('{"schema_ver')
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def html(results: Path) -> str:
    return (results / "report.html").read_text()


@pytest.fixture(scope="module")
def markdown(results: Path) -> str:
    return (results / "report.md").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "217.3",
        "101.7",
        "577.8",
        "1,234.5",
        "out of memory: 672 MiB asked",
        "floor 150.0",
        "tp 4 x ep 2 uses 4 of 8 GPUs",
        "page_size=64",
        "72.53",
        "72.61",
        "0:01:23",
        "2. slow (101.7 tok/s)",
        "nothing is better for one user or for all",
        "slower",
        "broken.json: not a whole benchmark record",
    ],
)
def test_both_forms_hold_every_number_and_cause(html: str, markdown: str, text: str) -> None:
    assert text in html
    assert text in markdown


def test_differences_of_the_environment_are_marked(html: str, markdown: str) -> None:
    assert "<td>2.14.1</td><td><mark>2.14.2</mark></td>" in html
    assert "| torch | 2.14.1 | **2.14.2** |" in markdown


def test_the_page_needs_nothing_else(html: str) -> None:
    """No script, and no address that a browser would load."""
    assert "<script" not in html
    loaded = re.findall(r'(?:src|href)="([^"#][^"]*)"|url\((?!#)([^)]*)\)|@import', html)
    assert {one or other for one, other in loaded} <= {"data:,"}


def test_what_a_log_says_is_text_and_no_markup(html: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_charts_take_the_pages_colours_and_can_be_searched(html: str) -> None:
    charts = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(charts) >= 6
    for chart in charts:
        assert "var(--ink)" in chart
        assert "<text" in chart
        assert not re.search(r"(?:fill|stroke): #(?!none)[0-9a-f]{6}", chart)


def test_references_and_ceilings_are_lines_of_their_own(html: str) -> None:
    throughput = html[html.index("<h3>Throughput, chat</h3>") :]
    chart = throughput[: throughput.index("</svg>")]
    for label in ("reference", "ceiling"):  # one for both profiles, which have the same
        assert re.search(rf"<text[^>]*>{label}</text>", chart)


def test_every_chart_is_described_and_every_wide_table_reachable_by_keyboard(html: str) -> None:
    class Found(HTMLParser):
        images = 0
        wide = 0

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = dict(attrs)
            if given.get("role") == "img":
                assert given["aria-label"]
                self.images += 1
            if given.get("class") == "wide":
                assert given["tabindex"] == "0"
                assert given["aria-label"]
                self.wide += 1

    found = Found()
    found.feed(html)
    assert found.images >= 6
    assert found.wide >= 8


def test_ids_are_unique(html: str) -> None:
    ids = re.findall(r' id="(host-[^"]+|content)"', html)
    assert len(ids) == len(set(ids)) == 2


def test_only_the_last_record_of_a_profile_is_compared(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    for one in (judged("fast", 100, day=0), judged("fast", 200, day=1)):
        (tmp_path / "box" / one.name).write_text(one.to_json())
    (host,) = read_results(tmp_path).hosts
    assert [record.started.day for record in host.latest] == [2]
    (history,) = [chart for chart in host.charts if chart.title == "History"]
    assert [row[2] for row in history.rows] == ["100.0", "200.0"]


def test_without_results_there_is_one_sentence_and_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"results/: nothing to report yet; deploy\.py and sweep\.py leave a record"):
        main()
    assert list(tmp_path.iterdir()) == []


def test_the_table_fits_the_terminal_and_shows_what_failed() -> None:
    text = table(judged("slow", 101.7))
    assert max(map(len, text.splitlines())) <= 80
    assert "slow on box, full: FAILED" in text
    assert "FAILED floor chat C=8" in text
    assert "floor 150.0" in " ".join(text.split())
    assert "101.7" in text
    assert "accepted" in table(judged("fast", 217.3)).splitlines()[0]
