"""python -m tests.lab up|down|reset|reboot|status|shell [NAME]"""

import sys
from argparse import ArgumentParser

from tests.lab import hosts
from tests.lab.places import LabError, existing


def main() -> None:
    parser = ArgumentParser(prog="python -m tests.lab", description="The hosts that tests deploy to.")
    parser.add_argument("action", choices=["up", "down", "reset", "reboot", "status", "shell"])
    parser.add_argument("name", nargs="?", help="lab by default; without it down is for all")
    arguments = parser.parse_args()
    try:
        match arguments.action:
            case "down":
                for name in [arguments.name] if arguments.name else existing():
                    hosts.down(name)
            case "status":
                for name in [arguments.name] if arguments.name else existing() or ["lab"]:
                    print(hosts.status(name))
            case action:
                getattr(hosts, action)(arguments.name or "lab")
    except LabError as error:
        sys.exit(f"lab: {error}")


if __name__ == "__main__":
    main()
