"""Whatever a user writes wrong is refused in one sentence that names the file, the key and what is accepted."""

from pathlib import Path

import pytest

from inventory import load
from inventory.loader import ROOT
from inventory.variables import SETTINGS
from roles.refusal import Refusal
from roles.settings import RoleSettings
from tests.unit.sites import PROFILE, slipway, write

NO_NAME = (
    "is no host's name; accepted are @local, pyinfra's @fake/name, and names or addresses "
    "of letters, digits and . _ - : (no dot or hyphen first)"
)

ANY_FLAG = (
    "true or false, a whole number, a number, text, a list of whole numbers, a list of text "
    "or a mapping (`key: value` lines)"
)

EXTENDS_ITSELF = (
    "extends: small is this profile itself, as a site's replaces the shipped one of its name; "
    "give it a name of its own"
)

CASES: dict[str, tuple[dict[str, str], str]] = {
    "unknown variable": (
        {"group_vars/gpu.yml": "serve_prot: 1"},
        "group_vars/gpu.yml: serve_prot: unknown variable; did you mean serve_port?",
    ),
    "unknown variable in the inventory": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: {ansible_prot: 22}}}"},
        "inventory/hosts.yml: ansible_prot: unknown variable; did you mean ansible_port?",
    ),
    "name that pyinfra cannot return": (
        {"host_vars/box.yml": "host: 0.0.0.0"},
        "host_vars/box.yml: host: not accepted as a variable's name, because pyinfra uses it",
    ),
    "wrong type": (
        {"group_vars/gpu/a.yml": "serve_port: many"},
        "group_vars/gpu/a.yml: serve_port: must be a whole number, not 'many'",
    ),
    "out of bounds": (
        {"group_vars/all.yml": "profile: small\nserve_port: 65536"},
        "group_vars/all.yml: serve_port: input should be less than 65536, not 65536",
    ),
    "number for a version": (
        {"group_vars/gpu.yml": "serve_host: 1.10"},
        "group_vars/gpu.yml: serve_host: must be text, not 1.1; "
        'put it in quotes, with every digit: serve_host: "1.1"',
    ),
    "list and date for a word": (
        {"group_vars/gpu.yml": "profile: [smal]\nserve_host: 2026-01-31"},
        "group_vars/gpu.yml: profile: must be text, not ['smal']\n"
        'group_vars/gpu.yml: serve_host: must be text, not 2026-01-31; put it in quotes: serve_host: "2026-01-31"',
    ),
    "true or false for a word": (
        {"group_vars/gpu.yml": "benchmark_level: off\nansible_user: yes"},
        'group_vars/gpu.yml: ansible_user: must be text, not true; put it in quotes: ansible_user: "true"\n'
        "group_vars/gpu.yml: benchmark_level: input should be 'quick', 'full' or 'off', not false; "
        'put it in quotes: benchmark_level: "off"',
    ),
    "number for text in a profile": (
        {"group_vars/profiles/small.yml": PROFILE + "environment: {NCCL_DEBUG: 1}"},
        "group_vars/profiles/small.yml: environment.NCCL_DEBUG: must be text, not 1; "
        'put it in quotes: NCCL_DEBUG: "1"',
    ),
    "none of several kinds": (
        {"group_vars/profiles/small.yml": PROFILE + "server: {tp_size: null, page_size: [1, {}]}\ngpus: none"},
        "group_vars/profiles/small.yml: gpus: must be 'all' or a list of whole numbers, not 'none'\n"
        f"group_vars/profiles/small.yml: server.tp_size: must be {ANY_FLAG}, not null\n"
        f"group_vars/profiles/small.yml: server.page_size: must be {ANY_FLAG}, not [1, {{}}]",
    ),
    "wrong item of a list that could be a word": (
        {"group_vars/profiles/small.yml": PROFILE + "gpus: [0, x]"},
        "group_vars/profiles/small.yml: gpus.1: must be a whole number, not 'x'",
    ),
    "list for a mapping": (
        {"group_vars/profiles/small.yml": PROFILE + "server: [tp_size]\nsmoke: [1]\nreference: {a: 1}"},
        "group_vars/profiles/small.yml: server: must be a mapping (`key: value` lines), not ['tp_size']\n"
        "group_vars/profiles/small.yml: smoke: must be a mapping (`key: value` lines), not [1]\n"
        "group_vars/profiles/small.yml: reference: must be a list, not {'a': 1}",
    ),
    "wrong port": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: {ansible_port: 0}}}"},
        "inventory/hosts.yml: ansible_port: input should be greater than 0, not 0",
    ),
    "unknown key of hardware": (
        {"group_vars/gpu.yml": "hardware: {gpus: 8, memory_mb: 97887}"},
        "group_vars/gpu.yml: hardware.memory_mb: unknown key; did you mean memory_mib?",
    ),
    "no profile": (
        {"group_vars/all.yml": ""},
        "host box: profile: required, but not given",
    ),
    "unknown profile": (
        {"host_vars/box.yml": "profile: smal"},
        "host_vars/box.yml: profile: unknown profile smal; did you mean small?",
    ),
    "unknown profile in a list": (
        {"host_vars/box.yml": "sweep: [small, previous]"},
        "host_vars/box.yml: sweep: unknown profile previous; known: large, small",
    ),
    "unknown model": (
        {"group_vars/profiles/small.yml": PROFILE.replace("tiny-qwen3", "tiny-qwen")},
        "group_vars/profiles/small.yml: model: unknown model tiny-qwen; did you mean tiny-qwen3?",
    ),
    "unknown key of a profile": (
        {"group_vars/profiles/small.yml": PROFILE + "sever: {}"},
        "group_vars/profiles/small.yml: sever: unknown key; did you mean server?",
    ),
    "unknown flag": (
        {"group_vars/profiles/small.yml": PROFILE + "server: {max_runing_requests: 64}"},
        "group_vars/profiles/small.yml: server.max_runing_requests: SGLang 0.5.23 has no such flag; "
        "did you mean max_running_requests?",
    ),
    "flag that is the model's to say": (
        {"group_vars/profiles/small.yml": PROFILE + "server: {trust_remote_code: true}"},
        "group_vars/profiles/small.yml: server.trust_remote_code: not set in a profile; it follows from the model, "
        "whose file in group_vars/models says so",
    ),
    "inherited flags are refused where they stand": (
        {
            "group_vars/profiles/small.yml": PROFILE + "server: {pp_size: 2, tp: 1}",
            "group_vars/profiles/large.yml": "extends: small\ndescription: L\nserver: {speculative_algorithm: NGRAM}",
        },
        "group_vars/profiles/large.yml: server.speculative_algorithm: with pp_size above 1 only EAGLE is accepted\n"
        "group_vars/profiles/small.yml: server.tp: not a full name; SGLang 0.5.23 has tp_size",
    ),
    "name in a profile": (
        {"group_vars/profiles/small.yml": PROFILE + "name: small"},
        "group_vars/profiles/small.yml: name: not accepted, because it is the file's name",
    ),
    "name of a profile": (
        {"group_vars/profiles/previous.yml": PROFILE},
        "group_vars/profiles/previous.yml: not accepted as a name; use small letters, digits, dots and hyphens, "
        "and not the word previous",
    ),
    "unknown parent": (
        {"group_vars/profiles/small.yml": "extends: larg\ndescription: Small."},
        "group_vars/profiles/small.yml: extends: unknown profile larg; did you mean large?",
    ),
    "parents in a circle": (
        {
            "group_vars/profiles/small.yml": "extends: third\ndescription: One.",
            "group_vars/profiles/third.yml": "extends: small\ndescription: Two.",
        },
        "group_vars/profiles/small.yml: extends: goes in a circle: small -> third -> small",
    ),
    "profile that extends itself, and others that extend it": (
        {
            "group_vars/profiles/small.yml": "extends: small\ndescription: One.",
            "group_vars/profiles/large.yml": "extends: small\ndescription: Two.",
        },
        f"group_vars/profiles/small.yml: {EXTENDS_ITSELF}",
    ),
    "two files of one profile": (
        {"group_vars/profiles/small.yaml": PROFILE + "server: {tp_size: 2}"},
        "group_vars/profiles/small.yml: not accepted beside group_vars/profiles/small.yaml, "
        "which is read instead of it",
    ),
    "profile named like a group": (
        {"group_vars/profiles/gpu.yml": PROFILE},
        "group_vars/profiles/gpu.yml: a group has this name too; rename one of them",
    ),
    "group named like a folder": (
        {"inventory/hosts.yml": "profiles: {hosts: {box: }}"},
        "inventory/hosts.yml: profiles: not accepted as a group's name, "
        "because the folder group_vars/profiles holds profiles; choose another",
    ),
    "misspelt group": (
        {"inventory/hosts.yml": "rtx_pro_6000_x8: {hosts: {box: }}", "group_vars/rtx-pro-6000-x8.yml": ""},
        "group_vars/rtx-pro-6000-x8.yml: no group has this name; did you mean rtx_pro_6000_x8?",
    ),
    "misspelt host": (
        {"inventory/hosts.yml": "gpu: {hosts: {box.example: }}", "host_vars/box.exmaple.yml": ""},
        "host_vars/box.exmaple.yml: no host has this name; did you mean box.example?",
    ),
    "misspelt folder of documents": (
        {"group_vars/profile/mine.yml": PROFILE},
        "group_vars/profile: no group has this name; did you mean profiles?",
    ),
    "another ending": (
        {"group_vars/gpu.txt": "serve_port: 1", "inventory/group_vars/all.yml.bak": "", "host_vars/box.conf": ""},
        "group_vars/gpu.txt: not read, as its name ends with .txt; accepted are .yml, .yaml, .json and no ending\n"
        "host_vars/box.conf: not read, as its name ends with .conf; accepted are .yml, .yaml, .json and no ending",
    ),
    "another ending in a folder": (
        {"group_vars/profiles/mine.txt": PROFILE, "group_vars/profiles/README.md": "", "group_vars/gpu/b/c.ini": ""},
        "group_vars/gpu/b/c.ini: not read, as its name ends with .ini; "
        "accepted are .yml, .yaml, .json and no ending\n"
        "group_vars/profiles/mine.txt: not read, as its name ends with .txt; "
        "accepted are .yml, .yaml, .json and no ending",
    ),
    "profile without an ending, and in a folder": (
        {"group_vars/profiles/mine": PROFILE, "group_vars/profiles/mine.d/more.yml": PROFILE},
        "group_vars/profiles/mine: not read here; accepted are files that end with .yml",
    ),
    "profiles beside group_vars": (
        {"profiles/mine.yml": PROFILE, "inventory/models/mine.yml": ""},
        "inventory/models: not read here; models belong in inventory/group_vars/models\n"
        "profiles: not read here; profiles belong in group_vars/profiles",
    ),
    "text for become": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: {ansible_become: 'no'}}}"},
        "inventory/hosts.yml: ansible_become: must be true or false, not 'no'",
    ),
    "file beside a folder": (
        {"group_vars/gpu.yml": "serve_port: 1", "group_vars/gpu/a.yml": "serve_port: 2"},
        "group_vars/gpu.yml: not accepted beside group_vars/gpu, which is read instead of it",
    ),
    "unknown section": (
        {"inventory/hosts.yml": "gpu: {host: {box: }, hosts: {box: }}"},
        "inventory/hosts.yml: gpu.host: unknown key; did you mean hosts?",
    ),
    "list of hosts": (
        {"inventory/hosts.yml": "gpu: {hosts: [box]}\ncpu: {hosts: {box: }}"},
        "inventory/hosts.yml: gpu.hosts: must be `name:` lines, not a list",
    ),
    "text for variables": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: serve_port=1}}"},
        "inventory/hosts.yml: gpu.hosts.box: must be `name:` lines, not text",
    ),
    "number for a host": (
        {"inventory/hosts.yml": "gpu: {hosts: {1: , box: }}"},
        "inventory/hosts.yml: gpu.hosts.1: must be text; put it in quotes",
    ),
    "no range": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: , 'box[1-3]': }}"},
        "inventory/hosts.yml: gpu.hosts.box[1-3]: [1-3] is no range; "
        "accepted are for example [1:8], [01:08], [0:6:2], [a:d]",
    ),
    "long range": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: , 'box[1:99999999]': }}"},
        "inventory/hosts.yml: gpu.hosts.box[1:99999999]: means 99,999,999 hosts; "
        "accepted are at most 10,000 in one line",
    ),
    "ranges with many combinations": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: , 'b[1:999]-[1:999]-[1:999]': }}"},
        "inventory/hosts.yml: gpu.hosts.b[1:999]-[1:999]-[1:999]: means 997,002,999 hosts; "
        "accepted are at most 10,000 in one line",
    ),
    "empty name": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: , '': }}"},
        f"inventory/hosts.yml: gpu.hosts.: '' {NO_NAME}",
    ),
    "port alone": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: , ':22': }}"},
        f"inventory/hosts.yml: gpu.hosts.:22: '' {NO_NAME}",
    ),
    "priority": (
        {"inventory/hosts.yml": "gpu: {hosts: {box: }, vars: {ansible_group_priority: high}}"},
        "inventory/hosts.yml: gpu.vars.ansible_group_priority: must be a whole number, not 'high'",
    ),
    "groups in a circle": (
        {"inventory/hosts.yml": "a: {children: {b: {children: {a: {hosts: {box: }}}}}}"},
        "inventory: children: goes in a circle: a -> b -> a",
    ),
    "no hosts": (
        {"inventory/hosts.yml": "gpu: {vars: {serve_port: 1}}"},
        "inventory: has no hosts; name some under `hosts:` in a YAML file",
    ),
    "broken YAML": (
        {"group_vars/all.yml": "profile: small\n  serve_port: 1"},
        "group_vars/all.yml:2: not valid YAML: mapping values are not allowed in this context\n"
        "host box: profile: required, but not given",
    ),
    "no YAML at all": (
        {"group_vars/gpu.yml": "a\0b"},
        "group_vars/gpu.yml: not valid YAML: control characters are not allowed",
    ),
    "unknown tag": (
        {"group_vars/gpu.yml": "serve_host: !vault 1234"},
        "group_vars/gpu.yml:1: not valid YAML: could not determine a constructor for the tag '!vault'",
    ),
    "key given twice": (
        {"group_vars/gpu.yml": "serve_port: 1\nhardware:\n  gpus: 8\n  gpus: 4"},
        "group_vars/gpu.yml:4: gpus: given twice",
    ),
    "alias within its own block": (
        {"group_vars/profiles/small.yml": PROFILE + "server: &a {x: *a}"},
        "group_vars/profiles/small.yml:3: contains itself, through an alias (*name)",
    ),
    "alias within its own list": (
        {"group_vars/gpu.yml": "sweep: &a\n  - {x: [*a]}"},
        "group_vars/gpu.yml:1: contains itself, through an alias (*name)",
    ),
    "no mapping": (
        {"group_vars/gpu.yml": "- serve_port"},
        "group_vars/gpu.yml: must be `key: value` lines, not a list",
    ),
    "number for a variable": (
        {"group_vars/gpu.yml": "1: one"},
        "group_vars/gpu.yml: 1: a name must be text; put it in quotes",
    ),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return slipway(tmp_path)


