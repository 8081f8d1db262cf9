"""Objects of this Python session that runs in this process may use, and that no module has.

A run names code by ``module:name``. What a notebook defines gets a name in this module, so that
runs with ``engine="in-process"`` find it as they find any other.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from fedul_flwr.errors import UserError

_PREFIX = f"{__name__}:"


def reference_in_memory(value: Any) -> str:
    """The reference to ``value``, for this session; of a module to its copies.

    The same source, or the same weights, have the same name, so that a run goes on in a new session
    that defines them again.
    """
    if hasattr(value, "state_dict"):
        kind, weights = type(value), value.state_dict()
        digest = hashlib.sha256(repr(value).encode())
        for name, tensor in weights.items():
            digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
        module = copy.deepcopy(value)
        value, name = lambda *_: copy.deepcopy(module), kind.__name__
    else:
        name = getattr(value, "__name__", type(value).__name__)
        try:
            source = inspect.getsource(value)
        except (OSError, TypeError):  # typed at a prompt
            source = repr(value)
        digest = hashlib.sha256(source.encode())
    name = f"{name if name.isidentifier() else 'object'}_{digest.hexdigest()[:8]}"
    vars(sys.modules[__name__])[name] = value
    return f"{_PREFIX}{name}"


def refuse_in_memory(settings: Mapping[str, Any], engine: str) -> None:
    """Refuse settings that name an object which processes of ``engine`` do not have."""
    for key, value in settings.items():
        if engine != "in-process" and isinstance(value, str) and value.startswith(_PREFIX):
            raise UserError(
                f"{key}: what it names is at the top of no module, where the processes of a run "
                "can import it. Put it, or the function that builds it, into a file such as "
                "my_models.py and import it from there, or write 'my_models:build'; or set "
                "engine='in-process'.",
                "argument-not-allowed",
            )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise UserError(
        f"{_PREFIX}{name} was an object of another Python session: define it here as it was there, "
        "and give it to a run again.",
        "reference-wrong",
    )
