"""Setup shared by training and labeling runs: wait for clients, initial weights, descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from logging import INFO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.common import log
from flwr.serverapp import Grid
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import load_reference, setting_error, user_code
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.config.shared import HUB, PRETRAINED, WORDS, is_function, name_texts, split_side
from fedul_flwr.config.trusted_modules import remember_run
from fedul_flwr.data.columns import COLUMNS_FILE, FEATURES_FILE, run_columns, unnamed_columns
from fedul_flwr.data.run_files.parts import DataInfo, Disclosed, Disclosures
from fedul_flwr.data.run_files.run import BEST_MODEL, SPLIT, Run
from fedul_flwr.data.run_files.store import describe_environment
from fedul_flwr.data.safe_files import require_whole, write_atomically
from fedul_flwr.data.split import LabelTruth, SetTruth
from fedul_flwr.data.standardize import Moments, Scaling, SharedScaling, constant_scaling
from fedul_flwr.data.tables import Missing
from fedul_flwr.data.types import Content
from fedul_flwr.data.user_content import changed_content, user_content
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.pretrained import text_vectors
from fedul_flwr.extractors.word_vectors import NAME_LENGTH, WordVectors
from fedul_flwr.federated.declared import disclosures, unprotected
from fedul_flwr.federated.grid import PackingGrid
from fedul_flwr.federated.nodes import DataShape, find_nodes, setup_content
from fedul_flwr.federated.owner.log import settings_digest
from fedul_flwr.federated.stages.columns import ColumnScaling
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.learning.device import choose_device, choose_dtype
from fedul_flwr.learning.plan import precision_of
from fedul_flwr.models.parts import Extended
from fedul_flwr.models.resnets import TorchvisionModel, pretrained_arrays
from fedul_flwr.run.server_data import ServerData, open_server_data

_DATA_FILES = ("dataset", "server.dataset", "columns", "labels.split")


def load_starting_weights(
    model: nn.Module, source: str, class_names: Sequence[str] = (), features: str = ""
) -> list[str]:
    """Replace the random weights of ``model``, in place, by those that ``source`` names.

    Arrays are matched by name and shape. Heads (the last linear layer, and a second one) keep their
    random weights if the source has none or one for another number of classes. A model with added
    layers also accepts the weights of the same model without.
    """
    plain = model.model if isinstance(model, Extended) else model
    if source == PRETRAINED:
        assert isinstance(plain, TorchvisionModel)  # checked with the settings
        weights = _pretrained(plain)
    elif texts := name_texts(source, features):
        weights = _of_rows(plain, _rows_of_texts(source, texts, class_names, features))
    elif is_function(source):
        weights = _of_rows(plain, _own_rows(plain, source, class_names))
    else:
        weights = _read(source)
    added = tuple(f"{name}." for name in model.added) if isinstance(model, Extended) else ()
    if added and not any(name.startswith(added) for name in weights):
        weights = {f"model.{name}": array for name, array in weights.items()}
    return _overwrite(model, weights, source)


def _overwrite(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> list[str]:
    state = model.state_dict()
    fresh = _misfits(model, state, weights)
    for name in sorted((state.keys() | weights.keys()) - fresh):
        here, there = (tuple(of[name].shape) if name in of else None for of in (state, weights))
        if here != there:
            why = f"array {name!r} has shape {there} there, and {here} in the model (None: none)"
            raise setting_error("start-from", source, why, "model-mismatch")
    with torch.no_grad():
        for name in state.keys() - fresh:
            state[name].copy_(weights[name])
    return [name for name in state if name in fresh]


def _misfits(
    model: nn.Module, state: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> set[str]:
    """Arrays of heads that ``weights`` lacks or has for another number of classes."""
    misfits: set[str] = set()
    for head in _heads(model):
        of_head = [name for name in state if name.startswith(f"{head}.")]
        there = [name for name in of_head if name in weights]
        # Only the first axis, the classes, may differ: another second axis means another model.
        fits_inside = all(weights[name].shape[1:] == state[name].shape[1:] for name in there)
        resized = any(len(weights[name]) != len(state[name]) for name in there)
        if not there or (fits_inside and resized and len(there) == len(of_head)):
            misfits.update(of_head)
    return misfits


def _heads(model: nn.Module) -> list[str]:
    """Names of the last linear layer and of added ones."""
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [*layers[-1:], *(model.added if isinstance(model, Extended) else ())]


def _pretrained(model: TorchvisionModel) -> dict[str, Tensor]:
    """torchvision's weights without the classifier, which is for ImageNet's classes."""
    weights = {f"net.{name}": array for name, array in pretrained_arrays(model.name).items()}
    heads = tuple(f"{name}." for name in _heads(model))
    return {name: array for name, array in weights.items() if not name.startswith(heads)}


def _rows_of_texts(
    source: str, texts: list[str], class_names: Sequence[str], features: str
) -> Tensor:
    """Rows ``(K, d)`` of the classes' names, in texts, by the encoder of ``features``."""
    if len(texts) == 1:
        texts = texts * len(class_names)
    if len(texts) != len(class_names):
        why = (
            f"one text with {{}} for the name is needed, or {len(class_names)}: one for each class"
        )
        raise setting_error("start-from", source, why, "number-of-classes")
    names = [name.replace("_", " ") for name in class_names]  # texts have words
    named = [text.replace("{}", name) for text, name in zip(texts, names, strict=True)]
    if features == WORDS:
        return torch.from_numpy(NAME_LENGTH * WordVectors().of_texts(named))
    return text_vectors(split_side(features)[0].removeprefix(HUB), named)


