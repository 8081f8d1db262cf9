"""Pretrained networks: which pixels they get, and what is missing in a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedul_flwr.extractors import pretrained
from fedul_flwr.extractors.find import find_extractor
from tests.support.refusals import refuses


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
    model, side = pretrained.efficientnet_lite0()
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


def test_given_a_missing_package_then_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with refuses("package-missing", setting="features"):
        find_extractor("efficientnet-lite0", "cpu", "auto")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refuses("package-missing"):
        find_extractor("huggingface:google/vit", "cpu", "auto")


def test_given_torchvisions_model_then_its_features_are_its_last_layers_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_given_an_image_encoder_in_a_folder_then_features_are_its_pooled_output(
    tmp_path: Path,
) -> None:
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
