"""Architectures: shapes, sizes by hand, refusals, and weights that follow the seed alone."""

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.method_cost import forward_operations
from fedul_flwr.config.shared import ModelOptions
from fedul_flwr.models import MODELS, build_model
from fedul_flwr.models.parts import feature_layer, inputs_of, scale_variance
from fedul_flwr.models.registry import FOR_VECTORS
from tests.support.refusals import refuses

Shape = tuple[int, int, int]


SHAPES: list[Shape] = [(28, 28, 1), (32, 32, 3), (19, 24, 2)]
BIG = ("alexnet-like", "resnet9", "resnet18", "resnet18-fedul", "resnet18-small")
"""Drawing their weights is slow."""
SMALLEST = {
    **dict.fromkeys(("cnn2", "cnn6", "cnn6-quarter", "cnn-small"), 4),
    **dict.fromkeys(("resnet9", "resnet9-quarter"), 8),
    **dict.fromkeys(("cnn13", "cnn13-plain", "cnn13-quarter", "lenet"), 12),
    **{"cnn4": 16, "alexnet-like": 19},
}
"""Sides of the smallest images, where those are not of one pixel."""


@pytest.mark.parametrize("name", MODELS)
def test_images_of_any_size_and_channels_become_k_logits(name: str) -> None:
    shapes = SHAPES[2:] if name in BIG else SHAPES
    if name == "resnet18-fedul":  # pretrained weights are for three channels, or gray
        shapes = [(19, 24, 3)]
    side = SMALLEST.get(name, 1)
    for height, width, channels in [*shapes, (side, side, 1)]:
        model = build_model(name, (height, width, channels), 7).eval()
        with torch.inference_mode():
            logits = model(torch.zeros(2, channels, height, width))
        assert logits.shape == (2, 7)
        assert torch.isfinite(logits).all()


@pytest.mark.parametrize("name", SMALLEST)
@pytest.mark.parametrize("short_side", ["height", "width"])
def test_images_too_small_are_refused(name: str, short_side: str) -> None:
    least = SMALLEST[name]
    height, width = (least - 1, 40) if short_side == "height" else (40, least - 1)
    with refuses("image-size", match=f"{name}.* {least} x {least} .* {height} x {width}"):
        build_model(name, (height, width, 1), 10)


@pytest.mark.parametrize("name", FOR_VECTORS)
def test_vectors_become_k_logits(name: str) -> None:
    model = build_model(name, (5,), 3).eval()
    with torch.inference_mode():
        logits = model(torch.ones(2, 5))
    assert logits.shape == (2, 3)


@pytest.mark.parametrize("name", ["cnn-small", "resnet9+head", "torchvision:resnet18"])
def test_given_vectors_a_convolutional_model_is_refused_with_those_that_fit(name: str) -> None:
    with refuses("model-unfit", setting="model"):
        build_model(name, (30,), 2)


def test_an_mlp_has_the_chosen_width_layers_and_dropout() -> None:
    model = build_model("mlp", (5,), 2, options=ModelOptions(width=7, layers=3, dropout=0.25))
    sizes = [(m.in_features, m.out_features) for m in model if isinstance(m, nn.Linear)]
    assert sizes == [(5, 7), (7, 7), (7, 7), (7, 2)]
    assert [m.p for m in model if isinstance(m, nn.Dropout)] == [0.25] * 3
    points = torch.ones(4, 5)
    assert not torch.equal(model.train()(points), model(points))
    assert torch.equal(model.eval()(points), model(points))


def test_an_mlp_without_options_has_the_weights_of_earlier_versions() -> None:
    assert list(build_model("mlp", (8, 8, 1), 10).state_dict()) == [
        f"{layer}.{kind}" for layer in (1, 3, 5) for kind in ("weight", "bias")
    ]


def weights(name: str, shape: Shape, num_classes: int = 10) -> int:
    with torch.device("meta"):  # counting needs no numbers
        model = build_model(name, shape, num_classes)
    return sum(weight.numel() for weight in model.parameters())


