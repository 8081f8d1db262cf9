"""Find the extractor that setting ``features`` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import load_reference, shown, user_code
from fedul_flwr.config.shared import is_reference, split_side
from fedul_flwr.data.types import Inputs, InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.pretrained import NetworkFeatures, NetworkSource, OpenRun
from fedul_flwr.learning.device import choose_device, dtype_of_size

Compute = Callable[[Inputs], NDArray[np.float32]]


@dataclass(frozen=True)
class Extractor:
    """A fixed function from points to vectors.

    Attributes
    ----------
    name : value of setting ``features``.
    identity : texts that change whenever the vectors of a point would.
    compute : points ``(b, …)`` to float32 ``(b, d)``.
    """

    name: str
    identity: Sequence[str]
    compute: Compute

    def num_features(self, shape: InputShape) -> int:
        """Number d of features of points of ``shape``, found on a black image, a zero vector or an
        empty text."""
        kinds: dict[int, type[np.generic]] = {0: np.bytes_, 1: np.float32, 3: np.uint8}
        blank = np.zeros((1, *shape), dtype=kinds[len(shape)])
        return int(self.compute(blank).shape[1])


def find_extractor(
    name: str,
    device: str,
    precision: str,
    open_run: OpenRun | None = None,
    *,
    download: bool = True,
) -> Extractor:
    """Build the extractor ``name``.

    Parameters
    ----------
    name : ``efficientnet-lite0``, ``torchvision:NAME``, ``huggingface:NAME`` or ``run:DIRECTORY``,
        perhaps with ``@SIDE`` behind it; or ``package.module:function`` of a function that takes
        points ``(b, …)`` as they are stored, or texts ``(b,)``, and returns ``(b, d)`` numbers.
    device, precision : settings of that name, for networks.
    open_run : opens ``run:DIRECTORY``; a data owner has none, for the directory is the server's.
    download : whether a network of the Hugging Face hub may be downloaded.
    """
    if is_reference(name):
        return _custom_extractor(name)
    plain, side = split_side(name)
    chosen = choose_device(device)
    source = NetworkSource.named(plain, shown(name), open_run, download=download)
    facts = source.facts()
    side = side or facts.side
    dtype = str(dtype_of_size(precision, facts.num_weights, chosen))
    identity = (plain, facts.digest, str(side), dtype)
    features = NetworkFeatures(lambda: source.loaded[0], side, chosen, precision)
    return Extractor(name, identity, features)


def _custom_extractor(name: str) -> Extractor:
    """A user's own function, whose results are checked."""
    function = load_reference(name, "features")
    what = f"Setting features = {name!r}"
    if not callable(function):
        raise UserError(f"{what} does not refer to a function.", "reference-wrong")
    module = Path(str(getattr(function, "__globals__", {}).get("__file__", "")))
    version = sha256(module.read_bytes()).hexdigest() if module.is_file() else ""

    def compute(points: Inputs) -> NDArray[np.float32]:
        with user_code(what):
            taken = np.asarray(points)
            if taken.dtype.kind == "S":
                taken = np.char.decode(taken, "utf-8")
            features = np.asarray(function(taken), dtype=np.float32)
        if features.ndim != 2 or len(features) != len(points) or not features.shape[1]:
            raise UserError(
                f"{what} returned an array of shape {features.shape} for {len(points)} points; "
                f"({len(points)}, number of features) is needed.",
                "own-code-result",
            )
        if not np.isfinite(features).all():
            raise UserError(
                f"{what} returned a value that is not a finite number.", "own-code-result"
            )
        return features

    return Extractor(name, (name, version), compute)
