"""Strong views of images, as the settings of a consistency method say."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fedul_flwr.config.matching import ViewSettings
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.released_randaugment import released_randaugment


def strong_view(settings: ViewSettings) -> Callable[[Tensor], Tensor]:
    """Makes a random strong view of each image ``(n, c, h, w)``, from torch's own generator."""
    change = released_randaugment if settings.randaugment == "release" else randaugment

    def view(inputs: Tensor) -> Tensor:
        return change(inputs, settings.operations, settings.magnitudes)

    return view
