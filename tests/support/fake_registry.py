"""A registry of clients that nobody has asked."""

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.grid import RoundLog
from fedul_flwr.federated.nodes import ClientRef, ClientRegistry


def registry_of(config: RunConfig, clients: int) -> ClientRegistry:
    """Clients 0, 1, … on nodes 100, 101, …"""
    rounds = RoundLog(0, stop=False)
    registry = ClientRegistry(config, rounds, lambda *_: None, lambda _: None)
    registry.clients = [ClientRef(number, 100 + number) for number in range(clients)]
    return registry
