"""Dropout between the layers of a model: where it acts, when, and that it leaves no trace."""

import pytest
import torch
from torch import nn

from fedul_flwr.learning.dropout import layer_dropout
from fedul_flwr.models import build_model
from tests.support.refusals import refuses

IMAGES = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1


def zeros_by_layer(model: nn.Module, probability: float) -> dict[str, float]:
    """Share of zeros among the inputs of every layer that is called, in order, by its name."""
    found: dict[str, float] = {}
    hooks = []
    with layer_dropout(model, probability):
        for name, layer in model.named_modules():
            # Registered after dropout's own hook: it sees what the layer is given.
            hooks.append(
                layer.register_forward_pre_hook(
                    lambda _, inputs, name=name: found.__setitem__(
                        name, float((inputs[0] == 0).float().mean())
                    )
                )
            )
        model(IMAGES)
    for hook in hooks:
        hook.remove()
    return found


def test_half_of_what_leaves_a_layer_is_dropped_and_the_rest_is_doubled() -> None:
    # The image (4 ones) is whole: the first layer gives 4, a thousand times. Those that are left
    # count double, so their sum is a multiple of 8 and on average 4000, with a deviation of
    # 4 · sqrt(1000) = 126.
    model = nn.Sequential(nn.Linear(4, 1000, bias=False), nn.Linear(1000, 1, bias=False))
    for layer in model:
        nn.init.ones_(layer.weight)
    torch.manual_seed(0)
    with torch.no_grad(), layer_dropout(model, 0.5):
        sums = torch.cat([model(torch.ones(1, 4)) for _ in range(50)]).ravel()
    assert (sums % 8 == 0).all()
    assert len(sums.unique()) > 20  # a new mask in every pass
    assert float(sums.mean()) == pytest.approx(4000, abs=4 * 126 / 50**0.5)


def test_every_layer_of_the_papers_network_but_the_first_gets_a_fifth_of_zeros_more() -> None:
    model = build_model("cnn6-quarter", (32, 32, 3), 10)
    torch.manual_seed(0)
    with torch.no_grad():
        plain, dropped = zeros_by_layer(model, 1e-12), zeros_by_layer(model, 0.2)
    layers = [n for n, m in model.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(layers) == 6
    for position, layer in enumerate(layers):
        # What ReLU leaves is dropped with probability .2: z + .2 (1 - z) are 0.
        expected = plain[layer] + 0.2 * (1 - plain[layer]) if position else plain[layer]
        assert dropped[layer] == pytest.approx(expected, abs=0.04), layer
    assert dropped[layers[0]] == plain[layers[0]]


@pytest.mark.parametrize("name", ["resnet18-fedul", "torchvision:resnet18"])
def test_a_resnet_has_dropout_between_its_stages_and_not_inside_them(name: str) -> None:
    model = build_model(name, (32, 32, 3), 10)
    torch.manual_seed(0)
    with torch.no_grad():
        plain, dropped = zeros_by_layer(model, 1e-12), zeros_by_layer(model, 0.2)
    stages = [n for n in plain if n.split(".")[-1] in {f"layer{i}" for i in range(1, 5)}]
    pools = [n for n in plain if n.split(".")[-1] == "avgpool"]
    assert len(stages) == 4
    for layer in [*stages, *pools]:
        expected = plain[layer] + 0.2 * (1 - plain[layer])
        assert dropped[layer] == pytest.approx(expected, abs=0.05), layer
    # Inside a block the second convolution's inputs come from batch norm and ReLU alone.
    for layer in (n for n in plain if n.endswith("1.conv2")):
        assert dropped[layer] == pytest.approx(plain[layer], abs=0.05), layer


def test_in_evaluation_and_afterwards_nothing_is_dropped() -> None:
    model = build_model("mlp", (32, 32, 3), 10)
    plain = model(IMAGES)
    with layer_dropout(model, 0.5):
        assert not torch.equal(model(IMAGES), plain)
        torch.testing.assert_close(model.eval()(IMAGES), plain)
    assert torch.equal(model.train()(IMAGES), plain)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_model_without_two_layers_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with refuses("model-unfit", setting="fedllp.dropout"), layer_dropout(model, 0.2):
        pass
