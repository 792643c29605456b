"""Print the catalogue of an installed SGLang as JSON: `make catalogue` runs this with the release's own Python.

A catalogue maps a flag's name in a profile (snake case) to what argparse knows of the flag.
"""

import argparse
import json
import re
import sys
from importlib.metadata import version
from typing import Any, Final

_TYPES: Final = {
    "human_readable_int": "size",
    "json_list_type": "json",
    "loads": "json",
    "parse_cuda_graph_config_arg": "json",
    "int": "int",
    "float": "float",
}
"""Kind of value by the name of argparse's type function; every other one takes text."""

_TAKES_JSON: Final = re.compile(r"\bJSON (string|content|mapping|object|with|may|config for)|\bjson format")
"""Help texts of flags that take text, and whose text may be JSON."""
_DEPRECATED: Final = re.compile(r"\(?deprecated\b", re.IGNORECASE)
_REPLACEMENT: Final = re.compile(r"\buse (?P<flag>--[\w-]+(?:=\w+)?)", re.IGNORECASE)


def catalogue(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    """Every flag that `parser` knows, by name."""
    flags = {_name(_full_name(action)): action for action in parser._actions}
    return {name: _describe(flags[name]) for name in sorted(flags)}


def _server_parser() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    return parser


def _full_name(action: argparse.Action) -> str:
    return next(option for option in action.option_strings if option.startswith("--"))


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _describe(action: argparse.Action) -> dict[str, Any]:
    """What is not said holds by default: no alias, one value, no choices, default None, not deprecated."""
    full_name = _full_name(action)
    negation = f"--no-{full_name.removeprefix('--')}"
    aliases = [option for option in action.option_strings if option not in (full_name, negation)]
    described = {
        "aliases": [_name(alias) for alias in aliases],
        "type": _type(action),
        "nargs": action.nargs if action.nargs in ("+", "*", "?") else None,
        "choices": _choices(action),
        "default": action.default if action.default is not argparse.SUPPRESS else None,
        "required": action.required,
        "deprecated": _deprecated(action),
    }
    return {key: value for key, value in described.items() if value not in (None, [], False)}


def _type(action: argparse.Action) -> str:
    """`flag` is present or absent; `switch` also has a `--no-` form; `size` is an integer or text like 128k."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    if action.nargs == 0:
        return "flag"
    parser = getattr(action.type, "__name__", "str")
    return _TYPES.get(parser) or ("text or json" if _TAKES_JSON.search(action.help or "") else "text")


def _choices(action: argparse.Action) -> list[Any] | None:
    if action.choices is None:
        return None
    return sorted(action.choices) if isinstance(action.choices, set | frozenset) else list(action.choices)


def _deprecated(action: argparse.Action) -> str | None:
    """What replaces a deprecated flag, or "" where SGLang does not say; None for a flag that is not deprecated."""
    help_text = action.help or ""
    if not type(action).__name__.startswith("Deprecated") and not _DEPRECATED.match(help_text):
        return None
    replacement = _REPLACEMENT.search(help_text)
    return getattr(action, "new_flag", None) or (replacement["flag"] if replacement else "")


def _write() -> None:
    """One flag a line, so that the difference between two releases reads well."""
    flags = catalogue(_server_parser())
    lines = (f"{json.dumps(name)}: {json.dumps(flag, sort_keys=True)}" for name, flag in flags.items())
    sys.stdout.write(f'{{"sglang": {json.dumps(version("sglang"))}, "flags": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    _write()
