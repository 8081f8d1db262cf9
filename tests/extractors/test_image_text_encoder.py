"""Encoders of images and texts: features of images, and first weights by the classes' names."""

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.recipes import names
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.find import find_extractor
from fedul_flwr.extractors.pretrained import text_vectors
from fedul_flwr.run.setup import load_starting_weights
from tests.support.refusals import refuses
from tests.support.runs import last_model, summary, train
from tests.support.settings import Settings

transformers = pytest.importorskip("transformers")

TRAINED = ("pseudo-label", "fixmatch", "fedul")
MEAN, DEVIATION = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
WORDS = ["[END]", "[UNK]", "a", "photo", "of", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small CLIP with random weights, which reads words; files as those on the hub."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("clip")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={
            **sizes,
            "vocab_size": len(WORDS),
            "max_position_embeddings": 8,
            "eos_token_id": 0,
            "bos_token_id": 0,
            "pad_token_id": 1,
        },
        vision_config={**sizes, "image_size": 8, "patch_size": 4},
        projection_dim=6,
    )
    torch.manual_seed(0)
    transformers.CLIPModel(config).save_pretrained(folder)
    transformers.CLIPImageProcessor(
        size={"shortest_edge": 8},
        crop_size={"height": 8, "width": 8},
        image_mean=MEAN,
        image_std=DEVIATION,
    ).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    words.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="$A [END]", special_tokens=[("[END]", 0)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]"
    ).save_pretrained(folder)
    return folder


def images(side: int, number: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (number, side, side, 3), dtype=np.uint8)


def own_logits(clip: Path, points: np.ndarray, texts: list[str]) -> torch.Tensor:
    """Logits ``(n, K)`` as the network's own authors calculate them."""
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(clip)(
        texts, padding=True, return_tensors="pt"
    )
    pixels = (torch.from_numpy(points) / 255 - torch.tensor(MEAN)) / torch.tensor(DEVIATION)
    with torch.no_grad():
        result = model(
            input_ids=tokens["input_ids"],
            attention_mask=tokens["attention_mask"],
            pixel_values=pixels.permute(0, 3, 1, 2),
        )
    logits: torch.Tensor = result.logits_per_image
    return logits


def test_products_of_features_and_names_are_the_networks_own_logits(clip: Path) -> None:
    points, texts = images(8), ["a photo of a 1.", "a 7", "photo"]
    features = find_extractor(f"huggingface:{clip}", "cpu", "float32").compute(points)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    logits = torch.from_numpy(features) @ text_vectors(str(clip), texts).T
    torch.testing.assert_close(logits, own_logits(clip, points, texts), rtol=1e-4, atol=1e-4)


def test_given_larger_images_then_they_are_resized_along_cubic_curves(clip: Path) -> None:
    from PIL import Image

    points = images(24)
    small = [
        np.asarray(Image.fromarray(p).resize((8, 8), Image.Resampling.BICUBIC)) for p in points
    ]
    extractor = find_extractor(f"huggingface:{clip}", "cpu", "float32")
    # Pillow rounds to bytes.
    np.testing.assert_allclose(
        extractor.compute(points), extractor.compute(np.stack(small)), atol=5e-3
    )


def test_given_a_side_then_the_network_takes_images_of_that_side(clip: Path) -> None:
    points = images(16)
    large = find_extractor(f"huggingface:{clip}@16", "cpu", "float32").compute(points)
    assert large.shape == (4, 6)
    usual = find_extractor(f"huggingface:{clip}", "cpu", "float32").compute(points)
    assert np.abs(large - usual).max() > 1e-3


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("names", ["a photo of a 1.", "a photo of a 2 3."]),
        ("names:photo of {}", ["photo of 1", "photo of 2 3"]),
        ("names:a photo|of a {}", ["a photo", "of a 2 3"]),
    ],
)
def test_given_a_text_then_names_are_read_in_it(clip: Path, source: str, texts: list[str]) -> None:
    model = torch.nn.Linear(6, 2)
    assert load_starting_weights(model, source, ["1", "2_3"], f"huggingface:{clip}@8") == []
    torch.testing.assert_close(model.weight.data, text_vectors(str(clip), texts))
    assert not model.bias.any()


def test_given_no_label_then_a_run_starts_from_the_names_of_its_classes(
    settings: Settings, clip: Path
) -> None:
    start = {"model": "linear", "features": f"huggingface:{clip}", "start-from": "names"}
    unsure = {"method": "fixmatch", "fixmatch.threshold": 0.999, "labels.total": 0}
    config = settings(**start, **unsure, **{"num-rounds": 1, "local-epochs": 1})
    directory = train(config, 3)
    texts = [f"a photo of a {digit}." for digit in range(10)]
    _, weights = last_model(directory).values()
    np.testing.assert_allclose(weights, text_vectors(str(clip), texts).numpy(), rtol=1e-6)
    assert 0 < summary(directory)["start_test_error"] < 100


def test_given_texts_for_another_number_of_classes_then_the_run_is_refused(clip: Path) -> None:
    with refuses("number-of-classes", setting="start-from"):
        load_starting_weights(torch.nn.Linear(6, 3), "names:a|b", ["x", "y", "z"], str(clip))


@pytest.mark.parametrize(
    "start", [{"features": "efficientnet-lite0"}, {"features": "huggingface:x", "model": "mlp"}]
)
def test_given_features_without_texts_or_another_model_then_names_are_refused(
    settings: Settings, start: dict[str, str]
) -> None:
    with refuses("settings-contradict"):
        settings(**{"model": "linear", "start-from": "names", **start})


def test_given_an_encoder_of_images_alone_then_it_has_no_names(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
    )
    transformers.ViTModel(config).save_pretrained(tmp_path)
    with pytest.raises(UserError) as error:
        text_vectors(str(tmp_path), ["a photo"])
    assert error.value.code == "model-unfit"


@pytest.mark.parametrize("row", names.ROWS)
def test_given_a_row_of_the_table_then_it_runs_without_a_label(
    settings: Settings, clip: Path, row: str
) -> None:
    column = next(names.columns(quick=True))
    small = {"dataset": "digits", "points-per-client": 60, "num-rounds": 2}
    chosen = {**column.settings, **small, "features": f"huggingface:{clip}", **column.rows[row]}
    directory = train(settings(**chosen), 3)
    assert 0 < summary(directory)["test_error"] < 100
    assert ("start_test_error" in summary(directory)) == (chosen["method"] in TRAINED)
