"""Vectors of texts by the package ``wordllama``, whose weights lie in its wheel (MIT).

A text's vector is the mean of its tokens' 256 numbers, scaled to length 1. The files are read here:
the package's loader looks for the tokenizer in another folder than its wheel has, and downloads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.shared import WORDS
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError, require

FILES = (
    Path("weights", "l2_supercat_256.safetensors"),
    Path("tokenizers", "l2_supercat_tokenizer_config.json"),
)
"""Of the package: a row for each token, and the tokens of a text."""
NAME_LENGTH = 20.0
"""Length of names' vectors. The package states no factor of cosines; this is what losses of
sentence-transformers have by default."""


class WordVectors:
    """Maps texts to vectors.

    Raises
    ------
    UserError
        If the package is missing, or its wheel has no weights.
    """

    def __init__(self) -> None:
        require("texts", f"Setting features = {WORDS!r}", WORDS, "tokenizers", setting="features")
        [folder] = find_spec(WORDS).submodule_search_locations  # type: ignore[union-attr,misc]
        self.files = [Path(folder, file) for file in FILES]
        if missing := [file.name for file in self.files if not file.is_file()]:
            raise UserError(
                f"Setting features = {WORDS!r}: the installed package has no {missing[0]}; version "
                "0.4 has.",
                "file-missing",
            )

    def digest(self) -> str:
        """SHA-256 of weights and tokenizer."""
        return sha256(b"".join(file.read_bytes() for file in self.files)).hexdigest()

    @cached_property
    def _loaded(self) -> tuple[NDArray[np.float16], Any]:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.files[1]))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return load_file(self.files[0])["embedding.weight"], tokenizer

    def __call__(self, points: Inputs) -> NDArray[np.float32]:
        """Features ``(n, 256)`` of length 1 of texts ``(n,)`` as they are stored; of a text without
        a token 0."""
        return self.of_texts(np.char.decode(np.asarray(points), "utf-8").tolist())

    def of_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same of texts."""
        rows, tokenizer = self._loaded
        vectors = np.zeros((len(texts), rows.shape[1]), np.float32)
        tokens = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        for vector, encoded in zip(vectors, tokens, strict=True):
            if encoded.ids:
                vector[:] = rows[encoded.ids].mean(axis=0, dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
