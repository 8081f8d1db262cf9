"""Simulated clients of digits, set up as a server does it, and weights for their model."""

from collections.abc import Callable
from typing import Any, TypeVar

from flwr.app import RecordDict

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split, client_files
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model

C = TypeVar("C", bound=Client)


def simulated_client(kind: type[C], config: RunConfig, number: int = 0) -> C:
    """Client ``number`` of three, which has got its setup, with the data of the run's method."""
    place, source = source_directory("digits"), load_source("digits")
    split = build_split(place, 3, config)
    files = client_files(place, split.directory, find_method(config.method).data)
    shape = DataShape(source.input_shape, source.class_names)
    node = NodeConfig(partition_id=number, num_partitions=3)
    built = kind(config, node, ClientState(RecordDict()))
    built.on_phase("setup", setup_content(config, shape, files))
    return built


def mlp_clients(settings: Callable[..., RunConfig]) -> Callable[..., Any]:
    """``client(kind, number, **settings)``: a simulated client that trains ``mlp`` for an epoch."""

    def build(kind: type[C], number: int = 0, **options: Any) -> C:
        return simulated_client(kind, settings(model="mlp", local_epochs=1, **options), number)

    return build


def mlp_weights(seed: int = 0) -> list[Any]:
    """Arrays of a new ``mlp`` for digits."""
    return list(dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=seed)).values())
