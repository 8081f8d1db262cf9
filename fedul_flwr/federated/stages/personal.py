"""Personal models: a client makes its own of the run's model, compares both, and keeps it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.common import log

from fedul_flwr.config.base import setting_error
from fedul_flwr.config.methods import PARTLY_LABELED, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.local_data import own_data, refuse_unwritable
from fedul_flwr.data.run_files.parts import Personal as Errors
from fedul_flwr.data.run_files.run import PERSONAL_MODEL
from fedul_flwr.data.safe_files import load_arrays_of, save_arrays
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.split import label_scenario
from fedul_flwr.data.types import Content, OwnPoints
from fedul_flwr.federated import owner_offsets
from fedul_flwr.federated.client_data import file_of
from fedul_flwr.federated.grid import run_phase
from fedul_flwr.federated.messages import LEARNED, PERSONAL
from fedul_flwr.federated.stage import ClientStage, Finished, ServerStage, Stage, clients_at_end
from fedul_flwr.federated.stages.heads import head_names
from fedul_flwr.federated.stages.owners_differ import own_biases

if TYPE_CHECKING:
    from torch import nn

    from fedul_flwr.learning.plan import LocalPlan


OFFSET = "offset"
"""Kind of models whose biases are an owner's."""


class AtClient(ClientStage):
    """Makes its model after the last round. It sends nothing."""

    phases = frozenset({PERSONAL})

    def answer(self, name: str, content: Content) -> Content:
        """Make the personal model."""
        del name
        make_personal(self.client, content)
        return Content()

    def describe(self) -> Iterator[str]:
        """Where it will be."""
        yield f"its personal model will be in {_file(self.client)}"

    def check(self) -> None:
        """Refuse a folder in which it cannot be written."""
        refuse_unwritable(_file(self.client).parent, "Its personal model")


class AtServer(ServerStage):
    """Asks for the models after the last round, and compares those of a simulation."""

    def finish(self, run: Finished) -> Mapping[str, Any]:
        """Let every client make its model; the summary's entry."""
        strategy, settings = self.strategy, self.settings
        arrays = run.directory.load_model(run.model)[0]
        clients = clients_at_end(strategy, run.grid)
        beside = owner_offsets.beside(strategy)
        if kind_of(settings) == OFFSET and not beside:  # owners do not differ
            return {}
        content = Content({**arrays, **beside}, {"round": run.round})
        nodes = {client.node_id: content for client in clients}
        phase = run_phase(run.grid, nodes, PERSONAL, settings.round_timeout)
        for client in clients:
            if client.node_id in phase.failures:
                log(WARNING, "%s has no personal model: %s", client, phase.failures[client.node_id])
        about: dict[str, Any] = {
            "kind": kind_of(settings),
            "round": run.round,
            "failures": len(phase.failures),
            "bytes_up": phase.bytes_up,
            "bytes_down": phase.bytes_down,
        }
        answered = [client.partition_id for client in clients if client.node_id in phase.answers]
        folder = run.directory.memory
        files = {client: folder / str(client) / PERSONAL_MODEL for client in answered}
        if not any(file.exists() for file in files.values()):
            log(INFO, "Personal models are where the clients run.")
            return {"personal": about}
        rows = []
        for number, file in files.items():
            tuned, facts = load_arrays_of(file)
            row = {"client": number, **facts}
            for key in ("personal", "round"):
                del row[key]
            row["test_error"] = run.error(number, arrays | tuned)
            row["global_test_error"] = run.error(number, arrays)
            rows.append(row)
        run.directory.store(personal=Errors.model_validate({**about, "clients": rows}))
        return {"personal": about | _compared(rows)}


