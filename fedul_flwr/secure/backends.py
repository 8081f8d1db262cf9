"""Backends of similarity by name."""

from __future__ import annotations

from collections.abc import Mapping

from fedul_flwr.secure.plaintext import PLAINTEXT
from fedul_flwr.secure.similarity import SimilarityBackend

BACKENDS: Mapping[str, SimilarityBackend] = {backend.name: backend for backend in (PLAINTEXT,)}
"""Values of the setting ``xclp.secure``."""
