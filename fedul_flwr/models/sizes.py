"""Checks that architectures share."""

from __future__ import annotations

from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError


def require_size(name: str, input_shape: InputShape, least: int) -> None:
    """Refuse images smaller than ``least`` pixels on a side."""
    height, width, _ = input_shape
    if min(height, width) < least:
        raise UserError(
            f"Model {name!r} needs images of at least {least} x {least} pixels, "
            f"these have {height} x {width}; choose another model or set image-size."
        )
