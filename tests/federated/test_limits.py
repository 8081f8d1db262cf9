"""Each limit of an owner at each message, also if the owner makes it stricter during a run."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedul_flwr.config.node_config import NodeConfig, OwnerLimits
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid, task_identity
from fedul_flwr.errors import UserError
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DESCRIBE,
    DIAGNOSTICS,
    END,
    HEAD,
    OF,
    PART,
    PRIOR,
    SETTINGS,
    SETUP,
    phase_messages,
    to_record,
)
from fedul_flwr.federated.owner.door import build_client, make_client_app
from fedul_flwr.federated.owner.ledger import Approvals
from fedul_flwr.federated.payload import ENDED, EVALUATE, STARTED, TRAIN
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models.registry import fresh_model
from tests.federated.test_asking_again import answers_of, setup_of
from tests.federated.test_model_check import moved
from tests.support.learnable_owners import write_labeled, write_sets
from tests.support.lying_server import SUMMED
from tests.support.refusals import refuses

PLAIN: dict[str, Any] = {
    **{**SUMMED, "secure_sum": "off", "method": "fedul", "model": "linear"},
    **{"test_prior": "uniform", "num_rounds": 2},
}
XCLP: dict[str, Any] = {**SUMMED, "secure_sum": "off", "method": "xclp", "model": "linear"}
HEADS = {**PLAIN, "method": "closed-form", "closed-form.sum": "plaintext"}
BROKEN: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "allow-methods": [("fedpl", PLAIN), ("fedul", XCLP), ("fedul", {**SUMMED, "model": "linear"})],
    "allow-plaintext": [(False, HEADS), (False, {**XCLP, "xclp.secure": "plaintext"})],
    "allow-known-seed": [(False, {**XCLP, "xclp.secure": "rlwe", "xclp.codes-seed": "run"})],
    "allow-priors": [(False, {**PLAIN, "fedul.share-priors": True})],
    "allow-class-shares": [(False, {**PLAIN, "test_prior": "sets"})],
    "require-secure-sum": [(True, PLAIN), (True, HEADS)],
    "min-labeled-clients": [(4, {**XCLP, "xclp.min-labeled-clients": 3})],
    "check-models": [(True, {**PLAIN, "base": "fedadam"}), (True, PLAIN)],
    "fixed-features": [(True, XCLP)],
    "max-epsilon": [(1.0, PLAIN), (1.0, XCLP)],
    "max-codes-epsilon": [(1.0, XCLP), (1.0, {**XCLP, "xclp.codes-epsilon": 2.0})],
    "max-labels-epsilon": [(1.0, XCLP), (1.0, {**XCLP, "xclp.labels-epsilon": 2.0})],
    "max-clipping-norm": [(1.0, PLAIN), (1.0, {**PLAIN, "dp.clipping": "client", "dp.norm": 2.0})],
    "min-noise-multiplier": [(1.0, PLAIN)],
    "max-rounds": [(1, PLAIN), (1, {**XCLP, "num_rounds": 2})],
}
"""Values of limits, each with settings that break it."""
OF_DATA = {"min-set-size", "min-class-count", "share-digits"}
"""What the owner's points break; tests of floors have them."""
OF_ANSWERS = {"approve", "approved-starts", "fixed-clients", "answer-seconds"}
"""What says how a run is answered; tests of approvals, models and sums have them."""
OF_TABLES = {"allow-column-means"}
WIDE = {"allow-plaintext": True, "allow-known-seed": True, "allow-priors": True}


def test_no_limit_is_without_a_row() -> None:
    assert {*BROKEN} | OF_DATA | OF_ANSWERS | OF_TABLES == {*OwnerLimits.names()}


def said(grid: InProcessGrid, name: str, content: Content) -> str:
    """What an owner's client says to a message."""
    if name in (TRAIN, EVALUATE):
        values = ConfigRecord({"server-round": 1})
        one = RecordDict({ARRAYS: to_record(content.arrays), CONFIG: values})
        messages = [Message(one, dst_node_id=FIRST_NODE_ID, message_type=name)]
    else:
        messages = phase_messages(name, {FIRST_NODE_ID: content})
    [reply] = grid.send_and_receive(messages)
    return str(reply.error.reason) if reply.has_error() else "answered"


@pytest.mark.parametrize(
    ("limit", "value", "flat"),
    [(limit, *row) for limit, rows in BROKEN.items() for row in rows],
    ids=[f"{limit}-{i}" for limit, rows in BROKEN.items() for i in range(len(rows))],
)
def test_each_limit_holds_at_each_message_of_a_run_that_began_before(
    settings: Callable[..., RunConfig], tmp_path: Path, limit: str, value: Any, flat: Any
) -> None:
    config, data = settings(**flat), tmp_path / "ward"
    (write_sets if config.method in ("fedul", "closed-form") else write_labeled)(data, 0)
    limits = dict(WIDE)

    def build(context: Any) -> Any:
        context.node_config |= {"data": str(data), **limits}
        return build_client(context)

    phases = {*declared(config), TRAIN, EVALUATE} - {DESCRIBE, SETUP}
    with task_identity():
        grid = InProcessGrid(make_client_app(build), 1, {})
        setup = setup_of(config)
        assert said(grid, *setup) == "answered"
        for name in sorted(phases):
            assert "does not allow" not in said(grid, name, Content())  # the control
        limits[limit] = value
        for name in sorted(phases):
            answer = said(grid, name, Content())
            assert "does not allow" in answer, (name, answer)
            assert f"{limit} = " in answer, (name, answer)
        assert f"{limit} = " in said(grid, *setup)