def _compared(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the clients whose errors are known, and how many gain and lose.

    Errors on test points count where they are known, else those on labels set aside.
    """
    prefix = "test_" if any(row["test_error"] is not None for row in rows) else ""
    keys = f"{prefix}error", f"global_{prefix}error"
    pairs = [(row[keys[0]], row[keys[1]]) for row in rows if row[keys[0]] is not None]
    if not pairs:
        return {"measured_on": "nothing"}
    tuned, shared = np.array(pairs).T
    return {
        "measured_on": "test points" if prefix else "labels set aside",
        "clients": len(pairs),
        "error": float(tuned.mean()),
        "global_error": float(shared.mean()),
        "better": int((tuned < shared).sum()),
        "worse": int((tuned > shared).sum()),
    }


class Personal(Stage):
    """With setting `personal`, and where owners' offsets are taken out of their points."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """Unless it is off."""
        return kind_of(settings) != "off"

    @classmethod
    def fits(cls, settings: RunConfig, model: nn.Module) -> None:
        """Refuse a network without the part that is to be personal, or clients without targets."""
        from fedul_flwr.learning.network import tracking_layers
        from fedul_flwr.models.parts import feature_layer

        if settings.personal == "norm" and not tracking_layers(model):
            why = (
                f"needs batch norm, and model = {settings.model!r} has none; choose 'head' or "
                "'cnn2'"
            )
            raise setting_error("personal", "norm", why, "model-unfit")
        if settings.personal != "head":
            return
        feature_layer(model)  # refuses a model without one
        kind = find_method(settings.method).data
        if kind in PARTLY_LABELED and label_scenario(settings) == "server":
            why = "needs labels or sets at clients, and only the server has labels"
            raise setting_error("personal", "head", why, "setting-needs-labels")


def kind_of(settings: RunConfig) -> str:
    """Which part of a client's model is its own: as setting `personal` says, or biases that follow
    from what its points are off by."""
    return OFFSET if owner_offsets.are_taken_out(settings) else settings.personal


def make_personal(client: Any, content: Content) -> None:
    """Make the client's personal model, and write it with what is known of both models.

    A simulation's file has the arrays that differ from the run's model. An owner's has all of them,
    and the owner's log says where it is.

    Parameters
    ----------
    client : a :class:`fedul_flwr.federated.client.Client`.
    content : the run's model, and its round.
    """
    from fedul_flwr.learning.local import dump_arrays, load_arrays
    from fedul_flwr.learning.personal import Personal as Made
    from fedul_flwr.learning.personal import own_head, own_statistics
    from fedul_flwr.learning.plan import local_plan

    kind, plan = kind_of(client.settings), local_plan(client.settings)
    points, model = _points(client), client.model
    arrays, reference = content.arrays, None
    if kind == OFFSET:
        weight = head_names(client.settings, client.data.model_shape, client.num_classes)[0]
        arrays, reference = owner_offsets.taken_out(client, arrays, weight)
    load_arrays(model, arrays)
    before = _error(model, points, plan)
    if kind == "head" and not points.missing:
        rng = stream(client.settings.seed, "personal-folds", client.node.partition_id)
        made = own_head(model, points, plan, rng)
    elif kind == "norm" and len(points.points):
        made = own_statistics(model, points, plan)
    elif reference is not None:
        made = Made(own_biases(client, arrays, reference))
    else:
        made = Made({})
    # Statistics of the model were overwritten, too.
    load_arrays(model, {**arrays, **made.arrays})
    about = {
        "personal": kind,
        "round": content.values["round"],
        "differs": bool(made.arrays),
        "missing": points.missing if kind == "head" else "",
        "steps": made.steps,
        "loss": made.loss,
        "global_loss": made.global_loss,
        "labels_aside": 0 if points.aside is None else len(points.aside.points),
        "error": _error(model, points, plan),
        "global_error": before,
    }
    file = _file(client)
    is_owner = client.state.directory is None
    with own_data():
        save_arrays(file, dump_arrays(model) if is_owner else made.arrays, about)
    if is_owner:
        print(f"Client {client.node.partition_id}: {in_words(about)} It is in {file}.")


def _file(client: Any) -> Path:
    return file_of(client.node, client.state, PERSONAL_MODEL)


def _points(client: Any) -> OwnPoints:
    """What it learns from, with class shares of sets as the client has learned them, if it has."""
    points: OwnPoints = client.data.own_points
    learned = client.state.load(LEARNED, sys.maxsize) if points.priors is not None else {}
    return replace(points, priors=learned["priors"]) if learned else points


def _error(model: nn.Module, points: OwnPoints, plan: LocalPlan) -> float | None:
    """Percent wrong among the points set aside; ``None`` without any."""
    if points.aside is None:
        return None
    from fedul_flwr.learning.local import predict_logits

    aside = points.aside
    predicted = predict_logits(model, aside.inputs, aside.points, plan).argmax(dim=1).numpy()
    return float(100 * (predicted != aside.labels).mean())


def in_words(about: Mapping[str, Any]) -> str:
    """What a client found, for its owner.

    Examples
    --------
    >>> in_words({"differs": False, "missing": "it has no labels", "error": None})
    'The personal model is the global one: it has no labels.'
    """
    if not about["differs"]:
        why = about["missing"] or "nothing was better on its own points"
        return f"The personal model is the global one: {why}."
    if about["error"] is not None:
        return (
            f"On {about['labels_aside']} labels set aside the personal model errs on "
            f"{about['error']:.1f} %, the global one on {about['global_error']:.1f} %."
        )
    if about["loss"] is None:
        return "A personal model was made; without labels or sets it cannot be compared."
    return (
        f"Loss on its own points: {about['loss']:.4f} with the personal model, "
        f"{about['global_loss']:.4f} with the global one. Errors need labels."
    )