def refusal(root: Path, source: str = "inventory", data: dict[str, object] | None = None) -> str:
    with pytest.raises(Refusal) as refused:
        load(source, data, root=root)
    return str(refused.value)


@pytest.mark.parametrize("case", CASES)
def test_refused(root: Path, case: str) -> None:
    files, said = CASES[case]
    write(root, files)
    assert refusal(root) == said


def test_a_sites_profile_cannot_extend_the_shipped_one_that_it_replaces(root: Path) -> None:
    own = {"inventory/hosts.yml": "gpu: {hosts: {box: }}", "group_vars/profiles/small.yml": "extends: small"}
    write(root / "elsewhere", own)
    write(root, {"group_vars/profiles/large.yml": "extends: small\ndescription: Large."})
    assert refusal(root, "elsewhere/inventory") == f"elsewhere/group_vars/profiles/small.yml: {EXTENDS_ITSELF}"


@pytest.mark.parametrize(
    "files",
    [
        {"group_vars/cpu.yml": "serve_port: 1"},
        {"inventory/hosts.yml": "gpu_a: {hosts: {box: }}", "group_vars/gpu_b.yml": ""},
        {"inventory/hosts.yml": "nodes_x8: {hosts: {box: }}", "group_vars/nodes_x4.yml": ""},
        {"inventory/hosts.yml": "gpu: {hosts: {machine01: }}", "host_vars/machine02.yml": ""},
        {"group_vars/gpu.yml": "a: &a {gpus: 8}\n".replace("a: ", "hardware: ")},
        {"group_vars/gpu.yml": "sweep: &a [small]\nprofiles: *a"},
        {"inventory/notes.txt": "no: [inventory", "inventory/.hidden.yml": "no: [inventory"},
    ],
)
def test_accepted(root: Path, files: dict[str, str]) -> None:
    write(root, files)
    load("inventory", root=root)


