"""Where a network for features comes from, and facts about it that are kept on disk.

On a device every message has a process of its own, and each needs the digest of the weights, to
find the features. The digest is kept beside the decoded data, so that only the process that
computes features loads the network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from torch import nn

from fedul_flwr.config.data_settings import HUB, RUN, TORCHVISION
from fedul_flwr.data.cache import NETWORKS, build_once, cache_directory, cache_key
from fedul_flwr.errors import UserError
from fedul_flwr.extractors import pretrained
from fedul_flwr.learning.device import num_weights

OpenRun = Callable[[Path], nn.Module]
"""Opens the best model of an earlier run."""

_FILE = "network.json"


class Facts(NamedTuple):
    """Facts about a network.

    Attributes
    ----------
    digest : of its weights and buffers.
    side : side in pixels of the images it was trained on; 0 takes images as they are.
    num_weights : number of its weights.
    """

    digest: str
    side: int
    num_weights: int


@dataclass(frozen=True)
class NetworkSource:
    """A network that is loaded when it is needed.

    Attributes
    ----------
    name : value of setting ``features`` without a side.
    files : files that say which weights the network has; empty if that is not known before it is
        loaded.
    load : returns the network and the side of its images.
    """

    name: str
    files: Sequence[Path]
    load: Callable[[], pretrained.Found]

    @classmethod
    def named(cls, name: str, shown: str, open_run: OpenRun | None) -> NetworkSource:
        """The source of network ``name``, whose setting messages show as ``shown``."""
        if name.startswith(HUB):
            encoder = name.removeprefix(HUB)
            files = pretrained.image_encoder_files(encoder)
            return cls(name, files, lambda: pretrained.image_encoder(encoder))
        if name.startswith(TORCHVISION):
            model = name.removeprefix(TORCHVISION)
            files = pretrained.torchvision_files(model)
            return cls(name, files, lambda: pretrained.torchvision_model(model))
        if name.startswith(RUN):
            if open_run is None:
                raise UserError(
                    f"Setting features = {shown}: the run's directory is the server's, and not on "
                    "this device; use pretrained weights that every owner has."
                )
            directory = Path(name.removeprefix(RUN))
            return cls(name, (), lambda: (open_run(directory), 0))
        # The settings allow no other.
        files = pretrained.efficientnet_lite0_files()
        return cls(name, files, pretrained.efficientnet_lite0)

    @cached_property
    def found(self) -> pretrained.Found:
        """The network, and the side of its images."""
        return self.load()

    def facts(self) -> Facts:
        """Facts about the network; from disk, if it has known files and was loaded before."""
        if not self.files:
            return self._facts()
        key = cache_key(self.name, self.files)
        file = build_once(cache_directory() / NETWORKS / key, self._write) / _FILE
        try:
            return Facts(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # damaged: only time is lost
            return self._facts()

    def _write(self, directory: Path) -> None:
        text = json.dumps(self._facts()._asdict())
        (directory / _FILE).write_text(text, encoding="utf-8")

    def _facts(self) -> Facts:
        model, side = self.found
        return Facts(_digest(model), side, num_weights(model))


def _digest(model: nn.Module) -> str:
    """Digest of a model's weights and buffers."""
    found = sha256()
    for array in model.state_dict().values():
        found.update(array.cpu().contiguous().numpy().data)
    return found.hexdigest()
