"""Initial weights of a model from another run, a file, or torchvision's pretrained models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedul_flwr.config.training_settings import PRETRAINED
from fedul_flwr.data.run_files.store import BEST_MODEL
from fedul_flwr.errors import UserError
from fedul_flwr.models.torchvision_model import TorchvisionModel, pretrained_arrays
from fedul_flwr.models.two_heads import TwoHeads


def load_starting_weights(model: nn.Module, source: str) -> list[str]:
    """Replace the random weights of ``model``, in place, by those that ``source`` names.

    Arrays are matched by name and shape. Heads (the last linear layer, and a second one) keep their
    random weights if the source has none or one for another number of classes. A model with two
    heads also accepts the weights of the same model with one.

    Parameters
    ----------
    source : setting ``start-from``.

    Returns
    -------
    Names of the arrays that keep their random weights.

    Raises
    ------
    UserError
        If the weights cannot be read, or belong to another model.
    """
    plain = model.model if isinstance(model, TwoHeads) else model
    if source == PRETRAINED:
        assert isinstance(plain, TorchvisionModel)  # checked with the settings
        found = _pretrained(plain)
    else:
        found = _read(source)
    if isinstance(model, TwoHeads) and not any(name.startswith("second.") for name in found):
        found = {f"model.{name}": array for name, array in found.items()}
    return _overwrite(model, found, source)


def _overwrite(model: nn.Module, found: Mapping[str, Tensor], source: str) -> list[str]:
    state = model.state_dict()
    fresh = _misfits(model, state, found)
    for name in sorted((state.keys() | found.keys()) - fresh):
        if name not in state or name not in found:
            where = "is not in the model" if name in found else "of the model is not there"
            raise UserError(f"Setting start-from = {source!r}: array {name!r} {where}.")
        if state[name].shape != found[name].shape:
            raise UserError(
                f"Setting start-from = {source!r}: array {name!r} has shape "
                f"{tuple(found[name].shape)}, the model's has {tuple(state[name].shape)}."
            )
    with torch.no_grad():
        for name in state.keys() - fresh:
            state[name].copy_(found[name])
    return [name for name in state if name in fresh]


def _misfits(
    model: nn.Module, state: Mapping[str, Tensor], found: Mapping[str, Tensor]
) -> set[str]:
    """Arrays of heads that ``found`` lacks or has for another number of classes."""
    misfits: set[str] = set()
    for head in _heads(model):
        of_head = [name for name in state if name.startswith(f"{head}.")]
        there = [name for name in of_head if name in found]
        # Only the first axis, the classes, may differ: another second axis means another model.
        fits_inside = all(found[name].shape[1:] == state[name].shape[1:] for name in there)
        resized = any(len(found[name]) != len(state[name]) for name in there)
        if not there or (fits_inside and resized and len(there) == len(of_head)):
            misfits.update(of_head)
    return misfits


def _heads(model: nn.Module) -> list[str]:
    """Names of the last linear layer and of a second head."""
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    second = ["second"] if isinstance(model, TwoHeads) else []
    return [*layers[-1:], *second]


def _pretrained(model: TorchvisionModel) -> dict[str, Tensor]:
    """torchvision's weights without the classifier, which is for ImageNet's classes."""
    found = {f"net.{name}": array for name, array in pretrained_arrays(model.name).items()}
    heads = tuple(f"{name}." for name in _heads(model))
    return {name: array for name, array in found.items() if not name.startswith(heads)}


def _read(source: str) -> dict[str, Tensor]:
    path = Path(source)
    file = path / BEST_MODEL if path.is_dir() else path
    if not file.is_file():
        what = f"holds no {BEST_MODEL}" if path.is_dir() else "there is no such file or directory"
        raise UserError(f"Setting start-from = {source!r}: {what}.")
    try:
        found = load_file(file)
    except (SafetensorError, OSError) as err:
        raise UserError(
            f"Setting start-from = {source!r}: {file.name} is no readable safetensors file ({err})."
        ) from err
    for name, array in found.items():
        if array.is_floating_point() and not array.isfinite().all():
            raise UserError(f"Setting start-from = {source!r}: array {name!r} is not finite.")
    return found