def _own_rows(model: nn.Module, source: str, class_names: Sequence[str]) -> Tensor:
    """Rows ``(K, d)`` by the user's function of the classes' names."""
    weight = next(iter(model.parameters()))
    function = load_reference(source, "start-from")
    with user_code(f"Setting start-from = {source!r}"):
        rows = np.asarray(function(list(class_names)), np.float32)
    if rows.shape != weight.shape or not np.isfinite(rows).all():
        why = f"returned {rows.shape} numbers, not {tuple(weight.shape)} finite ones"
        raise setting_error("start-from", source, why, "own-code-result")
    return torch.from_numpy(rows)


def _of_rows(model: nn.Module, rows: Tensor) -> dict[str, Tensor]:
    """Weights of a linear model, and biases 0."""
    weight, bias = model.state_dict()
    return {weight: rows, bias: torch.zeros(len(rows))}


def _read(source: str) -> dict[str, Tensor]:
    wrong = partial(setting_error, "start-from", source)
    path = Path(source)
    file = path / BEST_MODEL if path.is_dir() else path
    if not file.is_file():
        what = f"holds no {BEST_MODEL}" if path.is_dir() else "there is no such file or directory"
        raise wrong(what, "model-missing")
    try:
        require_whole(file)
        weights = load_file(file)
    except (SafetensorError, OSError) as err:
        why = f"{file.name} is no readable safetensors file ({err})"
        raise wrong(why, "model-file-wrong") from err
    for name, array in weights.items():
        if array.is_floating_point() and not array.isfinite().all():
            raise wrong(f"array {name!r} is not finite", "model-not-finite")
    return weights


def open_data(
    grid: Grid, settings: RunConfig, run: Run
) -> tuple[ServerData, dict[int, int | None]]:
    """The server's data, split over the nodes if these bring none of their own; and the nodes."""
    if settings.resume:
        for setting in changed_content(run.content, user_content(settings, _DATA_FILES)):
            why = f"its files have changed since the run in {run.path} began: restore them"
            value = settings.value(setting)
            raise setting_error(setting, value, why, "result-of-other-settings")
    data = open_server_data(settings)
    nodes, own_data = find_nodes(grid, settings)
    clients = run.data.num_clients if settings.resume and not own_data else None
    if clients not in (None, len(nodes)):
        raise UserError(
            f"The run in {run.path} has {clients} clients and cannot go on with {len(nodes)}: "
            f"resume it with num-supernodes = {clients}.",
            "number-of-clients",
        )
    data = data.without_split(settings) if own_data else data.split_over(len(nodes), settings)
    data.save_split(run.path / SPLIT)
    return data, nodes


def start_elsewhere(model: nn.Module, settings: RunConfig, class_names: Sequence[str]) -> None:
    """Load the weights that setting ``start-from`` names into ``model``, if it names any."""
    if source := settings.start_from:
        fresh = load_starting_weights(model, source, class_names, settings.features)
        log(INFO, "Weights from %s; fresh: %s", source, ", ".join(fresh) or "none")


def client_setup(settings: RunConfig, data: ServerData, run: Run) -> Content:
    """Setup for clients; in a simulation it has the paths of their data and their state."""
    files = data.files(find_method(settings.method).data)
    if files:
        files["memory"] = str(run.memory)
    return setup_content(settings, data.shape, files)