def test_the_papers_cnn_weight_by_weight() -> None:
    # Table D.2 with one channel at 28 x 28; a batch norm has 2 weights per channel.
    convolutions = (25 * 1 + 1) * 64 + (25 * 64 + 1) * 64 + (25 * 64 + 1) * 128
    linear = (6272 + 1) * 2048 + (2048 + 1) * 512 + (512 + 1) * 10  # 6272 = 128 · 7 · 7
    norms = 2 * (64 + 64 + 128 + 2048 + 512)
    assert convolutions + linear + norms == 14_216_010
    assert weights("cnn6", (28, 28, 1)) == 14_216_010
    # The release's three gray channels add 25 · 2 · 64 weights.
    assert weights("cnn6", (28, 28, 3)) == 14_216_010 + 3200
    layers = [type(layer).__name__ for layer in build_model("cnn6", (28, 28, 1), 10)]
    block = ["Conv2d", "BatchNorm2d"]
    head = ["Flatten", "Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d", "ReLU", "Linear"]
    # The paper pools after ReLU; both only compare, so their order changes nothing.
    pooled = [*block, "MaxPool2d", "ReLU"]
    assert layers == [*pooled, *pooled, *block, "ReLU", *head]


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        # (9 + 3)·8 + (9·8 + 3)·16 + (16·7·7 + 3)·64 + 65·10: a bias and two of batch norm each
        ("cnn2", (28, 28, 1), 52_314),
        # 28·32 + (9·32 + 1)·32 + (9·32 + 1)·64 + (9·64 + 1)·64; (64·5·5 + 1)·512 + 513·10
        ("cnn4", (32, 32, 3), 890_410),
        # A convolution has filters · (channels · size² + 4) weights: lengths, biases, batch norm.
        # 128·(31 + 2·1156) + 256·(1156 + 2·2308) + 512·2308 + 256·516 + 128·260 + 130·10
        ("cnn13", (32, 32, 3), 3_125_908),
        ("cnn13-plain", (12, 12, 1), 3_125_908 - 128 * 9 * 2),
        # 10·32 + (9·32 + 1)·64 + (64·16 + 1)·64 + 65·10 = 320 + 18,496 + 65,600 + 650
        ("cnn-small", (8, 8, 1), 85_066),
        ("cnn-small", (28, 28, 1), 85_066),  # pooled to 4 x 4 whatever the size
        # 26·6 + (25·6 + 1)·16 + (16·25 + 1)·120 + 121·84 + 85·10
        ("lenet", (28, 28, 1), 61_706),
        # 65·128 + 129·128 + 129·10
        ("mlp", (8, 8, 1), 26_122),
        # 785·128 + 129·10
        ("mlp-linear", (28, 28, 1), 101_770),
        # 16·3·64 + 9·64·128 + 4·128·256 and 448 biases; (4·256 + 1)·2048 + 2049·2048 + 2049·10
        ("alexnet-like", (32, 32, 3), 6_524_362),
        # 9·(3·64 + 64·128 + 2·128·128 + 128·256 + 256·512 + 2·512·512) + 512·10
        ("resnet9", (32, 32, 3), 6_568_640),
        ("resnet9", (64, 79, 3), 6_568_640 + 512 * 3 * 10),  # 2 x 2 places are left, not 1
        # torchvision's 11,689,512 with 513·990 weights fewer in the last layer
        ("resnet18", (32, 32, 3), 11_181_642),
        ("resnet18-fedul", (28, 28, 1), 11_181_642),
        # a stem of 3 · 64 · 9 weights instead of 3 · 64 · 49
        ("resnet18-small", (32, 32, 3), 11_181_642 - 3 * 64 * 40),
        # A block of c and f: 9·c·f + 9·f·f + 2·c + 2·f, and c·f where they differ. The stem has
        # 27·16, the groups 70,112, 279,488 and 1,116,032, the end 2·128 + 129·10.
        ("wrn28-2", (32, 32, 3), 432 + 70_112 + 279_488 + 1_116_032 + 256 + 1_290),
    ],
)
def test_numbers_of_weights(name: str, shape: Shape, count: int) -> None:
    assert weights(name, shape) == count


