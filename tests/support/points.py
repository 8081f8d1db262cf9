"""Points of files as arrays."""

from pathlib import Path

from fedul_flwr.data.decode import join_blocks
from fedul_flwr.data.local_data import as_points, open_points
from fedul_flwr.data.tables import NO_OPTIONS, TableOptions
from fedul_flwr.data.types import Inputs, InputShape


def load_points(
    path: str | Path, input_shape: InputShape, table: TableOptions = NO_OPTIONS
) -> tuple[list[str], Inputs]:
    """Names and decoded points, as ``fedul-flwr predict`` reads them."""
    names, opened = open_points(path, input_shape, table)
    (points,) = as_points([opened], table)
    return names, join_blocks(points, input_shape)
