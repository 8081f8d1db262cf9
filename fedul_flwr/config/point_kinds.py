"""Settings that are for images or for vectors alone."""

from __future__ import annotations

from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.errors import UserError

OF_IMAGES = {"image_size": 0}
OF_VECTORS = {"columns": "", "missing": "refuse"}
"""Settings for one kind of points, with the values at which they have no effect."""


def refuse_other_kind(settings: SharedSettings, input_shape: tuple[int, ...]) -> None:
    """Refuse settings that have no effect, because they are for the other kind of points.

    Raises
    ------
    UserError
        With the setting.
    """
    of_vectors = len(input_shape) == 1
    kind, other = ("vectors", "images") if of_vectors else ("images", "vectors")
    for name, default in (OF_IMAGES if of_vectors else OF_VECTORS).items():
        value = getattr(settings, name)
        if value != default:
            key = name.replace("_", "-")
            raise UserError(
                f"Setting {key} = {value!r} is for {other}, and the data are {kind}: leave it out."
            )
