"""torchvision's models: what they are fed, which there are, and which images they refuse."""

from typing import Any

import numpy as np
import pytest
import torch

from fedul_flwr.learning.batches import to_input
from fedul_flwr.models import build_model
from fedul_flwr.models.resnets import TorchvisionModel
from tests.support.refusals import refuses

SMALL = "mobilenet_v3_small"


def test_logits_are_torchvisions_own_on_normalized_images() -> None:
    from torchvision import models
    from torchvision.transforms.functional import normalize

    model: Any = build_model(f"torchvision:{SMALL}", (32, 32, 3), 7, seed=3).eval()
    own = models.get_model(SMALL, weights=None, num_classes=7).eval()
    own.load_state_dict(model.net.state_dict())
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    expected = own(normalize(inputs, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    torch.testing.assert_close(model(to_input(torch.from_numpy(images))), expected)


def test_a_model_with_another_normalization_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision import models

    # efficientnet_v2_l was trained on (x − 0.5)/0.5 of [0, 1], which is what our inputs are.
    # It has 117 M weights: a small one takes its place.
    monkeypatch.setattr(models, "get_model", lambda name, **options: models.resnet18(**options))
    model = TorchvisionModel("efficientnet_v2_l", (8, 8, 3), 2)
    inputs = torch.rand(2, 3, 8, 8) * 2 - 1
    torch.testing.assert_close(model.normalized(inputs), inputs)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *((name, "unknown-name") for name in ("resnet81", "ResNet18", "xyz", "", "fcn_resnet50")),
        ("googlenet", "model-unfit"),  # auxiliary outputs
        ("inception_v3", "model-unfit"),
    ],
)
def test_what_is_no_model_is_refused(name: str, code: str) -> None:
    with refuses(code, match="Setting model"):
        build_model(f"torchvision:{name}", (32, 32, 3), 10)
