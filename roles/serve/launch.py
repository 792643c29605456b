"""Start SGLang with the keys in its unit's credentials. Runs in a release's Python; needs nothing but SGLang.

    launch.py serve --model-path …

SGLang takes keys as flags alone. They are added inside this process, so that its command line, which everyone on
the host can read, stays as it is; and they are taken out of what it logs, which is all its flags.
"""

import logging
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

FLAGS = {"api-key": "--api-key", "admin-key": "--admin-api-key"}
"""By the name of the credential."""


def read_keys(directory: str) -> dict[str, str]:
    """The keys in `directory` by the flag that takes each."""
    files = {flag: Path(directory, name) for name, flag in FLAGS.items()}
    return {flag: file.read_text().strip() for flag, file in files.items() if file.exists()}


def keep_out_of_the_log(keys: Collection[str]) -> None:
    """Let every record of `logging`, whoever handles it, say `(key)` where a key was."""
    make = logging.getLogRecordFactory()

    def record(*arguments: Any, **named: Any) -> logging.LogRecord:
        made = make(*arguments, **named)
        try:
            text = made.getMessage()
        except Exception:  # a malformed call: for `logging` to complain of, as ever
            return made
        if any(key in text for key in keys):
            for key in keys:
                text = text.replace(key, "(key)")
            made.msg, made.args = text, None
        return made

    logging.setLogRecordFactory(record)


def main(arguments: list[str], environment: Mapping[str, str]) -> None:
    keys = read_keys(environment["CREDENTIALS_DIRECTORY"])
    keep_out_of_the_log(keys.values())
    sys.argv = ["sglang", *arguments, *(word for pair in keys.items() for word in pair)]
    from sglang.cli.main import main as sglang  # here, because ranks import this file anew

    sys.exit(sglang())


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
