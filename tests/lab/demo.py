"""What `make demo` shows at its end: where the server listens, a real completion from it, the benchmark table."""

import json
import shlex

from pyinfra.api.config import Config
from pyinfra.api.state import State

from inventory import load
from roles.benchmark.record import Record
from roles.benchmark.results import RESULTS, folder
from roles.benchmark.table import table
from roles.serve.command import served_name
from roles.serve.declared import declared, wanted_names
from tests.lab import hosts


def main() -> None:
    inventory = load("inventory")
    State(inventory, Config())
    host = inventory.get_host("lab")
    (candidate,) = declared(host).wanted(wanted_names(host), host.name)
    print(f"\n{candidate.profile.name} listens on {candidate.url} of the host {host.name}.")

    asked = {"model": served_name(candidate.profile), "prompt": "Hello", "max_tokens": 16, "temperature": 0}
    command = ["curl", "-fsS", "-H", "Content-Type: application/json", "-d", json.dumps(asked)]
    command.append(f"{candidate.url}/v1/completions")
    print(f"\n$ {shlex.join(command)}")
    print(json.dumps(json.loads(hosts.run("lab", shlex.join(command))), indent=2))

    newest = max((RESULTS / folder(host.name)).glob("*.json"))
    print(f"\n{table(Record.read_json(newest.read_text(encoding='utf-8'), str(newest)))}")
    print("make lab-down removes the host; results/report.html shows all records.")


if __name__ == "__main__":
    main()
