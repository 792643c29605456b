"""roles.files: what a plan shows."""

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy, deploy
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State, StateStage

from roles.files import File, files_in_place

FILES = [File("/etc/one", "new\n"), File("/etc/two", "new\n")]


@deploy("files")
def write_both() -> None:
    files_in_place(name="Write both", files=FILES, seen={})


def test_a_plan_shows_the_difference_of_every_file(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    data = {"fake_delay": 0, "fake_delay_jitter": 0}
    state = State(Inventory((["@fake/host"], data)), Config(DIFF=True))
    connect_all(state)
    state.set_stage(StateStage.Prepare)
    add_deploy(state, write_both)
    told = [record.getMessage() for record in caplog.records if "Will create" in record.getMessage()]
    assert [line.split()[-1] for line in told] == [file.path for file in FILES]
