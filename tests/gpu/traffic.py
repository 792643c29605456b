"""Requests to a server that runs: the product's smoke test, its measuring program, and its gate."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from roles.benchmark import program
from roles.benchmark.benchmark import Benchmark
from roles.benchmark.client import ENVIRONMENT, MODULE, Subject, plan
from roles.benchmark.gate import judge
from roles.benchmark.name import proof
from roles.benchmark.output import Output, memory, read_output
from roles.benchmark.record import Environment, Record
from roles.serve import smoke as smoke_program
from roles.serve.command import served_name
from tests.gpu.cases import Case
from tests.gpu.server import Server

ROUND_LIMIT: Final = 240

REPEATED: Final = 100
"""Numbers from here on are of rounds whose prompts are asked for again."""

LONG: Final = {"long": {"input_tokens": 8192, "output_tokens": 32}}


def smoke(case: Case, server: Server) -> dict[str, JsonValue]:
    """The product's smoke test: `passed`, `reasons`, `seconds`."""
    options = case.profile.smoke.model_dump()
    words = [sys.executable, smoke_program.__file__, _url(server), served_name(case.profile), json.dumps(options)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    return dict(json.loads(run.stdout)) if run.stdout else {"passed": False, "reasons": [run.stderr[-500:]]}


def declared(case: Case, server: Server, folder: Path) -> Output:
    """As many long requests at once as the profile declares, once."""
    concurrency = int(str(case.profile.server["max_running_requests"]))
    benchmark = Benchmark.read(
        {"concurrencies": [concurrency], "requests_per_slot": 1, "traffic": LONG}, case.profile.name
    )
    asked = plan(_subject(case, server, folder), benchmark, "full", ROUND_LIMIT)
    rounds = asked["rounds"]
    assert isinstance(rounds, list)
    return measure({**asked, "warm_ups": [], "rounds": rounds[:1]}, server)


def gate(case: Case, server: Server, folder: Path) -> tuple[Record, Record]:
    """Measure and judge, as a deploy would; and once more with prompts that the server has answered before."""
    started = datetime.now(UTC)
    asked = plan(_subject(case, server, folder), case.profile.benchmark, "full", ROUND_LIMIT)
    rounds = asked["rounds"]
    assert isinstance(rounds, list)
    output = measure({**asked, "rounds": [*rounds, *_repeated(rounds[0])]}, server)
    fresh = replace(output, rows=[row for row in output.rows if row.round.number < REPEATED])
    again = replace(output, rows=[row for row in output.rows if row.round.number >= REPEATED])
    return _judged(case, server, fresh, started), _judged(case, server, again, started)


def _repeated(entry: JsonValue) -> list[JsonValue]:
    """A round and the same again, of which the prefix cache is not emptied."""
    pair = [json.loads(json.dumps(entry)) for _ in range(2)]
    for number, one in enumerate(pair, start=REPEATED):
        one["round"]["number"] = number
        one["arguments"].remove("--flush-cache")
    return list(pair)


def by_hand(case: Case, server: Server, folder: Path) -> list[dict[str, JsonValue]]:
    """SGLang's client started as a person would, once for each concurrency, with seeds of its own."""
    asked = plan(_subject(case, server, folder), case.profile.benchmark, "full", ROUND_LIMIT)
    rounds, rows = asked["rounds"], folder / "client.jsonl"
    assert isinstance(rounds, list)
    found = []
    for number, entry in enumerate(rounds[: len(case.profile.benchmark.concurrencies)]):
        assert isinstance(entry, dict)
        assert isinstance(entry["arguments"], list)
        words = [str(word) for word in entry["arguments"]]
        words[words.index("--seed") + 1] = str(900 + number)
        rows.unlink(missing_ok=True)
        subprocess.run([_python(server), "-m", MODULE, *words], env=_environment(server), check=True, timeout=600)
        found.append({key: value for key, value in json.loads(rows.read_text()).items() if key != "server_info"})
    return found


def measure(asked: Mapping[str, JsonValue], server: Server) -> Output:
    """Run the measuring program by the release's own Python, as the role benchmark does on a host."""
    output = Path(str(asked["output"]))
    output.parent.mkdir(parents=True, exist_ok=True)
    given = output.with_name("plan.json")
    given.write_text(json.dumps(asked), encoding="utf-8")
    words = [_python(server), "-P", program.__file__, str(given)]
    subprocess.run(words, env=_environment(server), check=False, timeout=1800)
    return read_output(output.read_text(encoding="utf-8").splitlines(), str(output))


def _judged(case: Case, server: Server, output: Output, started: datetime) -> Record:
    environment = {**output.environment, "release": "", "command": server.command.argv}
    fingerprint = server.command.fingerprint
    record = Record(
        host="gpu",
        profile=case.profile.name,
        model=case.profile.model,
        fingerprint=fingerprint,
        proof=proof(fingerprint, "gpu", case.profile.benchmark, {}),
        family=case.profile.name,
        level="full",
        started=started,
        finished=datetime.now(UTC),
        environment=Environment.read(environment, "the measuring program"),
        rows=tuple(output.rows),
        failure=None if output.end == "complete" else output.end,
        log=output.log,
        memory=memory(output.server),
    )
    return record.model_copy(update={"verdict": judge(record, [], case.profile.benchmark)})


def _subject(case: Case, server: Server, folder: Path) -> Subject:
    weights = server.command.argv[server.command.argv.index("--model-path") + 1]
    return Subject(base_url=_url(server), tokenizer=weights, directory=str(folder))


def _url(server: Server) -> str:
    return f"http://{server.host}:{server.command.port}"


def _python(server: Server) -> str:
    return str(Path(server.command.program[0]).with_name("python"))


def _environment(server: Server) -> dict[str, str]:
    return {**server.command.environment, **ENVIRONMENT}


def lines(record: Record) -> Sequence[str]:
    """One line for each round and each judgement."""
    judgements = record.verdict.judgements if record.verdict else ()
    return [
        *(f"{one.subject} {one.point} {one.outcome}: {one.text}" for one in judgements),
        *_rounds(record),
    ]


def _rounds(record: Record) -> Sequence[str]:
    return [
        f"{row.round.phase} {row.round.number} {row.round.point}: "
        f"{row.value('output_throughput') or 0:.1f} tok/s, TTFT {row.value('median_ttft_ms') or 0:.0f} ms, "
        f"TPOT {row.value('median_tpot_ms') or 0:.2f} ms, cached {row.cached_tokens}, "
        f"loop {row.client.loop_share if row.client else None}"
        for row in record.rows
    ]
