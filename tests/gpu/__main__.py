"""Run cases on this machine's GPUs: `python -m tests.gpu --runtime PYTHON [--case NAME…]`.

Or serve one shipped profile, cut to fewer layers: `--profile NAME --dummy-layers N`. Every case's figures go to
OUT/results.jsonl as soon as it has ended, its log to OUT/<case>.log.
"""

import argparse
import json
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from pydantic import JsonValue

from roles import paths
from roles.benchmark.program import server_info
from roles.preflight.hardware import Hardware
from roles.serve.command import Command, command, trusts_code
from roles.serve.memory import estimate
from roles.serve.parallelism import Parallelism, on_cpu
from roles.serve.reported import compare
from roles.serve.settings import ServeSettings
from roles.sglang.catalogue import Catalogue, versions
from tests.gpu import folder, gpus, ranks, traffic
from tests.gpu.cases import READY, Case, cases
from tests.gpu.documents import cut, model, profile, text_only
from tests.gpu.measured import available, figures
from tests.gpu.server import Server, started

NO_SUCH_FLAG = ("--no-such-flag", "3")


def main(words: Sequence[str]) -> int:
    arguments = _arguments(words)
    hardware = gpus.hardware()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + arguments.limit
    wrong = 0
    for case in _chosen(arguments, hardware):
        if time.monotonic() > end:
            print(f"-- {case.name}: not run, the time is over", flush=True)
            continue
        print(f"-- {case.name}", flush=True)
        outcome = run(case, hardware, arguments)
        with (out / "results.jsonl").open("a", encoding="utf-8") as results:
            results.write(json.dumps(outcome) + "\n")
        wrong += not outcome["as expected"]
        print(f"-- {case.name}: {_summary(outcome)}", flush=True)
    return 1 if wrong else 0


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", type=Path, required=True, help="the Python of a release")
    parser.add_argument("--case", nargs="*", default=[], help="names of cases; all, unless a profile is given")
    parser.add_argument("--skip", nargs="*", default=[], help="names of cases that are not run")
    parser.add_argument("--profile", help="a shipped profile, served with random weights")
    parser.add_argument("--dummy-layers", type=int, help="serve only so many layers of the profile's model")
    parser.add_argument("--cuda-home", default="/usr/local/cuda", help="the toolkit (default: %(default)s)")
    parser.add_argument("--environment", nargs="*", default=[], metavar="NAME=VALUE", help="for the servers")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--ready-limit", type=int, default=900, help="seconds for one start (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no case is begun")
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), help="(default: %(default)s)")
    return parser.parse_args(words)


def _chosen(arguments: argparse.Namespace, hardware: Hardware) -> Iterator[Case]:
    if arguments.profile:
        wanted = profile(arguments.profile)
        served = text_only(model(wanted.model))
        if arguments.dummy_layers:
            served = cut(served, arguments.dummy_layers)
        dummy = wanted.model_copy(update={"server": {**wanted.server, "load_format": "dummy"}})
        yield Case(dummy, served)
        return
    known = {case.name: case for case in cases(hardware)}
    for name in arguments.case or known:
        if name not in arguments.skip:
            yield known[name]


def run(case: Case, hardware: Hardware, arguments: argparse.Namespace) -> dict[str, JsonValue]:
    """Serve one case and say what came of it."""
    out: Path = arguments.out
    work = out / "work" / case.name
    work.mkdir(parents=True, exist_ok=True)
    how = _command(case, arguments, folder.write(case.model, work / "model"))
    hardware = gpus.processors(Parallelism.of(case.profile.server)) if on_cpu(case.profile) else hardware
    expected = estimate(case.model, case.profile, hardware)
    outcome: dict[str, JsonValue] = {
        "case": case.name,
        "expected": case.expected,
        "verdict": str(expected.verdict),
        "breaks": expected.breaks,
        "feasible": list(asdict(expected.feasible).values()),
        "safe": list(asdict(expected.safe).values()),
        "command": list(how.argv),
    }
    began = time.monotonic()
    with _obstructed(case, how), started(how, "127.0.0.1", out / f"{case.name}.log", _extra(case)) as server:
        if server.wait(arguments.ready_limit):
            outcome["came"] = READY
            outcome["seconds to ready"] = round(time.monotonic() - began, 1)
            outcome |= _reported(server, case, hardware)
            outcome |= _served(case, server, work.resolve())
        else:
            outcome |= _explained(server)
        if outcome["came"] == READY and server.process.poll() is not None:
            outcome |= _explained(server)
        outcome["left after the stop"] = server.stop()
    outcome["as expected"] = _as_expected(case, outcome)
    return outcome


