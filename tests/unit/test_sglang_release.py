"""A release is named after its lock, and a host that cannot take one is refused before anything changes."""

import pytest

from roles.refusal import Refusal
from roles.sglang.release import BYTES_NEEDED, Release, check_host
from roles.sglang.settings import SglangSettings


def test_the_name_changes_with_the_lock_alone() -> None:
    release = Release("0.5.23", "torch==2.14.1\n")
    assert release.name == "0.5.23-cb4c768c4b63"
    assert release.directory == "/opt/slipway/releases/0.5.23-cb4c768c4b63"
    assert release.python == "/opt/slipway/releases/0.5.23-cb4c768c4b63/bin/python"
    assert Release("0.5.23", "torch==2.14.2\n").name != release.name


def test_it_is_built_beside_where_it_belongs() -> None:
    release = Release("0.5.23", "")
    assert release.aside.rsplit("/", 1)[0] == release.directory.rsplit("/", 1)[0]


@pytest.mark.parametrize("python", ["3.11.2", "3.12.3", None])
def test_a_host_that_fits_is_accepted(python: str | None) -> None:
    check_host("h", "0.5.23", machine="x86_64", python=python, free=BYTES_NEEDED)


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ({"machine": "aarch64"}, "host h: it is a aarch64 machine; SGLang 0.5.23 is locked for x86_64"),
        (
            {"python": "3.10.12"},
            "host h: python3 is 3.10.12; SGLang 0.5.23 is locked for Python 3.11 and 3.12, "
            "as Debian 12 and Ubuntu 24.04 have them",
        ),
        (
            {"free": 13 * 2**30},
            "host h: 13.0 GiB are free for /opt/slipway/releases; a release of SGLang 0.5.23 needs 14 GiB",
        ),
    ],
)
def test_a_host_that_does_not_fit_is_refused_in_one_sentence(host: dict[str, object], sentence: str) -> None:
    right = {"machine": "x86_64", "python": "3.11.2", "free": 2**40}
    with pytest.raises(Refusal) as refusal:
        check_host("h", "0.5.23", **{**right, **host})  # type: ignore[arg-type]
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"sglang_version": "0.5.24"}, "all.yml: sglang_version: no lock of version 0.5.24; did you mean 0.5.23?"),
        ({"sglang_version": 0.5}, "all.yml: sglang_version: must be text, not 0.5"),
        ({"sglang_verson": "0.5.23"}, "all.yml: sglang_verson: unknown key; did you mean sglang_version?"),
        ({"sglang_uv_cache": "uv"}, "all.yml: sglang_uv_cache: string should match pattern '^/', not 'uv'"),
    ],
)
def test_a_wrong_setting_is_refused(variables: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        SglangSettings.select(variables, lambda _: "all.yml")
    assert str(refusal.value) == sentence
