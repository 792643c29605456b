"""Which value a host gets, from which file, and what a task sees of it."""

import shutil
from pathlib import Path

import pytest
from pyinfra.connectors.local import LocalConnector

from inventory import PREVIOUS, SiteInventory, load, target
from inventory.loader import ROOT
from inventory.names import expanded
from roles.refusal import Refusal
from roles.serve.settings import ServeSettings
from tests.unit.sites import PROFILE, slipway, write


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return slipway(tmp_path)


def port(inventory: SiteInventory, host: str = "box") -> int:
    return ServeSettings.of(inventory.get_host(host)).port


def test_each_level_overrides_the_one_before(root: Path) -> None:
    levels: list[tuple[str, str]] = [
        ("group_vars/all.yml", "profile: small\nserve_port: 1"),
        ("group_vars/outer.yml", "serve_port: 2"),
        ("group_vars/gpu.yml", "serve_port: 3"),
        ("host_vars/box.yml", "serve_port: 4"),
    ]
    write(root, {"inventory/hosts.yml": "outer: {children: {gpu: {hosts: {box: }}}}"})
    for expected, (name, text) in enumerate(levels, start=1):
        write(root, {name: text})
        assert port(load("inventory", root=root)) == expected
    assert port(load("inventory", {"serve_port": 5}, root=root)) == 5


def test_a_file_of_the_inventory_and_the_directory_mean_the_same(root: Path) -> None:
    write(root, {"group_vars/gpu.yml": "serve_port: 3", "inventory/other.yml": "cpu: {hosts: {desk: }}"})
    whole, one = load("inventory", root=root), load("inventory/hosts.yml", root=root)
    assert sorted(whole.hosts) == ["box", "desk"]
    assert sorted(one.hosts) == ["box"]
    assert port(whole) == port(one) == 3


def test_folders_in_the_inventory_are_not_read(root: Path) -> None:
    write(root, {"inventory/examples/other.yml": "cpu: {hosts: {desk: }}"})
    assert sorted(load("inventory", root=root).hosts) == ["box"]


def test_a_host_by_name_has_the_values_for_all(root: Path) -> None:
    write(
        root, {"group_vars/all.yml": "profile: large\nserve_port: 7", "host_vars/@local.yml": "serve_host: 127.0.0.2"}
    )
    inventory = load("@local,localhost", root=root)
    assert sorted(inventory.hosts) == ["@local", "localhost"]
    assert port(inventory, "localhost") == 7
    assert ServeSettings.of(inventory.get_host("@local")).host == "127.0.0.2"


def test_a_name_that_resolves_to_nothing_but_has_an_address(root: Path) -> None:
    inventory = load("box.invalid", {"ansible_host": "192.0.2.7"}, root=root)
    assert inventory.get_host("box.invalid").data.ssh_hostname == "192.0.2.7"


def test_a_site_elsewhere_is_layered_on_top_of_what_is_shipped(root: Path, tmp_path: Path) -> None:
    write(
        root, {"group_vars/gpu.yml": "serve_port: 10\nserve_stop_limit: 10", "group_vars/all.yml": "profile: small"}
    )
    site = tmp_path / "elsewhere"
    write(
        site,
        {
            "inventory/hosts.yml": "gpu: {hosts: {box: , desk: {serve_port: 14}}, vars: {serve_port: 11}}",
            "group_vars/all.yml": "profile: ours\nserve_stop_limit: 9",
            "group_vars/profiles/ours.yml": "extends: small\ndescription: Ours.\nserver: {tp_size: 2}",
            "group_vars/profiles/large.yml": PROFILE.replace("Serves", "Here, serves"),
            "inventory/group_vars/gpu/limits.yml": "serve_ready_limit: 12",
        },
    )
    inventory = load("elsewhere/inventory", root=root)
    box = inventory.get_host("box")
    settings = ServeSettings.of(box)
    assert settings.port == 11, "the site's inventory is above a shipped group"
    assert settings.stop_limit == 10, "any group is above all"
    assert settings.ready_limit == 12, "group_vars inside the inventory count too"
    assert port(inventory, "desk") == 14
    assert target(box).profile.server == {"tp_size": 2}
    assert target(box).model.name == "tiny-qwen3"
    assert target(box).profiles["large"].description.startswith("Here")
    assert set(inventory.site.profiles) == {"small", "large", "ours"}


def test_a_profile_is_its_parents_with_its_own_values_on_top(root: Path) -> None:
    parent = PROFILE + "server: {tp_size: 2, mem_fraction_static: 0.8, enable_metrics: true}\nenvironment: {A: a}"
    child = "extends: parent\ndescription: Child.\nserver: {tp_size: 4, enable_metrics: null}\nenvironment: {B: b}"
    write(root, {"group_vars/profiles/parent.yml": parent, "group_vars/profiles/child.yml": child})
    write(root, {"group_vars/profiles/grandchild.yml": "extends: child\ndescription: Grandchild."})
    profiles = load("inventory", root=root).site.profiles
    assert profiles["grandchild"].server == {"tp_size": 4, "mem_fraction_static": 0.8}
    assert profiles["grandchild"].environment == {"A": "a", "B": "b"}
    assert profiles["parent"].server["tp_size"] == 2


