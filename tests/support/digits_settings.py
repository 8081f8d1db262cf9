"""Settings of clients that are built without a server, which would choose what is `auto`."""

from collections.abc import Mapping
from typing import Any

from fedul_flwr.config.auto_settings import DataSize, auto_values
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat


def of_digits() -> dict[str, Scalar]:
    """What follows from the size of the data, for the digits at ten clients."""
    return {key: choice.value for key, choice in auto_values(DataSize((8, 8, 1), 115)).items()}


def settings_of_client(flat: Mapping[str, Any]) -> RunConfig:
    """All settings, as a client is told them: nothing is left to be chosen."""
    return parse_flat({**default_flat(), **of_digits(), **flat})
