"""A registry of clients that nobody has asked."""

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content
from fedul_flwr.federated.grid import RoundLog
from fedul_flwr.federated.members import ClientRegistry
from fedul_flwr.federated.nodes import ClientRef


def registry_of(config: RunConfig, clients: int) -> ClientRegistry:
    """Clients 0, 1, … on nodes 100, 101, …, and three classes."""
    setup = Content(values={"class-names": ["a", "b", "c"]})
    registry = ClientRegistry(config, setup, RoundLog(stop=False))
    registry.clients = [ClientRef(number, 100 + number) for number in range(clients)]
    return registry