def test_flags_of_the_wanted_profile_that_do_nothing_are_warned_about_once(root: Path) -> None:
    idle = PROFILE + "server: {num_continuous_decode_steps: 8}"
    write(root, {"group_vars/profiles/large.yml": idle, "inventory/hosts.yml": "gpu: {hosts: {box: , other: }}"})
    assert load("inventory", root=root).warnings == []
    assert load("inventory", {"profile": "large"}, root=root).warnings == [
        "group_vars/profiles/large.yml: server.num_continuous_decode_steps: has no effect; nothing in SGLang 0.5.23 "
        "reads it"
    ]


def test_the_target_of_a_host(root: Path) -> None:
    write(root, {"group_vars/gpu.yml": "profile: large\nhardware: {gpus: 8, memory_mib: 97887}"})
    wanted = target(load("inventory", root=root).get_host("box"))
    assert (wanted.wanted, wanted.profile.name) == ("large", "large")
    assert wanted.hardware is not None
    assert wanted.hardware.gpus == 8


def test_previous_is_resolved_later(root: Path) -> None:
    wanted = target(load("inventory", {"profile": PREVIOUS}, root=root).get_host("box"))
    assert wanted.wanted == PREVIOUS
    with pytest.raises(Refusal):
        _ = wanted.profile
    assert wanted.serving("large").profile.name == "large"
    with pytest.raises(Refusal, match="unknown profile largo; did you mean large"):
        _ = wanted.serving("largo").profile


def test_ansibles_connection_variables(root: Path) -> None:
    host = "ansible_host: 192.0.2.7, ansible_port: 2222, ansible_ssh_private_key_file: /k, ansible_become: false"
    write(root, {"inventory/hosts.yml": f"gpu: {{hosts: {{box: {{{host}}}, here: {{ansible_connection: local}}}}}}"})
    inventory = load("inventory", {"ansible_user": "me"}, root=root)
    data = inventory.get_host("box").data
    assert (data.ssh_hostname, data.ssh_port, data.ssh_key, data._sudo) == ("192.0.2.7", 2222, "/k", False)
    assert data.ssh_user == "me"
    assert inventory.get_host("here").connector_cls is LocalConnector


def test_groups_for_limit(root: Path) -> None:
    write(root, {"inventory/hosts.yml": "outer: {children: {gpu: {hosts: {box: }}}}\nungrouped: {hosts: {desk: }}"})
    inventory = load("inventory", root=root)
    assert inventory.get_host("box").groups == ["all", "outer", "gpu"]
    assert {name: len(inventory.get_group(name)) for name in ("all", "outer", "ungrouped")} == {
        "all": 2,
        "outer": 1,
        "ungrouped": 1,
    }
    inventory.require(limit=["gpu", "d*"], exclude=["desk"])
    for limit, exclude, said in (
        (["gqu"], [], "--limit: no host or group matches gqu; did you mean gpu?"),
        ([], ["bax"], "--exclude: no host or group matches bax; did you mean box?"),
        (["gpu"], ["box"], "--exclude: leaves no host"),
    ):
        with pytest.raises(Refusal) as refused:
            inventory.require(limit, exclude)
        assert str(refused.value) == said


@pytest.mark.parametrize(
    ("pattern", "names", "given_port"),
    [
        ("gpu[01:03]", ["gpu01", "gpu02", "gpu03"], None),
        ("gpu[9:11].example:22", ["gpu9.example", "gpu10.example", "gpu11.example"], 22),
        ("[a:c][0:2:2]", ["a0", "a2", "b0", "b2", "c0", "c2"], None),
        ("[:1]", ["0", "1"], None),
        ("2001:db8::1", ["2001:db8::1"], None),
        ("@local", ["@local"], None),
        ("@fake/one:22", ["@fake/one:22"], None),
        ("[1:10000]", [str(n) for n in range(1, 10001)], None),
    ],
)
def test_ranges(pattern: str, names: list[str], given_port: int | None) -> None:
    assert expanded(pattern) == (names, given_port)


@pytest.mark.parametrize("pattern", ["gpu[1:]", "gpu[a:3]", "gpu[01:100]", "gpu[3:1]", "gpu[1:3:0]", "gpu[x]"])
def test_no_ranges(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\["):
        expanded(pattern)


def test_everything_shipped_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "inventory/examples/rtx-pro-6000-x8.yml", tmp_path / "hosts.yml")
    inventory = load("hosts.yml")
    wanted = target(inventory.get_host("gpu1"))
    assert wanted.hardware is not None
    assert (wanted.hardware.gpus, wanted.hardware.memory_mib) == (8, 97887)
    assert set(inventory.site.profiles) == {path.stem for path in (ROOT / "group_vars/profiles").glob("*.yml")}
