"""Runs without training: clients label their own points, and a simulation scores the labels."""

from __future__ import annotations

import time
from abc import abstractmethod
from logging import WARNING

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.auto_settings import in_words
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files import store
from fedul_flwr.data.run_files.label_files import XCLP
from fedul_flwr.data.standardize import SharedScaling
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import UserError
from fedul_flwr.federated.strategy import Strategy, build_base
from fedul_flwr.learning.device import choose_device
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models.registry import fresh_model
from fedul_flwr.run import setup
from fedul_flwr.run.resolve_settings import resolve_auto, resolve_settings
from fedul_flwr.run.scores import one_class_warning, score_labels
from fedul_flwr.run.server_data import open_server_data
from fedul_flwr.run.setup import start_elsewhere
from fedul_flwr.run.summary import draw_pictures, write_labeling_summary


class LabelingStrategy(Strategy):
    """The strategy of a method that trains nothing (``trains=False``)."""

    @classmethod
    @abstractmethod
    def needs_model(cls, settings: RunConfig) -> bool:
        """Whether :meth:`label` needs the weights of a model."""

    @abstractmethod
    def label(self, grid: Grid, weights: Arrays) -> None:
        """Lead the phases at whose end clients write their labels."""


def needs_model(settings: RunConfig) -> bool:
    """Whether the run's method trains nothing and yet needs the weights of a model."""
    strategy = find_method(settings.method).strategy_class
    return not find_method(settings.method).trains and bool(strategy.needs_model(settings))


def label(grid: Grid, settings: RunConfig, directory: store.RunDirectory) -> None:
    """Let clients label their points; write the labels' scores and other results."""
    labeled = (directory.path / store.SUMMARY).exists()
    if labeled and settings.resume and not directory.plots.exists():
        draw_pictures(directory)
        return
    if labeled or settings.resume:
        raise UserError(
            f"{directory.path} holds a run already, and method {settings.method!r} has no rounds "
            "to go on with: name another output.",
            "run-exists",
        )
    strategy_class: type[LabelingStrategy] = find_method(settings.method).strategy_class
    strategy_class.validate(settings)
    data, nodes = setup.open_data(grid, settings, directory)
    began = time.time()  # without what is done once, such as features of a data set
    settings, _ = resolve_auto(
        settings, strategy_class, data.shape, data.points_of_client(settings)
    )
    weights: Arrays = {}
    model = None
    if needs_model(settings):
        model = fresh_model(settings, data.shape.model_shape, len(data.shape.class_names))
        setup.start_elsewhere(model, settings, data.shape.class_names)
        weights = dump_arrays(model)
    directory.remove_clients()
    strategy = strategy_class(
        settings, build_base(settings), nodes, setup.client_setup(settings, data, directory)
    )
    strategy.columns.on_scaling = setup.scaling_writer(
        directory, data, SharedScaling(), settings.missing
    )
    setup.describe(directory, settings, data, None, model, grid)
    strategy.label(grid, weights)
    setup.write_federation(directory, strategy, data)
    names = data.shape.class_names
    scores = score_labels(directory.clients, setup.label_truths(data), len(names))
    if scores:
        directory.write_json(store.LABELS, scores)
    warnings = []
    if XCLP in scores.get("sources", {}) and "confusion" in scores["sources"][XCLP]:
        matrix = np.asarray(scores["sources"][XCLP]["confusion"])
        text = one_class_warning(matrix, names, "Propagation across clients", "scored points")
        warnings = [text] if text else []
    for warning in warnings:
        log(WARNING, "%s", warning)
    about = {"num_clients": len(nodes), "warnings": warnings, "seconds_total": time.time() - began}
    write_labeling_summary(directory, settings, strategy.record, scores, about)


# Refuse a simulation that cannot begin, before Flower is started for it.


def check_start(settings: RunConfig, num_clients: int) -> str:
    """Take the server app's steps before its first message; data are decoded and split for it."""
    choose_device(settings.device)
    method = find_method(settings.method)
    strategy = method.strategy_class
    strategy.validate(settings)
    data = open_server_data(settings).split_over(num_clients, settings)
    notes = "\n".join(data.source.notes if data.source is not None else ())
    settings, chosen = resolve_auto(settings, strategy, data.shape, data.points_of_client(settings))
    data = data.standardized(settings, SharedScaling())
    if not (method.trains or needs_model(settings)):
        return "\n".join(filter(None, (notes, data.shape.in_words)))
    model = fresh_model(settings, data.shape.model_shape, len(data.shape.class_names))
    if not settings.resume:
        start_elsewhere(model, settings, data.shape.class_names)
    if method.trains:
        resolve_settings(settings, strategy, data, model)
    lines = (notes, data.shape.in_words, in_words(chosen) if method.trains else "")
    return "\n".join(filter(None, lines))
