"""Roles on pyinfra's @fake hosts: what would be done, in which order, with which commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy
from pyinfra.api.inventory import Inventory
from pyinfra.api.operations import run_ops
from pyinfra.api.state import State, StateStage
from pyinfra.connectors.fake import FakeConnector


@dataclass(frozen=True)
class Outcome:
    """What a role did to one fake host."""

    operations: list[str]
    """Names of the operations, in order."""
    changed: list[str]
    """Those of them that sent at least one command."""
    commands: list[str]
    """Every remote command, observations included, in order."""


Deploy = Callable[..., Outcome]


@pytest.fixture
def fake_deploy() -> Deploy:
    """Run a role on a fake host: `fake_deploy(role, responses={"part of a command": "its stdout"}, **variables)`."""

    def run(
        role: Any, responses: Mapping[Any, Any] | None = None, inventory: Any = None, **variables: Any
    ) -> Outcome:
        data = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": dict(responses or {}), **variables}
        state = State(inventory or Inventory(([("@fake/host", data)], {})), Config())
        connect_all(state)
        state.set_stage(StateStage.Prepare)
        add_deploy(state, role)
        order = state.get_op_order()
        (host,) = state.inventory
        names = [next(iter(state.op_meta[op].names)) for op in order]
        state.set_stage(StateStage.Execute)
        run_ops(state)
        connector = cast(FakeConnector, host.connector)
        changed = [
            name
            for name, op in zip(names, order, strict=True)
            if state.get_op_data_for_host(host, op).operation_meta.changed
        ]
        return Outcome(names, changed, [str(command) for command in connector.executed_commands])

    return run
