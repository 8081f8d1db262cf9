"""Refuse a simulation that cannot begin, before Flower is started for it."""

from __future__ import annotations

from fedul_flwr.config.auto_settings import in_words
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.standardize import SharedScaling
from fedul_flwr.learning.device import choose_device
from fedul_flwr.models.registry import fresh_model
from fedul_flwr.run.labeling import needs_model
from fedul_flwr.run.resolve_settings import resolve_auto, resolve_settings
from fedul_flwr.run.server_data import open_server_data
from fedul_flwr.run.setup import start_elsewhere


def check_start(settings: RunConfig, num_clients: int) -> str:
    """Take the server app's steps before its first message; data are decoded and split for it.

    Returns
    -------
    Lines about how files were read and settings that the size of the data has chosen, or an empty
    text.
    """
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
        start_elsewhere(model, settings.start_from, data.shape.class_names)
    if method.trains:
        resolve_settings(settings, strategy, data, model)
    lines = (notes, data.shape.in_words, in_words(chosen) if method.trains else "")
    return "\n".join(filter(None, lines))