def test_the_small_stem_keeps_the_resolution() -> None:
    # Three stages halve it: 32 -> 4 before the mean, against 32 -> 1 with the original stem, and
    # 32 -> 2 without its pooling.
    for name, side in {"resnet18": 1, "resnet18-fedul": 2, "resnet18-small": 4}.items():
        model: Any = build_model(name, (32, 32, 3), 10).eval()
        model = getattr(model, "net", model).to("meta")
        model.avgpool, model.fc = nn.Identity(), nn.Identity()
        assert model(torch.zeros(1, 3, 32, 32, device="meta")).shape == (1, 512 * side * side)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "operations"),
    [
        ("cnn6", (28, 28, 3), 10, 48_125_312),  # the paper makes gray images three channels
        ("resnet18-fedul", (32, 32, 3), 10, 141_595_648),
        ("resnet18-fedul", (224, 224, 3), 6, 6_937_938_944),
    ],
)
def test_given_the_fedul_papers_networks_then_a_forward_pass_costs_what_table_d8_says(
    name: str, shape: Shape, classes: int, operations: int
) -> None:
    model = build_model(name, shape, classes).eval()
    assert forward_operations(model, shape) == operations


@pytest.mark.parametrize("name", [name for name in MODELS if name not in BIG])
def test_the_seed_decides_the_weights(name: str) -> None:
    shape = (16, 16, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = build_model(name, shape, 5, seed=3).state_dict()
        torch.manual_seed(2)
        again = build_model(name, shape, 5, seed=3).state_dict()
    other = build_model(name, shape, 5, seed=4).state_dict()
    assert all(first[key].equal(again[key]) for key in first)
    assert any(not first[key].equal(other[key]) for key in first)


# Models of one's own


def own_model(input_shape: Shape, num_classes: int) -> nn.Module:
    height, width, channels = input_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(height * width * channels, num_classes))


def no_model(input_shape: Shape, num_classes: int) -> int:
    return num_classes


NUMBER = 3