@pytest.mark.parametrize("flat", [PLAIN, XCLP, HEADS])
def test_each_message_of_a_run_needs_its_approval(
    settings: Callable[..., RunConfig], tmp_path: Path, flat: Any
) -> None:
    config, data = settings(**flat), tmp_path / "ward"
    (write_sets if config.method in ("fedul", "closed-form") else write_labeled)(data, 0)
    limits = {**WIDE, "data": str(data), "approve": "each-run"}

    def build(context: Any) -> Any:
        context.node_config |= limits
        return build_client(context)

    phases = sorted({*declared(config), TRAIN, EVALUATE} - {DESCRIBE, SETUP, END})
    unapproved = "has not approved this run"
    with task_identity():
        grid = InProcessGrid(make_client_app(build), 1, {})
        said(grid, *setup_of(config))
        of = Approvals.of_node(NodeConfig.parse(limits))
        [digest] = of.runs()
        assert not any(said(grid, name, Content()) == "answered" for name in phases)
        of.decide(digest, "approved")
        assert said(grid, *setup_of(config)) == "answered"
        assert not any(unapproved in said(grid, name, Content()) for name in phases)
        of.decide(digest, "withdrawn")
        assert all(unapproved in said(grid, name, Content()) for name in phases)


def opened(
    config: RunConfig, data: Path, change: Callable[[Any], None] = lambda _: None, **limits: Any
) -> InProcessGrid:
    """An owner that is set up; ``change`` may alter its client."""

    def build(context: Any) -> Any:
        context.node_config |= {**WIDE, "data": str(data), **limits}
        client = build_client(context)
        change(client)
        return client

    if not data.exists():
        (write_sets if config.method in ("fedul", "closed-form") else write_labeled)(data, 0)
    grid = InProcessGrid(make_client_app(build), 1, {})
    assert said(grid, *setup_of(config)) == "answered"
    return grid


def first_weights(config: RunConfig) -> Content:
    return Content(dump_arrays(fresh_model(config, (8, 8, 1), 3)))


def add_a_value(client: Any) -> None:
    """Let a client send a value more than its run declares."""
    train, on_phase = client.train, client.on_phase

    def more(*given: Any) -> Any:
        return {**train(*given), "age": 3}

    def answer(name: str, content: Content) -> Content:
        honest = on_phase(name, content)
        return replace(honest, values={**honest.values, "age": 3}) if name == HEAD else honest

    client.train, client.on_phase = more, answer


@pytest.mark.parametrize(
    ("name", "flat"),
    [(TRAIN, PLAIN), (HEAD, {**HEADS, "closed-form.refinements": 0, "num_rounds": 1})],
)
def test_what_a_run_does_not_declare_does_not_leave(
    settings: Callable[..., RunConfig], tmp_path: Path, name: str, flat: Any
) -> None:
    config = settings(**flat)
    values = {OF: "head", PRIOR: [1 / 3] * 3, "server-round": 1} if name == HEAD else {}
    asked = replace(first_weights(config), values=values)
    with task_identity():
        assert said(opened(config, tmp_path / "ward"), name, asked) == "answered"
        assert "'age'" in said(opened(config, tmp_path / "ward", add_a_value), name, asked)


@pytest.mark.parametrize(
    ("flat", "answers"),
    [
        ({"selection": "heldout"}, True),
        ({"selection": "last"}, False),  # no loss is declared
        ({"selection": "heldout", "secure_sum": "on"}, False),  # it is in a sum alone
    ],
)
def test_a_loss_leaves_where_the_run_declares_it(
    settings: Callable[..., RunConfig], tmp_path: Path, flat: Any, answers: bool
) -> None:
    config = settings(**{**PLAIN, **flat})
    with task_identity():
        grid = opened(config, tmp_path / "ward")
        assert (said(grid, EVALUATE, first_weights(config)) == "answered") is answers


