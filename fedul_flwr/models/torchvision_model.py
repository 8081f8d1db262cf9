"""Any classification model of torchvision, with a conversion of our inputs to its inputs."""

from __future__ import annotations

import difflib

import torch
from torch import Tensor, nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.models.parts import Normalized

PREFIX = "torchvision:"
_RETURN_MORE = ("googlenet", "inception_v3")
"""Models that return auxiliary logits in training, in addition to the logits."""


class TorchvisionModel(nn.Module):
    """torchvision's model ``name``, untrained, for float images in [-1, 1] with 1 or 3 channels.

    Gray images get three equal channels. Channels are normalized as the pretrained weights of this
    model expect: for most by ImageNet's mean and deviation.
    """

    def __init__(self, name: str, input_shape: InputShape, num_classes: int) -> None:
        super().__init__()
        _check_name(name)
        from torchvision import models  # 160 MB and a second, needed only for these models

        self.name = name
        self.net: nn.Module = models.get_model(name, weights=None, num_classes=num_classes)
        preset = models.get_model_weights(name).DEFAULT.transforms()
        self.normalized = Normalized(torch.tensor(preset.mean), torch.tensor(preset.std))
        # The size of the images is checked by applying the model to a black one.
        height, width, channels = input_shape
        what = f"images of {height} x {width} pixels with {channels} channels"
        self.eval()
        try:
            with torch.no_grad():
                self(torch.zeros(1, channels, height, width))
        except (RuntimeError, ValueError, AssertionError) as err:
            reason = (str(err).strip() or type(err).__name__).splitlines()[0].rstrip(".!")
            raise UserError(
                f"Model '{PREFIX}{self.name}' does not take {what} ({reason}); choose another "
                "model or set image-size, which is 224 for most of torchvision's models.",
                "model-unfit",
            ) from None
        self.train()

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``(n, K)`` of ``(n, 1 or 3, h, w)`` in [-1, 1]."""
        logits: Tensor = self.net(self.normalized(inputs))
        return logits


def pretrained_arrays(
    name: str, what: str = "Setting start-from = 'torchvision'"
) -> dict[str, Tensor]:
    """torchvision's default weights and buffers for model ``name``, by their names in its ``net``.

    They are downloaded on first use, into torch's cache.
    """
    _check_name(name)
    from torchvision import models

    try:
        model: nn.Module = models.get_model(name, weights="DEFAULT")
    except (OSError, RuntimeError) as err:  # no network; a damaged download
        raise UserError(
            f"{what}: cannot load weights of {name!r} ({err}).", "model-file-wrong"
        ) from err
    return model.state_dict()


def _check_name(name: str) -> None:
    from torchvision import models

    names = [model for model in models.list_models(module=models) if model not in _RETURN_MORE]
    if name in names:
        return
    setting = f"Setting model = {PREFIX + name!r}"
    if name in _RETURN_MORE:
        raise UserError(
            f"{setting}: this model has auxiliary outputs, choose one without.", "model-unfit"
        )
    close = [repr(model) for model in difflib.get_close_matches(name, names)]
    hint = f"did you mean {' or '.join(close)}?" if close else "'resnet18' is one."
    raise UserError(
        f"{setting}: must be one of torchvision's classification models; {hint}", "unknown-name"
    )
