"""Strong views of points, as the settings of a consistency method say."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fedul_flwr.config.method_settings import ViewSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.augment import strong_vectors
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.released_randaugment import released_randaugment
from fedul_flwr.learning.strong import strong_augment

View = Callable[[Tensor], Tensor]


def strong_view(settings: RunConfig) -> View:
    """Makes a random strong view of each point, from torch's own generator.

    Images ``(n, c, h, w)`` are changed by RandAugment, vectors ``(n, d)`` by noise,
    dropout and mixup.
    """
    views = settings[ViewSettings]
    change = released_randaugment if views.randaugment == "release" else randaugment
    return _by_kind(lambda images: change(images, views.operations, views.magnitudes), settings)


def fixed_strong_view(settings: RunConfig) -> View:
    """The same, with an affine map, colors and cutout for images in place of RandAugment."""
    return _by_kind(strong_augment, settings)


def _by_kind(of_images: View, settings: RunConfig) -> View:
    of_vectors = strong_vectors(settings.noise, settings.feature_dropout, settings.mixup)
    return lambda inputs: of_images(inputs) if inputs.dim() == 4 else of_vectors(inputs)
