"""Weak and strong views of points, as the settings of a consistency method say.

Views are random, and their random numbers come from torch's own generator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedul_flwr.config.method_settings import ViewSettings, WeakViewSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.augment import strong_vectors
from fedul_flwr.learning.batches import augmented
from fedul_flwr.learning.plan import local_plan
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.released_randaugment import released_randaugment
from fedul_flwr.learning.strong import strong_augment

View = Callable[[Tensor], Tensor]
"""Points ``(n, c, h, w)`` or ``(n, d)`` to as many others."""


def unchanged(inputs: Tensor) -> Tensor:
    """The points themselves."""
    return inputs


def augmented_view(settings: RunConfig) -> View:
    """Makes the views of setting `augment`, in which points with labels are trained on."""
    plan = local_plan(settings)

    def view(inputs: Tensor) -> Tensor:
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        return augmented(inputs.cpu(), plan, rng).to(inputs.device)

    return view


def weak_view(settings: RunConfig) -> View:
    """Makes what pseudo labels are judged on: with ``views.weak`` a view by `augment`."""
    return augmented_view(settings) if settings[WeakViewSettings].weak else unchanged


def strong_view(settings: RunConfig) -> View:
    """Makes a strong view of each point, with ``views.weak`` from a weak one of its own.

    Images ``(n, c, h, w)`` are changed by RandAugment, vectors ``(n, d)`` by noise,
    dropout and mixup.
    """
    weak, change = weak_view(settings), strong_change(settings)
    return lambda inputs: change(weak(inputs))


def strong_change(settings: RunConfig) -> View:
    """What makes a view strong: RandAugment, or noise, dropout and mixup."""
    views = settings[ViewSettings]
    change = released_randaugment if views.recipe == "release" else randaugment
    return _by_kind(lambda images: change(images, views.operations), settings)


def fixed_strong_view(settings: RunConfig) -> View:
    """The same, with an affine map, colors and cutout for images in place of RandAugment."""
    return _by_kind(strong_augment, settings)


def _by_kind(of_images: View, settings: RunConfig) -> View:
    of_vectors = strong_vectors(settings.noise, settings.feature_dropout, settings.mixup)
    return lambda inputs: of_images(inputs) if inputs.dim() == 4 else of_vectors(inputs)