def test_everything_wrong_is_said_at_once_and_once(root: Path) -> None:
    write(
        root,
        {
            "inventory/hosts.yml": "gpu: {hosts: {'box[1:3]': }}",
            "group_vars/all.yml": "profile: smal\nserve_port: 0",
            "group_vars/profiles/large.yml": "model: tiny-qwen3",
            "host_vars/box1.yml": "serve_port: 1: 2",
        },
    )
    assert sorted(refusal(root, data={"srve_port": 1}).splitlines()) == [
        "--data: srve_port: unknown variable; did you mean serve_port?",
        "group_vars/all.yml: profile: unknown profile smal; did you mean small?",
        "group_vars/all.yml: serve_port: input should be greater than 0, not 0",
        "group_vars/profiles/large.yml: description: required, but not given",
        "host_vars/box1.yml:1: not valid YAML: mapping values are not allowed in this context",
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"serve_host": 1.1},
            "--data: serve_host: must be text, not 1.1; "
            "put it in quotes, with every digit: --data 'serve_host=\"1.1\"'",
        ),
        ({"profile": "smal"}, "--data: profile: unknown profile smal; did you mean small?"),
        ({"profile": None}, "--data: profile: must be text, not null"),
        ({"profile": ["small"]}, "--data: profile: must be text, not ['small']"),
    ],
)
def test_refused_from_the_command_line(root: Path, data: dict[str, object], said: str) -> None:
    assert refusal(root, data=data) == said


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("inventory/host.yml", "inventory/host.yml: no such file or directory; did you mean inventory/hosts.yml?"),
        ("hosts.py", "hosts.py: not an inventory; accepted are a directory, a YAML file, or hosts by name"),
        ("box.invalid", "box.invalid: neither a directory, nor a YAML file, nor a host whose name resolves"),
        ("", "the inventory is empty; accepted are a directory, a YAML file, or hosts by name"),
        (",", "the inventory is empty; accepted are a directory, a YAML file, or hosts by name"),
        ("@nope", f"@nope: '@nope' {NO_NAME}"),
        ("@local,@docker/x", f"@local,@docker/x: '@docker/x' {NO_NAME}"),
        ("empty", "empty: has no hosts; name some under `hosts:` in a YAML file"),
    ],
)
def test_refused_as_an_inventory(root: Path, source: str, said: str) -> None:
    write(root, {"hosts.py": "hosts = []"})
    (root / "empty").mkdir()
    assert refusal(root, source) == said


@pytest.mark.parametrize("name", ["-box", "a/b", "a b", "a{1}", "{{ box }}", "box[1", "..", "@nope", "@docker/x"])
def test_no_hosts_name(root: Path, name: str) -> None:
    write(root, {"inventory/hosts.yml": f"gpu: {{hosts: {{box: , '{name}': }}}}"})
    assert refusal(root) == f"inventory/hosts.yml: gpu.hosts.{name}: {name!r} {NO_NAME}"


def test_the_settings_of_every_role_are_checked() -> None:
    with_settings = {path.parent.name for path in (ROOT / "roles").glob("*/settings.py")}
    assert {settings.__module__ for settings in SETTINGS} == {f"roles.{role}.settings" for role in with_settings}
    assert all(issubclass(settings, RoleSettings) for settings in SETTINGS)
