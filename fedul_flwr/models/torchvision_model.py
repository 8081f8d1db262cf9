"""Any classification model of torchvision, behind what turns our inputs into its own."""

from __future__ import annotations

import difflib

import torch
from torch import Tensor, nn

from fedul_flwr.errors import UserError

PREFIX = "torchvision:"
_RETURN_MORE = ("googlenet", "inception_v3")
"""In training these return auxiliary logits beside the logits."""


class TorchvisionModel(nn.Module):
    """torchvision's model ``name``, fresh, on float images in [-1, 1] with 1 or 3 channels.

    Gray becomes three equal channels. Every channel is normalized as the pretrained weights of this
    model expect it: for most by ImageNet's mean and deviation.

    Parameters
    ----------
    name : as torchvision writes it, such as ``resnet18``.
    image_shape : ``(height, width, channels)``.
    num_classes : K.

    Raises
    ------
    UserError
        Unknown name, or images that the model does not take.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, name: str, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        _check_name(name)
        from torchvision import models  # 160 MB and a second, for these models only

        self.name = name
        self.net: nn.Module = models.get_model(name, weights=None, num_classes=num_classes)
        preset = models.get_model_weights(name).DEFAULT.transforms()
        mean, deviation = torch.tensor(preset.mean), torch.tensor(preset.std)
        # ((x + 1)/2 − mean) / deviation. No part of the state: these are no weights.
        self.register_buffer("scale", 0.5 / deviation[:, None, None], persistent=False)
        offset = (0.5 - mean) / deviation
        self.register_buffer("offset", offset[:, None, None], persistent=False)
        self._try_on(image_shape)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``(n, K)`` of ``(n, 1 or 3, h, w)`` in [-1, 1]."""
        logits: Tensor = self.net(self.normalised(inputs))
        return logits

    def normalised(self, inputs: Tensor) -> Tensor:
        """``inputs`` as torchvision's model takes them: ``(n, 3, h, w)``."""
        return inputs * self.scale + self.offset  # spreads one channel over three

    def _try_on(self, image_shape: tuple[int, int, int]) -> None:
        """Only the models themselves know which images they take: ask with a black one."""
        height, width, channels = image_shape
        what = f"images of {height} x {width} pixels with {channels} channels"
        self.eval()
        try:
            with torch.no_grad():
                self(torch.zeros(1, channels, height, width))
        except (RuntimeError, ValueError, AssertionError) as err:
            reason = (str(err).strip() or type(err).__name__).splitlines()[0].rstrip(".!")
            raise UserError(
                f"Model '{PREFIX}{self.name}' does not take {what} ({reason}); choose another "
                "model or set image-size, which is 224 for most of torchvision's models."
            ) from None
        self.train()


def pretrained_arrays(name: str) -> dict[str, Tensor]:
    """torchvision's default weights and buffers for model ``name``, by their names in its ``net``.

    They are downloaded on first use and kept where torch keeps such files.

    Raises
    ------
    UserError
        Unknown name, or no weights to be had.
    """
    _check_name(name)
    from torchvision import models

    try:
        model: nn.Module = models.get_model(name, weights="DEFAULT")
    except (OSError, RuntimeError) as err:  # no network; a damaged download
        raise UserError(
            f"Setting start-from = 'torchvision': cannot load weights of {name!r} ({err})."
        ) from err
    return model.state_dict()


def _check_name(name: str) -> None:
    from torchvision import models

    known = [model for model in models.list_models(module=models) if model not in _RETURN_MORE]
    if name in known:
        return
    setting = f"Setting model = {PREFIX + name!r}"
    if name in _RETURN_MORE:
        raise UserError(f"{setting}: this model has auxiliary outputs, choose one without.")
    close = [repr(model) for model in difflib.get_close_matches(name, known)]
    hint = f"did you mean {' or '.join(close)}?" if close else "'resnet18' is one."
    raise UserError(f"{setting}: must be one of torchvision's classification models; {hint}")