def describe(
    run: Run,
    settings: RunConfig,
    data: ServerData,
    prior: Floats | None,
    model: nn.Module | None,
    grid: Grid,
) -> None:
    """Write ``config.json`` and ``environment.json``, and of a run among owners
    ``disclosures.json``; ``prior`` ``(K,)``: test class priors."""
    flat = settings.to_flat()
    digest = settings_digest(flat)
    del flat["resume"]
    if data.split is None and not data.client_data:
        sent = [
            Disclosed(what=entry.part.says, reader=entry.part.reader, often=entry.often)
            for entry in disclosures(settings)
        ]
        not_protected = [*unprotected(settings)]
        run.store(disclosures=Disclosures(settings=digest, sent=sent, unprotected=not_protected))
    names, columns = data.shape.class_names, data.shape.columns
    if columns is not None and not (run.path / COLUMNS_FILE).exists():
        (run.path / COLUMNS_FILE).write_text(columns.to_json(), encoding="utf-8")
    of_data = DataInfo(
        input_shape=data.shape.input_shape,
        columns=None if columns is None else tuple(columns.features),
        num_classes=len(names),
        class_names=names,
        num_clients=data.num_clients,
        test_prior=None if prior is None else tuple(prior.tolist()),
    )
    run.store(settings=flat, content=user_content(settings, _DATA_FILES), data=of_data)
    remember_run(run.path, flat)
    arithmetic = None if model is None else _arithmetic(settings, model)
    about: dict[str, Any] = {"arithmetic": arithmetic}
    about["started"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    if isinstance(grid, PackingGrid):
        about["flower_run"] = str(grid.run.run_id)
    run.store(environment=describe_environment() | about)


def earlier_scaling(run: Run, data: ServerData, settings: RunConfig) -> Scaling | None:
    """What clients of a run that resumes have pooled before; None if they have not, or need not.

    The first attempt may have pooled them even if no round was complete.
    """
    pooled = scaling_file(run.path, data.shape)
    if settings.standardize != "federation" or not (settings.resume and pooled.exists()):
        return None
    columns = run_columns(run.path, pooled.name)
    trained = (run.path / LAST_MODEL).exists()
    if not trained and (not columns.has_constants or columns == data.shape.columns):
        return None
    return constant_scaling(columns)


def write_scaling_once_known(
    strategy: Strategy, run: Run, data: ServerData, shared: SharedScaling
) -> None:
    """Let a run keep the scaling by all points in ``shared``, and in a file for predictions.

    The file also says what fills a missing value, by the same moments where nothing else has said
    it: owners fill theirs by their own points, and a row to predict has no owner.
    """

    def keep(scaling: Scaling, moments: Moments) -> None:
        shared.value = scaling
        write_scaling(run, data, scaling, moments, strategy.settings.missing)

    for stage in strategy.stages:
        if isinstance(stage, ColumnScaling.server):
            stage.on_scaling = keep


def write_scaling(
    run: Run,
    data: ServerData,
    scaling: Scaling,
    moments: Moments | None = None,
    missing: Missing = "refuse",
) -> None:
    """Write the file with the scaling of a run and the missing values of ``moments``."""
    columns = data.shape.model_columns or unnamed_columns(data.shape.model_shape[0])
    columns = columns.scaled_by(scaling.means.tolist(), scaling.scales.tolist())
    if moments is not None and not data.shape.num_features:
        columns = columns.filled_by(moments.means.tolist(), missing)
    write_atomically(scaling_file(run.path, data.shape), columns.to_json())


def scaling_file(directory: Path, shape: DataShape) -> Path:
    """File of a run with the means and scales of its columns, or of an extractor's features."""
    return directory / (FEATURES_FILE if shape.num_features else COLUMNS_FILE)


def _arithmetic(settings: RunConfig, model: nn.Module) -> str | None:
    """Precision of ``model`` on this machine: ``"bfloat16"``, ``"float32"`` or ``"float64"``."""
    try:
        device = choose_device(settings.device)
    except UserError:
        return None
    return str(choose_dtype(precision_of(settings), model, device)).removeprefix("torch.")


def set_truths(data: ServerData) -> list[SetTruth]:
    """Truth about a simulation's clients with unlabeled sets; empty in any other run."""
    clients = data.split.clients if data.split is not None else ()
    return [client for client in clients if isinstance(client, SetTruth)]


def label_truths(data: ServerData) -> list[LabelTruth]:
    """True labels of a simulation's partly labeled clients; empty in any other run."""
    clients = data.split.clients if data.split is not None else ()
    return [client for client in clients if isinstance(client, LabelTruth)]
