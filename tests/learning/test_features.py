"""Features: the inputs of the last linear layer in evaluation mode, and pixels as they are."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedul_flwr.learning.batches import augmented
from fedul_flwr.learning.local import (
    extract_features,
    features_and_logits,
    pixel_features,
    predict_logits,
)
from fedul_flwr.learning.plan import LocalPlan
from tests.support.refusals import refuses

RNG = np.random.default_rng(0)
IMAGES: NDArray[np.uint8] = RNG.integers(0, 256, (600, 6, 5, 2), dtype=np.uint8)
POINTS = RNG.permutation(600)[:530]  # several batches of 128


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4),
            nn.Flatten(),
            nn.Linear(48, 7),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(7, 3),
        )


def test_features_are_the_inputs_of_the_last_layer_in_evaluation_mode() -> None:
    model = network()
    features, logits = features_and_logits(model, IMAGES, POINTS)
    inputs = torch.from_numpy(IMAGES[POINTS]).permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.no_grad():
        expected = model.eval()[:-1](inputs)
        torch.testing.assert_close(torch.from_numpy(features), expected)
        torch.testing.assert_close(logits, model[-1](expected))
    assert features.dtype == np.float32
    assert (features.shape, tuple(logits.shape)) == ((530, 7), (530, 3))
    assert logits.equal(predict_logits(model, IMAGES, POINTS))
    np.testing.assert_array_equal(extract_features(model, IMAGES, POINTS), features)
    assert not model[-1]._forward_pre_hooks  # nothing is left behind


def test_given_views_then_features_are_those_of_augmented_images() -> None:
    model, plan = network(), LocalPlan(augment="translate-flip")
    plain = extract_features(model, IMAGES, POINTS, plan)
    found = extract_features(model, IMAGES, POINTS, plan, np.random.default_rng(3))
    rng, expected = np.random.default_rng(3), []
    for start in range(0, len(POINTS), 128):
        images = torch.from_numpy(IMAGES[POINTS[start : start + 128]]).permute(0, 3, 1, 2)
        views = augmented(images.float() / 127.5 - 1, plan, rng)
        with torch.no_grad():
            expected.append(model.eval()[:-1](views))
    np.testing.assert_allclose(found, torch.cat(expected).numpy(), rtol=1e-4, atol=1e-5)
    assert np.abs(found - plain).max() > 0.1
    as_they_are = LocalPlan(augment="none")
    same = extract_features(model, IMAGES, POINTS, as_they_are, np.random.default_rng(3))
    np.testing.assert_array_equal(same, plain)


def test_a_model_without_a_linear_layer_has_no_features() -> None:
    with refuses("model-unfit", match="linear"):
        extract_features(nn.Sequential(nn.Conv2d(2, 3, 1)), IMAGES, POINTS)


def test_pixels_pixel_after_pixel() -> None:
    images = np.array([[[[0, 255]], [[51, 204]]]], dtype=np.uint8)  # one of 2 x 1, two channels
    found = pixel_features(images, np.array([0, 0]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[-1, 1, -0.6, 0.6]] * 2, atol=1e-6)


def test_features_of_vectors_are_the_vectors() -> None:
    vectors = np.array([[1.5, -2.0], [0.0, 9.0], [3.0, 4.0]], dtype=np.float32)
    assert pixel_features(vectors, np.array([2, 0])).tolist() == [[3.0, 4.0], [1.5, -2.0]]
