"""Runs without training: clients label their own points, and a simulation scores the labels."""

from __future__ import annotations

import time
from abc import abstractmethod
from logging import WARNING

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.label_files import XCLP
from fedul_flwr.data.run_files.parts import LabelScore
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.errors import UserError
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.strategy import Strategy, validate
from fedul_flwr.learning.device import choose_device
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.run import setup
from fedul_flwr.run.callbacks import Callbacks
from fedul_flwr.run.measures import score_labels
from fedul_flwr.run.resolve_settings import prepare
from fedul_flwr.run.server_data import open_server_data
from fedul_flwr.run.setup import start_elsewhere
from fedul_flwr.run.split_report import show_split, split_warnings, write_reports
from fedul_flwr.run.summary import summarize_labels
from fedul_flwr.run.warnings import one_class_warning


class LabelingStrategy(Strategy):
    """The strategy of a method that trains nothing (``trains=False``)."""

    @classmethod
    @abstractmethod
    def needs_model(cls, settings: RunConfig) -> bool:
        """Whether :meth:`label` needs the weights of a model."""

    @abstractmethod
    def label(self, grid: Grid, weights: Arrays) -> None:
        """Lead the phases at whose end clients write their labels."""


def label(grid: Grid, settings: RunConfig, run: Run, callbacks: Callbacks) -> None:
    """Let clients label their points; write the labels' scores and other results."""
    if run.finished and settings.resume and not run.plots.exists():
        callbacks.end(run.outcome.entries)
        return
    if run.finished or settings.resume:
        raise UserError(
            f"{run.path} holds a run already, and method {settings.method!r} has no rounds "
            "to go on with: name another output.",
            "run-exists",
        )
    strategy_class: type[LabelingStrategy] = find_method(settings.method).strategy_class
    validate(settings)
    data, nodes = setup.open_data(grid, settings, run)
    began = time.time()  # without what is done once, such as features of a data set
    prepared = prepare(settings, data)
    settings, model = prepared.settings, prepared.model
    weights: Arrays = {}
    if model is not None:
        setup.start_elsewhere(model, settings, data.shape.class_names)
        weights = dump_arrays(model)
    run.remove_clients()
    for_clients = setup.client_setup(settings, data, run)
    strategy = strategy_class(settings, build_base(settings), for_clients, nodes=nodes)
    setup.write_scaling_once_known(strategy, run, data, prepared.scaling)
    setup.describe(run, settings, data, None, model, grid)
    warnings = show_split(run, data, settings)
    strategy.label(grid, weights)
    write_reports(run, strategy.registry.reports, data)
    names = data.shape.class_names
    scores = score_labels(run.memory, setup.label_truths(data), len(names))
    if scores.sources:
        run.store(labels=scores)
    if matrix := scores.sources.get(XCLP, LabelScore()).confusion:
        text = one_class_warning(
            np.asarray(matrix), names, "Propagation across clients", "scored points"
        )
        if text:
            log(WARNING, "%s", text)
            warnings.append(text)
    about = {"num_clients": len(nodes), "warnings": warnings, "seconds_total": time.time() - began}
    summarize_labels(run, settings, strategy.record, about)
    callbacks.end(run.outcome.entries)


# Refuse a simulation that cannot begin, before Flower is started for it.


def check_start(settings: RunConfig, num_clients: int) -> str:
    """Take the server app's steps before its first message; data are decoded and split for it."""
    choose_device(settings.device)
    validate(settings)
    run = prepare(settings, open_server_data(settings).split_over(num_clients, settings))
    if run.model is not None and not settings.resume:
        start_elsewhere(run.model, settings, run.data.shape.class_names)
    warnings = (f"Warning: {text}" for text in split_warnings(run.data, run.settings))
    return "\n".join([*run.said, *warnings])
