"""Which variables exist, and whether a host's values for them can be right."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from inventory.connection import ALIASES, PYINFRA, Connection, Privileges
from inventory.problems import Problems
from inventory.site import PREVIOUS
from inventory.text import control_characters
from inventory.values import Value, Values
from roles.base.settings import BaseSettings
from roles.benchmark.settings import BenchmarkSettings
from roles.cuda.settings import CudaSettings
from roles.documents import Document, hint, sentence
from roles.documents import problems as problems_of
from roles.flash_attn.settings import FlashAttnSettings
from roles.front.settings import FrontSettings
from roles.preflight.hardware import Hardware
from roles.refusal import nearest
from roles.serve.settings import ServeSettings
from roles.settings import RoleSettings
from roles.sglang.settings import SglangSettings
from roles.weights.settings import WeightsSettings

SETTINGS: Final[tuple[type[RoleSettings], ...]] = (
    BaseSettings,
    BenchmarkSettings,
    CudaSettings,
    FlashAttnSettings,
    FrontSettings,
    ServeSettings,
    SglangSettings,
    WeightsSettings,
)
"""The settings of every role: a new role adds its line here. Sorted by role."""


class Variables(Document):
    """The variables that belong to no single role."""

    profile: str
    """The profile to serve: the name of a file in group_vars/profiles, or `previous`, the one before."""
    profiles: tuple[str, ...] = ()
    """Several profiles to serve at once, on GPUs that do not overlap, instead of `profile`."""
    hardware: Hardware | None = None
    """What the host should have. Without it the host's GPUs are taken as they are, and ceilings are not known."""
    sweep: tuple[str, ...] = ()
    """Profiles that sweep.py tries."""
    vary: dict[str, object] = Field(default_factory=dict)
    """Values that sweep.py tries on top of `profile`."""
    plan_exact: bool = False
    """plan.py also asks SGLang's own code on each host, which takes minutes: for one run, with `--data`."""
    bundle: str | None = None
    """Directory that `make bundle` made, on the controller: the host is deployed from it, and needs no network."""


UNRETURNABLE: Final = frozenset({"host", "get", "dict", "datas", "override_datas"})
"""Names for which pyinfra's `host.data.<name>` gives something of its own."""

_DOCUMENTS: Final[tuple[tuple[type[Document], str], ...]] = (
    (Variables, ""),
    (Connection, ""),
    (Privileges, "_"),
    *((settings, settings.prefix) for settings in SETTINGS),
)
_NAMES: Final = [[prefix + name for name in document.model_fields] for document, prefix in _DOCUMENTS]
KNOWN: Final = frozenset(name for names in _NAMES for name in names)
"""Every variable of Slipway's own. pyinfra has more; Ansible's connection variables are translated before."""


def check(host: str, values: Values, profiles: Iterable[str], problems: Problems) -> None:
    """Complain of whatever one host's variables cannot be: unknown, of a wrong type, out of bounds."""
    for name, value in values.items():
        if name in UNRETURNABLE:
            problems.add(f"{value.source}: {name}: not accepted as a variable's name, because pyinfra uses it")
        elif name not in KNOWN and name not in PYINFRA:
            problems.add(f"{value.source}: {value.written}: unknown variable; {_nearest_variable(value.written)}")
        elif name in KNOWN:
            for wrong in control_characters(value.value, value.written):
                problems.add(f"{value.source}: {wrong}")
    for (document, prefix), names in zip(_DOCUMENTS, _NAMES, strict=True):
        own = {name.removeprefix(prefix): values[name].value for name in names if name in values}
        try:
            document.model_validate(own)
        except ValidationError as error:
            for problem in problems_of(document, error, own):
                problems.add(_refusal(document, problem, prefix, values.get(prefix + str(problem["loc"][0])), host))
    _check_profiles(values, set(profiles), problems)


def _nearest_variable(name: str) -> str:
    close = get_close_matches(name, KNOWN | ALIASES.keys(), n=1)
    return f"did you mean {close[0]}?" if close else "docs/variables.md lists all"


def _check_profiles(values: Values, profiles: set[str], problems: Problems) -> None:
    for name in ("profile", "profiles", "sweep"):
        value = values.get(name, Value((), "", ""))
        for wanted in value.value if isinstance(value.value, list) and name != "profile" else [value.value]:
            if isinstance(wanted, str) and wanted not in profiles | ({PREVIOUS} if name == "profile" else set()):
                problems.add(f"{value.source}: {name}: unknown profile {wanted}; {nearest(wanted, profiles)}")


def variables_of(data: Mapping[str, object]) -> Variables:
    """The typed variables in a host's data, which `check` has accepted before."""
    return Variables.model_validate({name: data[name] for name in Variables.model_fields if name in data})


def _refusal(document: type[Document], problem: ErrorDetails, prefix: str, value: Value | None, host: str) -> str:
    text = sentence(document, problem, prefix)
    if value is None:
        return f"host {host}: {text}"
    text = text.replace(prefix + str(problem["loc"][0]), value.written, 1)
    if len(problem["loc"]) == 1:
        text += hint(problem, value.written, *(["--data '{key}=\"{text}\"'"] if value.source == "--data" else []))
    return f"{value.source}: {text}"
