"""Features by a fixed network: the inputs of its last linear layer, with batch norm folded away."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedul_flwr.extractors import pretrained
from fedul_flwr.extractors.find import find_extractor
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
def test_given_batch_norm_then_it_is_folded_into_the_weights(convolution: nn.Conv2d) -> None:
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


def test_given_a_side_then_images_are_interpolated_between_their_pixels() -> None:
    # Pixel centers of 4 columns lie at -1/4, 1/4, 3/4, 5/4 of the 2 given columns 0 and 1.
    image = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    wanted = torch.tensor([0, 0.25, 0.75, 1]).expand(1, 1, 4, 4)
    torch.testing.assert_close(resized(image, 4), wanted)
    assert resized(image, 0) is resized(image, 2) is image
    # Of a larger image every pixel counts: the mean of all, not of those next to the center.
    larger = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert resized(larger, 1).item() == pytest.approx(7.5)


class Sees(nn.Module):
    """A network that keeps its inputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen = inputs
        return inputs


def test_efficientnet_lite_gets_levels_minus_127_over_128_in_three_channels() -> None:
    net = Sees()
    black_and_white = torch.tensor([-1.0, 1.0]).reshape(1, 1, 1, 2)
    pretrained._lite(net)(black_and_white)
    wanted = torch.tensor([-127 / 128, 128 / 128]).expand(1, 3, 1, 2)
    torch.testing.assert_close(net.seen, wanted)


def test_efficientnet_lite0_has_1280_features_with_imagenet_weights() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    model, side, _ = pretrained.efficientnet_lite0()
    assert side == 224
    assert sum(weight.numel() for weight in model.parameters()) == 4_652_008
    extractor = find_extractor("efficientnet-lite0@64", "cpu", "float32")
    rng = np.random.default_rng(0)
    found = extractor.compute(rng.integers(0, 256, (3, 8, 8, 1), dtype=np.uint8))
    assert found.shape == (3, 1280)
    # ReLU6 and a mean: trained weights use the range, random ones stay near 0.
    assert found.min() >= 0
    assert 0.1 < found.mean() < 1
    assert found.max() <= 6


def test_given_torchvisions_model_then_its_last_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision import models

    torch.manual_seed(0)
    arrays = models.get_model("resnet18", weights=None).state_dict()
    monkeypatch.setattr(pretrained, "pretrained_arrays", lambda name, what: arrays)
    extractor = find_extractor("torchvision:resnet18@32", "cpu", "float32")
    points = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    net = models.get_model("resnet18", weights=None)
    net.load_state_dict(arrays)
    net.fc = nn.Identity()  # type: ignore[assignment]
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    inputs = (torch.from_numpy(points) / 255 - mean) / deviation
    with torch.no_grad():
        wanted = net.eval()(inputs.permute(0, 3, 1, 2))
    np.testing.assert_allclose(extractor.compute(points), wanted.numpy(), rtol=1e-3, atol=1e-4)


def test_given_an_image_encoder_then_features_are_its_pooled_output(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=8,
        patch_size=4,
    )
    torch.manual_seed(0)
    net = transformers.ViTModel(config).eval()
    net.save_pretrained(tmp_path)
    mean, deviation = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    transformers.ViTImageProcessor(
        size={"height": 8, "width": 8}, image_mean=mean, image_std=deviation
    ).save_pretrained(tmp_path)
    extractor = find_extractor(f"huggingface:{tmp_path}", "cpu", "float32")
    points = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    pixels = (torch.from_numpy(points) / 255 - torch.tensor(mean)) / torch.tensor(deviation)
    with torch.no_grad():
        wanted = net(pixel_values=pixels.permute(0, 3, 1, 2)).pooler_output
    np.testing.assert_allclose(extractor.compute(points), wanted.numpy(), rtol=1e-4, atol=1e-5)
