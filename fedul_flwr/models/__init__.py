"""Model architectures by name, one per file."""

from fedul_flwr.models.registry import MODELS, build_model

__all__ = ["MODELS", "build_model"]
