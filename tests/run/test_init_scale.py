"""`init-scale`: what is multiplied, by how much, and what it does not go with."""

from typing import Any

import numpy as np
from torch import nn

from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model
from fedul_flwr.models.registry import fresh_model
from fedul_flwr.run.server_data import open_server_data
from tests.support.refusals import refuses
from tests.support.runs import last_model, train
from tests.support.settings import Settings


def fresh(settings: Settings, **options: Any) -> nn.Module:
    config = settings(**options)
    shape = open_server_data(config).shape
    return fresh_model(config, shape.model_shape, len(shape.class_names))


def test_every_parameter_is_multiplied_and_no_buffer(settings: Settings) -> None:
    wide: dict[str, Any] = {"model": "cnn13-quarter", "image_size": 12}
    plain = fresh(settings, **wide)
    scaled = fresh(settings, **wide, init_scale=3.0)
    buffers = dict(plain.named_buffers())
    assert any(name.endswith("running_var") for name in buffers)
    for name, array in dump_arrays(scaled).items():
        before = dump_arrays(plain)[name]
        np.testing.assert_array_equal(array, before if name in buffers else 3 * before)
    biases = [p for name, p in plain.named_parameters() if name.endswith("bias")]
    assert any(bias.abs().sum() > 0 for bias in biases)


def test_a_run_begins_with_the_multiplied_weights(settings: Settings) -> None:
    slow: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 1e-30, "labels.total": 20}
    config = settings(
        method="given-labels", model="mlp", num_rounds=1, init_scale=2.0, seed=4, **slow
    )
    drawn = dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=4))
    for name, array in last_model(train(config, 2)).items():
        np.testing.assert_allclose(array, 2 * drawn[name], rtol=1e-6)


def test_trained_weights_are_not_multiplied() -> None:
    flat = {**default_flat(), "start-from": "runs/earlier", "init-scale": 2.0}
    with refuses("setting-without-effect", setting="init-scale"):
        parse_flat(flat)
    parse_flat({**flat, "init-scale": 1.0})