def _as_expected(case: Case, outcome: dict[str, JsonValue]) -> bool:
    if not str(outcome["came"]).startswith(case.expected) or outcome["left after the stop"]:
        return False
    smoke, served = outcome.get("smoke"), outcome.get("declared")
    answered = not isinstance(smoke, dict) or smoke["passed"] is True
    return case.expected != READY or (answered and (not isinstance(served, dict) or served["end"] == "complete"))


def _command(case: Case, arguments: argparse.Namespace, weights: Path) -> Command:
    runtime: Path = arguments.runtime.absolute()
    settings = ServeSettings.read(
        {"port": arguments.port, "environment": dict(pair.split("=", 1) for pair in arguments.environment)}, "--port"
    )
    made = command(
        case.profile,
        settings,
        Catalogue.load(versions()[-1]),
        release=str(runtime.parent.parent),
        weights=str(weights.resolve()),
        trust_remote_code=trusts_code(case.model, None),
        cuda_home=None if on_cpu(case.profile) else arguments.cuda_home,
    )
    # The service's own cache is not for another user's files.
    cache = str((arguments.out / "work" / "cache").resolve())
    environment = {name: value.replace(paths.CACHE, cache) for name, value in made.environment.items()}
    reporting = str(ranks.plugin(arguments.out / "work" / "plugin").resolve())
    environment["PYTHONPATH"] = ":".join([reporting, *filter(None, [environment.get("PYTHONPATH")])])
    Path(environment["HOME"]).mkdir(parents=True, exist_ok=True)
    return made._replace(environment=environment)


@contextmanager
def _obstructed(case: Case, how: Command) -> Iterator[None]:
    """Hold the port, if that is the case's obstacle."""
    with ExitStack() as stack:
        if case.obstacle == "port in use":
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", how.port))
            holder.listen()
        yield


def _extra(case: Case) -> tuple[str, ...]:
    return NO_SUCH_FLAG if case.obstacle == "unknown flag" else ()


def _reported(server: Server, case: Case, hardware: Hardware) -> dict[str, JsonValue]:
    """The server's own figures beside those that were computed."""
    states = server_info(f"http://{server.host}:{server.command.port}").get("internal_states") or [{}]
    usage = states[0].get("memory_usage") or {}
    expected = estimate(case.model, case.profile, hardware)
    return {
        "memory_usage": usage,
        "available": dict(available(server.text)),
        "used MiB": gpus.used_mib(),
        "figures": [
            [one.name, one.predicted, one.reported]
            for one in (*figures(expected, usage, server.text), *ranks.figures(expected, server.text))
        ],
        "buffers": [[one.name, one.bytes] for one in expected.buffers],
        "outside its band": [one.name for one in compare(expected, usage) if one.exceeds_band],
    }


def _served(case: Case, server: Server, work: Path) -> dict[str, JsonValue]:
    """What the server answered."""
    served: dict[str, JsonValue] = {"smoke": traffic.smoke(case, server)}
    if case.traffic == "declared":
        output = traffic.declared(case, server, work)
        served["declared"] = {
            "end": output.end,
            "rows": [json.loads(row.model_dump_json()) for row in output.rows],
        }
    elif case.traffic == "gate":
        fresh, repeated = traffic.gate(case, server, work)
        for name, record in (("gate", fresh), ("repeated", repeated)):
            (work / f"{name}.json").write_text(record.to_json(), encoding="utf-8")
            print("\n".join(traffic.lines(record)), flush=True)
            served[name] = json.loads(record.model_dump_json())
        served["by hand"] = list(traffic.by_hand(case, server, work))
    return served


def _explained(server: Server) -> dict[str, JsonValue]:
    why = server.why()
    return {
        "came": why.kind,
        "explanation": str(why),
        "exit status": server.process.poll(),
        "available": dict(available(server.text)),
    }


def _summary(outcome: dict[str, JsonValue]) -> str:
    judged = "as expected" if outcome["as expected"] else "NOT AS EXPECTED"
    lines = [f"{judged}: {outcome['came']}, expected {outcome['expected']}, estimate {outcome['verdict']}"]
    rows = outcome.get("figures")
    for row in rows if isinstance(rows, list) else ():
        assert isinstance(row, list)
        lines.append(f"   {row[0]}: predicted {row[1]:.2f}, reported {row[2]:.2f}")
    shown = ("seconds to ready", "smoke", "explanation", "left after the stop", "outside its band")
    lines += [f"   {key}: {str(outcome[key])[:400]}" for key in shown if outcome.get(key)]
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no server is left behind
    sys.exit(main(sys.argv[1:]))
