"""flash-attn: how many compilers fit, which wheel fits, and the proof that keeps a wrong one out of a release."""

import base64
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from roles.flash_attn import builder
from roles.flash_attn.settings import FlashAttnSettings
from roles.flash_attn.wheels import Release, architecture, key, lock_of, locked_versions
from roles.refusal import Refusal

GIB = 2**30


def settings(**variables: object) -> FlashAttnSettings:
    return FlashAttnSettings.select(variables, lambda _: "all.yml")


# Settings


def test_yaml_s_bare_off_is_understood() -> None:
    assert settings(flash_attn=False).attn == "off"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"flash_attn": "yes"}, "all.yml: flash_attn: input should be 'build', 'wheel' or 'off', not 'yes'"),
        ({"flash_attn": "wheel"}, "flash_attn_wheel: required with flash_attn: wheel"),
        ({"flash_attn_version": "2.7.0"}, "flash_attn_version: no lock of version 2.7.0"),
        ({"flash_attn_wheel_sha256": "abc"}, "flash_attn_wheel_sha256"),
    ],
)
def test_bad_settings_are_refused_by_name(variables: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        settings(**variables)
    assert sentence in str(refused.value)


# Compilers at once


@pytest.mark.parametrize(
    ("cores", "free", "limits", "workers"),
    [
        (2, 24, [], 2),
        (2, 12, [], 1),
        (96, 850, [], 96),
        (96, 340, [], 43),
        (128, 512, [16], 1),
        (128, 512, [1e9, 64], 8),
        (4, 24, [], 2),
    ],
)
def test_no_more_compilers_than_cores_and_memory_allow(
    cores: int, free: float, limits: list[float], workers: int
) -> None:
    assert builder.workers(cores, free, limits) == workers
    left = min([free, *limits]) - workers * builder.JOB_GIB
    assert left >= builder.RESERVE_GIB


def test_a_host_with_too_little_memory_for_one_is_refused() -> None:
    with pytest.raises(SystemExit, match="10 GiB of memory are free, expected 11 to compile flash-attn: "):
        builder.workers(2, 10)


def test_the_tightest_control_group_above_the_build_counts(tmp_path: Path) -> None:
    unit = tmp_path / "system.slice/build.service"
    unit.mkdir(parents=True)
    (unit / "memory.max").write_text("max\n")
    (unit / "memory.current").write_text("0\n")
    (tmp_path / "system.slice/memory.max").write_text(f"{16 * GIB}\n")
    (tmp_path / "system.slice/memory.current").write_text(f"{4 * GIB}\n")
    assert builder.group_limits("0::/system.slice/build.service\n", tmp_path) == [12.0]


def test_control_groups_of_version_1_count_too(tmp_path: Path) -> None:
    (tmp_path / "memory/jobs").mkdir(parents=True)
    (tmp_path / "memory/jobs/memory.limit_in_bytes").write_text(f"{16 * GIB}\n")
    (tmp_path / "memory/jobs/memory.usage_in_bytes").write_text("0\n")
    assert builder.group_limits("4:memory:/jobs\n1:name=systemd:/\n", tmp_path) == [16.0]


# Which wheel


@pytest.mark.parametrize(
    ("capability", "name"),
    [("8.0", "80"), ("8.9", "80"), ("9.0", "90"), ("12.0", "120"), ("7.5", None), ("11.0", None)],
)
def test_a_gpu_runs_the_code_of_its_major_capability(capability: str, name: str | None) -> None:
    assert architecture(capability) == name


def test_a_wheel_is_keyed_by_all_that_decides_whether_it_fits() -> None:
    release = Release.read(["python=3.11", "torch=2.14.1", "cuda=13.0"])
    assert release is not None
    assert key("2.8.3.post2", release, "120") == "2.8.3.post2-torch2.14.1-cuda13.0-python3.11-sm120"
    assert Release.read(["python=3.11"]) is None


@pytest.mark.parametrize("name", ["tools", *locked_versions()])
def test_every_lock_has_hashes(name: str) -> None:
    lock = lock_of(name)
    assert lock.count("==") == 1
    assert "--hash=sha256:" in lock


# A release and wheels, made up


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def make_release(folder: Path, *, elf: str = "sm_120", loads: bool = True) -> Path:
    """A release with flash-attn 4, a cuobjdump that lists `elf`, and a Python that loads the module, or does not."""
    packages = folder / "lib/python3.11/site-packages"
    (packages / "flash_attn/cute").mkdir(parents=True)
    (packages / "flash_attn/cute/interface.py").write_text("new = True\n")
    (packages / "flash_attn_4-4.0.dist-info").mkdir()
    (packages / "flash_attn_4-4.0.dist-info/RECORD").write_text(
        record_line("flash_attn/cute/interface.py", b"new = True\n") + "flash_attn_4-4.0.dist-info/RECORD,,\n"
    )
    (folder / "cuda/bin").mkdir(parents=True)
    (folder / "bin").mkdir()
    failure = "echo 'ImportError: undefined symbol: _ZN3c104impl' >&2; exit 1"
    scripts = {
        "cuda/bin/cuobjdump": f"echo 'ELF file    1: flash_fwd.1.{elf}.cubin'",
        "bin/python": "exit 0" if loads else failure,
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


def make_wheel(folder: Path, *, compiled: bool = True) -> Path:
    """A wheel with the old copy of flash_attn/cute that flash-attn 2.8.3 brings."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ["flash_attn/__init__.py", "flash_attn/cute/interface.py"]
    names += ["flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"] if compiled else []
    wheel = folder / "flash_attn-2.8.3.post2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, b"old")
        archive.writestr("flash_attn-2.8.3.dist-info/RECORD", "".join(record_line(name, b"old") for name in names))
    return wheel


def prove(tmp_path: Path, *, compiled: bool = True, **release: Any) -> Path:
    """Prove a kept wheel; returns its path, at which it is no more if it was rejected."""
    wheel = make_wheel(tmp_path / "kept/key", compiled=compiled)
    place = make_release(tmp_path / "release", **release)
    builder.prove(wheel, tmp_path, place, {"architecture": "120", "cuda_home": str(place / "cuda")})
    return wheel


def test_a_wheel_with_code_for_the_gpus_that_loads_is_proved(tmp_path: Path) -> None:
    assert prove(tmp_path).exists()
    prove(tmp_path / "family", elf="sm_120f")


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ({"compiled": False}, "has no compiled code, expected code for sm_120"),
        ({"elf": "sm_90"}, "has code for sm_90, expected code for sm_120"),
        ({"loads": False}, r"undefined symbol: _ZN3c104impl\), expected the ABI of that torch"),
    ],
)
def test_a_wheel_that_is_wrong_is_rejected_and_thrown_away(tmp_path: Path, case: dict[str, Any], found: str) -> None:
    with pytest.raises(SystemExit, match=found):
        prove(tmp_path, **case)
    assert not (tmp_path / "kept/key").exists()


def test_a_kept_wheel_has_none_of_flash_attn_4_s_files(tmp_path: Path) -> None:
    kept = builder.keep(make_wheel(tmp_path / "dist"), tmp_path / "wheels/key")
    with zipfile.ZipFile(kept) as archive:
        assert [name for name in archive.namelist() if "cute" in name] == []
        assert b"flash_attn/cute" not in archive.read("flash_attn-2.8.3.dist-info/RECORD")
        assert "flash_attn/__init__.py" in archive.namelist()


def test_a_damaged_flash_attn_4_is_found_by_its_hashes(tmp_path: Path) -> None:
    release = make_release(tmp_path)
    builder.check_flash_attn_4(release)
    (release / "lib/python3.11/site-packages/flash_attn/cute/interface.py").write_text("old\n")
    with pytest.raises(
        SystemExit, match=r"flash_attn/cute/interface\.py and 0 more files of flash-attn 4 are not as"
    ):
        builder.check_flash_attn_4(release)


def make_tools(folder: Path, release: Path, log: Path) -> Path:
    """A pip that notes what it is asked for, and whose installation overwrites a file of flash-attn 4."""
    (folder / "bin").mkdir(parents=True)
    victim = release / "lib/python3.11/site-packages/flash_attn/cute/interface.py"
    (folder / "bin/pip").write_text(f'#!/bin/sh\necho "$3" >>{log}\n[ "$3" != install ] || echo old >{victim}\n')
    (folder / "bin/pip").chmod(0o755)
    return folder


def test_an_installation_that_damages_flash_attn_4_is_undone_and_fails(tmp_path: Path) -> None:
    release = make_release(tmp_path / "release")
    tools = make_tools(tmp_path / "tools", release, tmp_path / "log")
    with pytest.raises(SystemExit, match="are not as installed"):
        builder.install(make_wheel(tmp_path / "kept"), tools, release)
    assert (tmp_path / "log").read_text().split() == ["install", "uninstall"]


def test_a_given_wheel_is_checked_against_its_hash(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "given")
    wanted = {"wheel": str(wheel), "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    assert builder.fetch(tmp_path, wanted).read_bytes() == wheel.read_bytes()
    with pytest.raises(SystemExit, match="expected 0000"):
        builder.fetch(tmp_path, {**wanted, "wheel_sha256": "0" * 64})


def test_progress_is_told_in_files_and_a_failure_with_its_last_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "echo '[1/2] nvcc a.cu'; echo noise; echo '[2/2] nvcc b.cu'"
    builder.compile_source(tmp_path, ["sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    assert capfd.readouterr().out == "compiled 1 of 2 files\ncompiled 2 of 2 files\n"
    with pytest.raises(SystemExit, match=r"b\.cu: error: no"):
        builder.compile_source(tmp_path, ["sh", "-c", "echo 'b.cu: error: no'; exit 1"], {"PATH": "/usr/bin:/bin"})


def test_a_kept_wheel_is_used_and_the_record_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = make_release(tmp_path / "release")
    folder, kept = tmp_path / "folder", tmp_path / "wheels/key"
    folder.mkdir()
    make_wheel(kept)
    instructions = {
        "release": str(release),
        "cuda_home": str(release / "cuda"),
        "kept": str(kept),
        "architecture": "120",
        "wheel": "",
        "record": json.dumps({"build": "2.8.3.post2"}),
    }
    (folder / "instructions.json").write_text(json.dumps(instructions))
    done: list[str] = []
    monkeypatch.setattr(builder, "yield_to_others", lambda: None)
    monkeypatch.setattr(builder, "install_tools", lambda _: tmp_path)
    monkeypatch.setattr(builder, "install", lambda *_: done.append(str((release / builder.RECORD).exists())))
    builder.main(folder)
    assert done == ["False"]
    assert (release / builder.RECORD).read_text() == '{"build": "2.8.3.post2"}\n'
    assert not folder.exists()
