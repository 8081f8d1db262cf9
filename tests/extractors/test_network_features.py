"""Features by a fixed network: the inputs of its last linear layer, with batch norm folded away."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul_flwr.extractors.pretrained import NetworkFeatures, fold_batch_norm, resized
from fedul_flwr.models import build_model

CPU = torch.device("cpu")


class Padded(nn.Conv2d):
    """A convolution of somebody's own, as pretrained networks have."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(nn.functional.pad(input, (1, 1, 1, 1)))


def with_statistics(model: nn.Module) -> nn.Module:
    """``model`` whose batch norms have statistics and gains unlike those they start from."""
    generator = torch.Generator().manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.normal_(generator=generator)
            layer.running_var.uniform_(0.5, 2, generator=generator)
            nn.init.uniform_(layer.weight, 0.5, 2, generator=generator)
            nn.init.normal_(layer.bias, generator=generator)
    return model.eval()


def num_batch_norms(model: nn.Module) -> int:
    return sum(isinstance(layer, _BatchNorm) for layer in model.modules())


@pytest.mark.parametrize("convolution", [nn.Conv2d(2, 3, 3), Padded(2, 3, 3)])
def test_given_batch_norm_behind_a_convolution_then_it_is_folded_into_its_weights(
    convolution: nn.Conv2d,
) -> None:
    model = with_statistics(nn.Sequential(convolution, nn.BatchNorm2d(3), nn.ReLU()))
    inputs = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    before = model(inputs)
    folded = fold_batch_norm(model)
    assert num_batch_norms(folded) == 0
    torch.testing.assert_close(folded(inputs), before)


def test_given_a_network_then_features_are_the_inputs_of_its_last_linear_layer() -> None:
    model = with_statistics(build_model("cnn6-quarter", (16, 16, 3), 4, seed=2))
    points = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    found = NetworkFeatures(lambda: model, 0, CPU, "float32")(points)
    assert found.dtype == np.float32
    # The logits of the network are its last layer's, applied to the features.
    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    inputs = torch.from_numpy(points).permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.no_grad():
        torch.testing.assert_close(
            last(torch.from_numpy(found)), model(inputs), rtol=1e-4, atol=1e-4
        )


def test_given_a_network_then_it_is_left_as_it_was() -> None:
    model = build_model("cnn6-quarter", (8, 8, 1), 3).train()
    NetworkFeatures(lambda: model, 0, CPU, "float32")(np.zeros((2, 8, 8, 1), dtype=np.uint8))
    assert model.training
    assert num_batch_norms(model) > 0
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_given_a_side_then_images_are_interpolated_between_their_pixels() -> None:
    # Pixel centers of 4 columns lie at -1/4, 1/4, 3/4, 5/4 of the 2 given columns 0 and 1.
    image = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    wanted = torch.tensor([0, 0.25, 0.75, 1]).expand(1, 1, 4, 4)
    torch.testing.assert_close(resized(image, 4), wanted)
    assert resized(image, 0) is image
    assert resized(image, 2) is image


def test_given_a_larger_image_then_every_pixel_counts() -> None:
    # Antialiased: the mean of all, not of those next to the center.
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert resized(image, 1).item() == pytest.approx(7.5)