class Drawn(nn.Sequential):
    """Has random features that are drawn anew for each module and are no buffer."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(6, classes))
        self.directions = torch.from_numpy(np.random.default_rng().normal(size=(width, 6))).float()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self[1](self[0](images) @ self.directions)  # type: ignore[no-any-return]


def with_draws(input_shape: Shape, num_classes: int) -> nn.Module:
    return Drawn(math.prod(input_shape), num_classes)


class Dropped(nn.Linear):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.dropout(images.flatten(1)))


def with_dropout(input_shape: Shape, num_classes: int) -> nn.Module:
    return Dropped(math.prod(input_shape), num_classes)


def with_batch_statistics(input_shape: Shape, num_classes: int) -> nn.Module:
    norm = nn.BatchNorm2d(input_shape[-1], track_running_stats=False)
    return nn.Sequential(norm, own_model(input_shape, num_classes))


def with_vector_statistics(input_shape: Shape, num_classes: int) -> nn.Module:
    norm = nn.BatchNorm1d(num_classes, track_running_stats=False)
    return nn.Sequential(own_model(input_shape, num_classes), norm)


def with_kept_statistics(input_shape: Shape, num_classes: int) -> nn.Module:
    parts = nn.BatchNorm2d(input_shape[-1]), own_model(input_shape, num_classes), nn.Dropout()
    return nn.Sequential(*parts)


@pytest.fixture
def users_models(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "users_models", sys.modules[__name__])
    return "users_models"


def test_a_model_of_ones_own(users_models: str) -> None:
    model = build_model(f"{users_models}:own_model", (2, 3, 4), 5, seed=1)
    assert isinstance(model[1], nn.Linear)
    assert model[1].weight.shape == (5, 24)
    again = build_model(f"{users_models}:own_model", (2, 3, 4), 5, seed=1)
    assert model[1].weight.equal(again[1].weight)


def test_a_model_whose_outputs_follow_from_its_weights(users_models: str) -> None:
    assert build_model(f"{users_models}:with_kept_statistics", (2, 3, 4), 5).training


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("resnet", "unknown-name", "resnet9"),
        ("users_models:no_model", "own-code-result", "torch.nn.Module"),
        ("users_models:NUMBER", "reference-wrong", "function"),
        ("users_models:with_draws", "own-code-result", "register_buffer"),
        ("users_models:with_dropout", "own-code-result", "training=self.training"),
        ("users_models:with_batch_statistics", "own-code-result", "track_running_stats"),
        ("users_models:with_vector_statistics", "own-code-result", "track_running_stats"),
    ],
)
def test_bad_names_are_refused(users_models: str, name: str, code: str, message: str) -> None:
    with refuses(code, match=message):
        build_model(name, (8, 8, 1), 10)


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [(nn.Conv2d(3, 500, 5), 75), (nn.Linear(40, 900), 40), (nn.Linear(40, 900, bias=False), 40)],
)
def test_weights_have_variance_one_over_fan_in(layer: nn.Module, fan_in: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Sequential(layer))
    assert scale_variance(model) is model
    weights = layer.weight.detach().flatten().double()  # 36,000 and more of them
    # Relative error of the mean square of n draws: below sqrt(2/n) = .75 %; of the mean 1/sqrt(n).
    assert float(weights.square().mean()) * fan_in == pytest.approx(1, abs=0.035)
    assert abs(float(weights.mean())) * math.sqrt(fan_in) < 5 / math.sqrt(len(weights))
    # Cut off at two deviations, which is 2 / .8796 = 2.2737 of those that are left.
    largest = float(weights.abs().max()) * math.sqrt(fan_in)
    assert 2.26 < largest <= 2.27372
    assert layer.bias is None or not layer.bias.any()


INPUTS = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1


def features(name: str) -> Tensor:
    model = build_model(name, (16, 16, 3), 5).eval()
    with inputs_of(feature_layer(model)) as seen, torch.no_grad():
        model(INPUTS)
    return seen[0]


@pytest.mark.parametrize(("name", "width"), [("cnn13", 128), ("cnn13-quarter", 32)])
def test_features_have_unit_length(name: str, width: int) -> None:
    found = features(name)
    assert found.shape == (4, width)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4))


def test_plain_features_are_the_same_before_they_are_scaled() -> None:
    plain, scaled = features("cnn13-plain"), features("cnn13")
    assert not torch.allclose(plain.norm(dim=1), torch.ones(4), atol=0.01)
    torch.testing.assert_close(plain / plain.norm(dim=1, keepdim=True), scaled)


def test_length_and_direction_of_weights_are_learned_apart() -> None:
    model: Any = build_model("cnn13-quarter", (12, 12, 1), 5)
    for layer in (model[0], model[-1]):
        length, direction = layer.parametrizations.weight.parameters()
        assert length.numel() == len(direction)
        rows = direction.flatten(1)
        expected = length.flatten()[:, None] * rows / rows.norm(dim=1, keepdim=True)
        torch.testing.assert_close(layer.weight.flatten(1), expected)


def inputs(height: int, width: int) -> torch.Tensor:
    return torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_a_pass_of_the_papers_table_step_by_step() -> None:
    model = build_model("resnet9-quarter", (32, 32, 3), 10, seed=1).eval()
    weights = list(model.parameters())

    def conv(values: torch.Tensor, layer: int) -> torch.Tensor:
        return functional.conv2d(values, weights[layer - 1], padding=1).relu()

    with torch.no_grad():
        values = conv(conv((inputs(32, 32) + 1) / 2, 1), 2)
        values = functional.max_pool2d(values, 2)
        values = functional.max_pool2d(conv(values + conv(conv(values, 3), 4), 5), 2)
        values = functional.max_pool2d(conv(values, 6), 2)
        values = (values + conv(conv(values, 7), 8)).amax(dim=(2, 3))
        torch.testing.assert_close(model(inputs(32, 32)), values @ weights[8].T)


@pytest.mark.parametrize(
    ("height", "width", "places"),
    [
        (28, 28, 1),  # 3 x 3 are left, which one pooling takes
        (63, 63, 1),  # 7 x 7 are left, of which the pooling takes 4 x 4
        (64, 32, 2),
        (16, 96, 3),  # 2 x 12
    ],
)
def test_features_are_what_the_last_pooling_leaves(height: int, width: int, places: int) -> None:
    model = build_model("resnet9-quarter", (height, width, 3), 5).eval()
    with inputs_of(feature_layer(model)) as seen, torch.no_grad():
        model(inputs(height, width))
    assert seen[0].shape == (2, 128 * places)
    assert (seen[0] >= 0).all()
    assert (seen[0] > 0).any()
