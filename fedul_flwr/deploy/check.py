"""Checks for a data owner before a run: whether its data fit, and what would be sent.

The client of the run's method is built as in a run, and gives the same answers, which are not sent.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
from flwr.app import ConfigRecord, Context, RecordDict

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.config.shared import BUILT_IN, SharedSettings
from fedul_flwr.config.user_files import parse_overrides
from fedul_flwr.data.image_facts import survey_images
from fedul_flwr.data.local_data import survey_tables
from fedul_flwr.data.types import Content, Value
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.declared import Sent, disclosures
from fedul_flwr.federated.flower_internals import parse_config_args
from fedul_flwr.federated.messages import (
    CONFIG,
    DESCRIBE,
    SETUP,
    payload_bytes,
    to_record,
    to_records,
)
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.federated.owner.door import Door, build_client
from fedul_flwr.federated.owner.ledger import Ledger, ledger_file
from fedul_flwr.federated.owner.log import refuse_unwritable
from fedul_flwr.federated.payload import EVALUATE, TRAIN, WEIGHTS
from fedul_flwr.federated.stages.agreement import resolve_agreement
from fedul_flwr.federated.strategy import validate
from fedul_flwr.learning.plan import local_plan
from fedul_flwr.run.resolve_settings import choose_selection, choose_test_prior, resolve_auto
from fedul_flwr.run.server_data import named_shape, open_server_data, refuse_other_form
from fedul_flwr.secure.identities import OWNERS_FILE, read_identities

_OF_SHAPE = (
    *("columns", "missing", "label-column", "text-column"),
    *("features", "device", "precision"),
)
"""Settings that say, beside classes and shape, what the model gets of a point."""
_LONGEST = 60
"""Largest number of characters of a value that are shown."""


def check_owner(
    node_config: str,
    overrides: Mapping[str, Any],
    base_dir: Path,
    class_names: str = "",
    input_shape: str = "",
) -> Iterator[str]:
    """Lines of a report for the owner; the last one is ``Ready.``"""
    where = _read_node_config(node_config)
    settings, otherwise = _settings(overrides, base_dir)
    shape = _shape(settings, class_names, input_shape)
    refuse_other_form(settings, shape)
    settings, otherwise = (
        resolve_agreement(resolve_auto(one, shape)[0], shape.input_shape, own_data=True)
        for one in (settings, otherwise)
    )
    client, answer = _prepared(where, settings, shape)
    yield "Your data, for your eyes only:"
    for part in (client.data, *client.stages):
        yield from (f"  {line}" for line in part.describe())
    node = NodeConfig.parse(where)
    about = (
        survey_tables(Path(node.data), client.data.table)
        if len(shape.input_shape) < 2
        else survey_images(Path(node.data), shape.input_shape)
    )
    yield from (f"  {line}" for line in about)
    yield "Your limits (docs/own-data.md, Limits, says what each means):"
    yield from (f"  {line}" for line in node.limits_in_words())
    identities = read_identities(node.identity, node.partition_id)
    if identities is None:
        yield (
            "Keys of owners for each other are not signed: node config identity names no folder. "
            "The server could replace them, or add clients of its own."
        )
    else:
        yield (
            f"Keys of owners for each other are signed: this is owner {identities.client} of "
            f"{len(identities.owners)} in {OWNERS_FILE}, and keys of nobody else are taken."
        )
    if node.log:
        refuse_unwritable(Path(node.log))
        yield f"Log of what leaves this machine: {node.log}"
    ledger = ledger_file(node)
    assert ledger is not None  # a node without data was refused
    yield f"Ledger of what was answered and spent: {ledger}"
    yield from (f"  {line}" for line in (Ledger(ledger).spent() if ledger.exists() else ()))
    local_plan(settings)  # checks that the chosen device exists
    yield "Would leave this machine:"
    sure = disclosures(settings)
    # Sent only if the server has no labels.
    said = {(sent.phase, str(sent)) for sent in sure}
    more = [sent for sent in disclosures(otherwise) if (sent.phase, str(sent)) not in said]
    yield from _outgoing(sure, answer, client)
    yield from _outgoing(more, answer, client, "perhaps ")
    client.check()
    yield "Ready."


def _read_node_config(text: str) -> dict[str, Any]:
    """Node config as parsed by Flower, which ignores invalid parts; here they are refused."""
    try:
        wanted = parse_overrides([text])  # first: it refuses files that Flower would wait for
        values = dict(parse_config_args([text]))
    except (UserError, click.ClickException, OSError, ValueError, RecursionError):
        values, wanted = {}, {"": text}
    if values != wanted:
        raise OwnDataError(
            f"--node-config {text!r} cannot be read: it takes key=value pairs, without spaces "
            "around = and text in quotes, or the path of a .toml file.",
            "node-config-wrong",
            option="--node-config",
        )
    if not NodeConfig.parse(values).data:
        raise OwnDataError(
            "Node config data is missing: it names the folder of the owner's data.",
            "node-config-wrong",
        )
    return values


def _settings(overrides: Mapping[str, Any], base_dir: Path) -> tuple[RunConfig, RunConfig]:
    """Settings as the server resolves them with labels in its data set, and without."""
    settings = resolve(overrides, base_dir)
    if settings.client_data:
        raise UserError(
            "Setting client-data is for simulations; an owner's data are in its node config.",
            "setting-for-simulations",
            setting="client-data",
        )
    strategy = find_method(settings.method).strategy_class
    validate(settings)

    def resolved(has_validation: bool) -> RunConfig:
        chosen = choose_selection(settings, strategy.can_hold_out, has_validation=has_validation)
        prior = choose_test_prior(settings, strategy, own_data=True)
        return settings.model_copy(update={"selection": chosen, "test_prior": prior})

    # The data set may be on another machine: only the run shows whether it has labels.
    likely = resolved(settings.dataset != "none" and settings.validation_fraction > 0)
    return likely, resolved(False) if settings.selection == "auto" else likely


def _shape(settings: RunConfig, class_names: str, input_shape: str) -> DataShape:
    """Classes and input shape of the run; only uses a data set on this machine."""
    if settings.dataset == "none":
        if class_names or input_shape:
            raise UserError(
                "Options --class-names and --input-shape are for a data set at the server; with "
                "dataset = 'none' the settings class-names and input-shape say it.",
                "option-without-effect",
            )
        return named_shape(settings)
    if class_names and (input_shape or settings.columns or settings.text_column):
        flat = {"dataset": "none", "class-names": class_names, "input-shape": input_shape}
        same = settings.to_flat()
        return named_shape(SharedSettings.parse(flat | {key: same[key] for key in _OF_SHAPE}))
    if settings.dataset in BUILT_IN or Path(settings.dataset).exists():
        return open_server_data(settings).shape
    raise UserError(
        f"Setting dataset = {settings.dataset!r} is not on this machine: --class-names and "
        "--input-shape, which the server's side can tell, have to say what it is like; for a table "
        "setting columns, the file that all owners have, in place of --input-shape.",
        "option-missing",
        setting="dataset",
    )


def _prepared(
    node_config: Mapping[str, Any], settings: RunConfig, shape: DataShape
) -> tuple[Client[Any], Mapping[str, Value]]:
    """The client after ``describe`` and ``setup``, and its answer to the latter."""
    context = Context(
        run_id=0,
        node_id=0,
        node_config=dict(node_config),
        state=RecordDict(),
        run_config=dict(settings.to_flat()),
    )
    build_client(context).on_phase(DESCRIBE, Content())
    with redirect_stdout(io.StringIO()):  # the report has what it would print
        client = build_client(context)
        answer = client.on_phase(SETUP, setup_content(settings, shape))
        if any(sent.phase == SETUP for sent in disclosures(settings)):
            Door(client).leaving(SETUP, to_records(answer))
    return build_client(context), answer.values


def _outgoing(
    sends: list[Sent], answer: Mapping[str, Value], client: Client[Any], perhaps: str = ""
) -> Iterator[str]:
    """The declared entries, with values and sizes that are known before the run."""
    order = {DESCRIBE: 0, SETUP: 1, TRAIN: 3, EVALUATE: 4}  # 2: phases of the method
    for sent in sorted(sends, key=lambda sent: order.get(sent.phase, 2)):
        yield f"  {perhaps}{sent} ({sent.phase})"
        if sent.phase == SETUP:
            yield from (
                f"    {_value(name, answer[name])}" for name in sent.names if name in answer
            )
        elif sent.part.is_group:
            arrays = largest_update(client, whole=sent.part.kind != WEIGHTS)
            for name in sent.names:
                size = payload_bytes(RecordDict({name: to_record(arrays)}))
                yield f"    {name}: {len(arrays)} arrays, at most {size:,} bytes"
        else:
            yield f"    {', '.join(sent.names)}"


def largest_update(client: Client[Any], *, whole: bool) -> Arrays:
    """Arrays as large as an update can be, in the run's precision: the whole model, or what is
    trained of it."""
    from fedul_flwr.learning.local import dump_arrays

    model = client.model
    if client.settings.precision == "float64":
        model.double()
    arrays = dump_arrays(model)
    if whole:
        return arrays
    return {name: arrays[name] for name, _ in model.named_parameters()}


def _value(name: str, value: Value) -> str:
    text = "infinite" if value == math.inf else repr(value)
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    size = payload_bytes(RecordDict({CONFIG: ConfigRecord({name: value})}))
    return f"{name} = {shown} ({size:,} bytes)"
