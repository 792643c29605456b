"""The role weights."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyinfra.api.exceptions import DeployError

from inventory import Site, SiteInventory
from roles.serve.profile import Profile
from roles.weights.layout import directory
from roles.weights.manifest import digest
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from roles.weights.tasks import weights
from tests.plan.conftest import Deploy, Outcome

TINY = yaml.safe_load((Path(__file__).parents[2] / "group_vars/models/tiny-qwen3.yml").read_text())
OLD, NEW = "a" * 40, "b" * 40
HUB = {"repository": "org/model", "revision": NEW}
TOKEN = "hf_0123456789abcdef"
ROOT = "/var/lib/slipway/models"
PLACE = f"{ROOT}/m/{NEW[:12]}"
FILES = {"config.json": {"bytes": 10, "sha256": "c" * 64}}
WHOLE = {"bytes": 10, "used": False, "digest": digest(FILES)}


@pytest.fixture
def run(fake_deploy: Deploy) -> Any:
    """Run the role for a model with this source on a host that holds these folders."""

    def run(
        source: dict[str, Any],
        folders: dict[str, Any] | None = None,
        *,
        free: int | None = 10**12,
        token: str = "",
        rsync: str = "",
        answers: dict[str, str] | None = None,
        **variables: Any,
    ) -> Outcome:
        model = Model.read({**TINY, "name": "m", "source": source}, "m.yml")
        other = Model.read({**TINY, "name": "other", "source": {"repository": "org/other"}}, "other.yml")
        profiles = {name: Profile(name=name, description="", model=name, server={}) for name in ("m", "other")}
        seen = "" if free is None else json.dumps({"free": free, "folders": folders or {}})
        responses = {
            **(answers or {}),
            "::observed:: weights": f"::observed:: weights\n{seen}\n::observed:: token\n{token}\n"
            f"::observed:: rsync\n{rsync}\n",
            "uname -s": "Linux",
        }
        fake = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": responses}
        site = Site({"m": model, "other": other}, profiles)
        data = {"profile": "m", **fake, **variables}
        return fake_deploy(weights, inventory=SiteInventory(site, {"@fake/host": data}, {}, {}))

    return run


def job(outcome: Outcome) -> str:
    (found,) = [command for command in outcome.commands if "systemd-run" in command]
    return found


def test_weights_come_by_one_job_with_a_releases_python(run: Any) -> None:
    outcome = run(HUB)
    assert outcome.changed == ["weights | Bring the weights"]
    assert f"--unit=slipway-weights-m-{NEW[:12]}.service" in job(outcome)
    assert f"--setenv=PYTHONPATH={ROOT}/m/.fetching-{NEW[:12]}" in job(outcome)
    assert f"/bin/python -P -m roles.weights.fetch {ROOT}/m/.fetching-{NEW[:12]}" in job(outcome)


def test_weights_that_are_there_cost_one_round_trip(run: Any) -> None:
    outcome = run(HUB, {PLACE: WHOLE})
    assert outcome.changed == []
    assert len(outcome.commands) == 1


@pytest.mark.parametrize("folder", [{**WHOLE, "digest": None}, {**WHOLE, "digest": "another"}])
def test_damaged_weights_and_others_than_declared_are_put_right(run: Any, folder: dict[str, Any]) -> None:
    assert run({**HUB, "files": FILES}, {PLACE: folder}).changed == ["weights | Bring the weights"]
    assert run({**HUB, "files": FILES}, {PLACE: WHOLE}).changed == []


def test_a_token_is_a_credential_of_the_job_and_stands_in_no_command(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TEST_TOKEN", TOKEN)
    token = {"weights_token": {"env": "TEST_TOKEN"}, "answers": {"while read -r name": "hub-token"}}
    told = run(HUB, **token)
    assert told.changed == ["weights | Write the token for the hub", "weights | Bring the weights"]
    assert "--property=LoadCredential=hub-token:/etc/slipway/credentials/hub-token" in job(told)
    assert TOKEN not in "".join(told.commands)
    assert "LoadCredential" not in job(run(HUB))
    assert "LoadCredential" not in job(run({**HUB, "rsync": "other:/m"}, **token))


def test_another_token_is_written_and_nothing_else_is_done(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TEST_TOKEN", TOKEN)
    answers = {"while read -r name": "hub-token"}
    outcome = run(HUB, {PLACE: WHOLE}, answers=answers, weights_token={"env": "TEST_TOKEN"})
    assert outcome.changed == ["weights | Write the token for the hub"]


def test_a_token_that_is_not_declared_any_more_is_removed(run: Any) -> None:
    outcome = run(HUB, {PLACE: WHOLE}, token="yes", answers={"while read -r name": "hub-token"})
    assert outcome.changed == ["weights | Write the token for the hub"]


def test_a_token_that_cannot_be_read_ends_the_run_before_anything_changes(run: Any) -> None:
    with pytest.raises(DeployError, match="weights_token: the environment variable NO_TOKEN is not set"):
        run(HUB, weights_token={"env": "NO_TOKEN"})


def test_proxies_reach_the_job(run: Any) -> None:
    outcome = run(HUB, weights_environment={"HTTPS_PROXY": "http://proxy:3128"})
    assert "--setenv=HTTPS_PROXY=http://proxy:3128" in job(outcome)


@pytest.mark.parametrize(
    ("source", "variables", "sentence"),
    [
        ({"repository": "org/model"}, {}, r"@fake/host: group_vars/models/m.yml: source.revision: required"),
        (HUB, {"bundle": "/srv/bundle"}, r"source.directory: required with `bundle`"),
        ({**HUB, "bytes": 2 * 10**12}, {}, r"2000\.0 GB of weights are still to come, and 1000\.0 GB are free"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_changes(
    run: Any, source: dict[str, Any], variables: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DeployError, match=sentence):
        run(source, **variables)


def test_weights_that_are_there_need_neither_network_nor_room(run: Any) -> None:
    assert run(HUB, {PLACE: WHOLE}, bundle="/srv/bundle").changed == []
    assert run({**HUB, "bytes": 10**12}, {PLACE: WHOLE}, free=0).changed == []


def test_what_a_killed_run_has_fetched_needs_no_room_again(run: Any) -> None:
    begun = {f"{ROOT}/m/.fetching-{NEW[:12]}": {"bytes": 10**12, "used": False, "digest": None}}
    assert run({**HUB, "bytes": 2 * 10**12}, begun).changed == ["weights | Bring the weights"]


def test_a_bare_host_is_asked_nothing_that_it_cannot_answer(run: Any) -> None:
    assert run({"generate": "tiny-qwen3"}, free=None).changed == ["weights | Bring the weights"]


def test_rsync_is_installed_where_it_is_needed(run: Any) -> None:
    source = {**HUB, "rsync": "other:/srv/m"}
    assert run(source, rsync="/usr/bin/rsync").changed == ["weights | Bring the weights"]
    assert "rsync" not in " ".join(run(source, {PLACE: WHOLE}).operations)
    assert run(source).changed == ["weights | Install rsync", "weights | Bring the weights"]


OTHERS = {
    f"{ROOT}/m/{OLD[:12]}": {**WHOLE, "bytes": 600 * 10**9},
    f"{ROOT}/m/.fetching-{OLD[:12]}": {"bytes": 5, "used": False, "digest": None},
    f"{ROOT}/gone/{OLD[:12]}": {**WHOLE, "used": True},
    directory(
        WeightsSettings.model_validate({}), Model.read({**TINY, "name": "other", "source": {"repository": "o/o"}}, "")
    ): WHOLE,
}


def test_old_weights_are_named_and_stay(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="pyinfra"):
        outcome = run(HUB, {PLACE: WHOLE, **OTHERS})
    assert outcome.changed == []
    assert f"{ROOT}/m/{OLD[:12]}: 600.0 GB that nothing refers to; `weights_remove_old: true` removes" in caplog.text
    assert "gone" not in caplog.text
    assert "other" not in caplog.text


def test_old_weights_go_on_request_but_for_those_in_use(run: Any) -> None:
    outcome = run(HUB, {PLACE: WHOLE, **OTHERS}, weights_remove_old=True)
    assert outcome.changed == ["weights | Remove old weights"]
    removed = [command for command in outcome.commands if "rm -rf" in command]
    assert removed == [f"rm -rf --one-file-system -- {ROOT}/m/{name}{OLD[:12]}" for name in ("", ".fetching-")]


def test_the_job_is_told_what_and_whence_and_where_to(run: Any) -> None:
    commands = [command for command in run(HUB, token="yes").commands if "instructions.json" in command]
    (text,) = [found[1] for command in commands if (found := re.search(r"echo (\S+) \| base64", command))]
    told = json.loads(base64.b64decode(text))
    assert (told["place"], told["folder"], told["user"]) == ("hub", PLACE, "sglang")
    assert told["source"]["revision"] == NEW
