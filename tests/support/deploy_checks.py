"""``fedul-flwr deploy check`` as an owner runs it."""

import json
from typing import Any

from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from tests.support.owner_files import NO_DATA
from tests.support.refusals import code_of

WHERE = 'data="ward" partition-id=1 num-partitions=3'


def check(method: str, node_config: str = WHERE, *options: str, **settings: Any) -> Any:
    told = {**NO_DATA, "method": method, **settings}
    text = " ".join(f"{key}={json.dumps(value)}" for key, value in told.items())
    return CliRunner().invoke(
        app, ["deploy", "check", "--node-config", node_config, "-c", text, *options]
    )


def ready(method: str, *arguments: str, **settings: Any) -> list[str]:
    done = check(method, *arguments, **settings)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("\nReady.\n")
    return [line.strip() for line in done.stdout.splitlines()]


def refused(method: str, *arguments: str, **settings: Any) -> str:
    """The code of a refusal, which is the last line."""
    done = check(method, *arguments, **settings)
    (line,) = [said for said in done.stderr.splitlines() if said.startswith("Error: ")]
    assert (done.exit_code, done.stderr.endswith(f"{line}\n")) == (1, True)
    assert "Ready." not in done.stdout
    return code_of(line)
