"""Clients of our app without Flower: set up and called directly."""

from __future__ import annotations

from typing import Any

from flwr.app import RecordDict
from flwr.common import NDArrays

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.nodes import setup_content
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model
from fedul_flwr.run.server_data import open_server_data


def prepared_clients(settings: RunConfig, num_clients: int) -> list[Client]:
    """All clients of a simulated federation, in the order of their partitions."""
    method = find_method(settings.method)
    data = open_server_data(settings).split_over(num_clients, settings)
    told = setup_content(settings, data.shape, data.files(method.data))
    kind: Any = method.client_class
    clients: list[Client] = [
        kind(settings, NodeConfig(partition_id=i, num_partitions=num_clients), _no_memory())
        for i in range(num_clients)
    ]
    for client in clients:
        client.on_phase("setup", told)
    return clients


def fresh_weights(settings: RunConfig) -> NDArrays:
    """Copies of a new model's weights and buffers."""
    shape = open_server_data(settings).shape
    model = build_model(settings.model, shape.input_shape, len(shape.class_names))
    return [array.copy() for array in dump_arrays(model).values()]


def _no_memory() -> ClientState:
    return ClientState(RecordDict())
