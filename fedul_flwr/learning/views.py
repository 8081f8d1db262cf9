"""Weak and strong views of points, as the settings of a consistency method say.

Views are random, and their random numbers come from torch's own generator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedul_flwr.config.method_settings import StrongViewSettings, WeakViewSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.batches import DeviceDraws, augmented, strong_vectors
from fedul_flwr.learning.lanes import fixed_shapes
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
        if fixed_shapes(inputs) and ":" not in plan.augment:
            return augmented(inputs, plan, DeviceDraws(inputs.device))
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        return augmented(inputs.cpu(), plan, rng).to(inputs.device)

    return view


def weak_view(settings: RunConfig) -> View:
    """Makes what pseudo labels are judged on: with ``views.weak`` a view by `augment`."""
    return augmented_view(settings) if settings[WeakViewSettings].weak else unchanged


def strong_view(settings: RunConfig, *, from_weak: bool = False) -> View:
    """Makes a strong view of each point.

    Images ``(n, c, h, w)`` are changed by RandAugment, vectors ``(n, d)`` by noise,
    dropout and mixup; with ``views.weak`` or ``from_weak`` after a view by `augment`, drawn anew.
    """
    views = settings[StrongViewSettings]
    change = released_randaugment if views.recipe == "release" else randaugment
    weak = augmented_view(settings) if from_weak else weak_view(settings)
    strong = _by_kind(lambda images: change(images, views.operations), settings)
    return lambda inputs: strong(weak(inputs))


def fixed_strong_view(settings: RunConfig) -> View:
    """The same, with an affine map, colors and cutout for images in place of RandAugment."""
    return _by_kind(strong_augment, settings)


def _by_kind(of_images: View, settings: RunConfig) -> View:
    of_vectors = strong_vectors(settings.noise, settings.feature_dropout, settings.mixup)
    return lambda inputs: of_images(inputs) if inputs.dim() == 4 else of_vectors(inputs)