@pytest.mark.parametrize(
    ("name", "length", "answers"),
    [
        # Round 1 begins with the first weights; one update of length 0.5 later it is evaluated.
        *((TRAIN, 0.0, True), (TRAIN, 0.4, False)),
        *((EVALUATE, 0.0, True), (EVALUATE, 0.4, True), (EVALUATE, 0.6, False)),
    ],
)
def test_a_model_that_cannot_be_is_not_answered(
    settings: Callable[..., RunConfig], tmp_path: Path, name: str, length: float, answers: bool
) -> None:
    config = settings(**{**PLAIN, "selection": "heldout", "max_update_norm": 0.5})
    model = moved(first_weights(config).arrays, length)
    with task_identity():
        grid = opened(config, tmp_path / "ward", **{"check-models": True})
        answer = said(grid, name, Content(model))
    assert ("check-models" in answer) is not answers


def test_an_update_of_one_owner_is_not_asked_for_where_sums_are_required(
    settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config, asked = settings(**{**HEADS, "closed-form.sum": "masked"}), []

    def listen(client: Any) -> None:
        client.train = lambda *_: asked.append(client)

    with task_identity():
        for limits, times in (({"require-secure-sum": True}, 0), ({}, 1)):
            grid = opened(config, tmp_path / "ward", listen, **limits)
            said(grid, TRAIN, first_weights(config))
            assert len(asked) == times


def test_a_setup_without_settings_is_refused(
    settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Those of the app, which the server has sent, too, would be within no limit."""
    write_sets(tmp_path / "ward", 0)
    phase, content = setup_of(settings(**PLAIN))
    without = {key: value for key, value in content.values.items() if key != SETTINGS}
    [answer] = answers_of(tmp_path / "ward", [(phase, Content(values=without))])
    assert answer != "answered"


def test_a_module_that_is_not_allowed_is_not_imported_before_the_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spying_module.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    flat: dict[str, Any] = {"method": "spying_module:METHOD"}
    with refuses("owner-does-not-allow", limit="allow-methods"):
        build_client(Context(7, 5, {"data": str(tmp_path)}, RecordDict(), flat))
    assert "spying_module" not in sys.modules


@pytest.mark.parametrize("name", [TRAIN, HEAD])
def test_nobody_but_a_simulation_knows_what_an_owner_draws(
    settings: Callable[..., RunConfig], tmp_path: Path, name: str
) -> None:
    """A stage may draw noise that protects the owner from a server that knows the run's seed."""
    drawn: list[float] = []

    def draw(client: Any) -> None:
        def answer(*_: Any) -> Any:
            drawn.append(np.random.random())  # noqa: NPY002
            raise UserError("It has drawn.", "client-failed")

        client.train = client.on_phase = answer

    config = settings(**(PLAIN if name == TRAIN else HEADS), seed=5)
    asked = replace(first_weights(config), values={"server-round": 1} if name == HEAD else {})
    is_on = False
    with task_identity():
        grid = opened(config, tmp_path / "ward", lambda client: draw(client) if is_on else None)
        is_on = True
        for _ in range(2):
            np.random.seed(0)  # noqa: NPY002
            np.random.random(len(drawn))  # noqa: NPY002
            said(grid, name, asked)
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(("wait", "least"), [(0.7, 0.7), (1, 1.0), (0.0, 0.0)])
def test_an_answer_from_points_leaves_no_sooner_than_its_owner_wants(
    settings: Callable[..., RunConfig], tmp_path: Path, wait: float, least: float
) -> None:
    write_sets(tmp_path / "ward", 0)

    def build(context: Any) -> Any:
        context.node_config |= {"data": str(tmp_path / "ward"), "answer-seconds": wait}
        return build_client(context)

    with task_identity():
        node = {"answer-seconds": wait}
        app = make_client_app(build)

        def answer(message: Message, context: Any) -> Message:
            context.node_config |= node
            return app(message, context)

        grid = InProcessGrid(answer, 1, {})
        took = []
        for name in (DESCRIBE, SETUP):
            content = setup_of(settings(**PLAIN))[1] if name == SETUP else Content()
            began = time.monotonic()
            [reply] = grid.send_and_receive(phase_messages(name, {FIRST_NODE_ID: content}))
            assert not reply.has_error()
            took.append(time.monotonic() - began)
        for name in ("xclp-sum", PART):
            began = time.monotonic()
            [reply] = grid.send_and_receive(phase_messages(name, {FIRST_NODE_ID: Content()}))
            assert reply.has_error()
            took.append(time.monotonic() - began)
    assert all(seconds >= least for seconds in took[1:])
    assert took[0] < 0.7


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_an_update_does_not_say_how_long_training_took(
    settings: Callable[..., RunConfig], tmp_path: Path, wait: float
) -> None:
    config = settings(**PLAIN)
    content = RecordDict(
        {
            ARRAYS: to_record(first_weights(config).arrays),
            CONFIG: ConfigRecord({"server-round": 1}),
        }
    )
    with task_identity():
        grid = opened(config, tmp_path / "ward", **{"answer-seconds": wait})
        [reply] = grid.send_and_receive([Message(content, FIRST_NODE_ID, TRAIN)])
    account = reply.content[DIAGNOSTICS]
    assert account[ENDED] - account[STARTED] >= wait
    assert wait or account[ENDED] - account[STARTED] < 60
