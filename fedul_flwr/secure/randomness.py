"""Random bytes: secrets from the operating system, expanded by ChaCha20 if many are needed."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedul_flwr.data.types import Bytes

Entropy = Callable[[int], bytes]
"""Function that returns the given number of unpredictable bytes; ``os.urandom`` except in tests."""

KEY_BYTES = 32

_NONCE = bytes(16)  # each key is used for one stream, so the nonce can be constant


def keystream(key: bytes, size: int) -> Bytes:
    """The first ``size`` bytes of ChaCha20's stream (RFC 8439) under a key used only once."""
    encryptor = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
    stream = np.zeros(size, dtype=np.uint8)
    encryptor.update_into(stream.data, stream.data)  # zeros, overwritten by zeros XOR stream
    return stream


def fresh(size: int, entropy: Entropy = os.urandom) -> Bytes:
    """``size`` unpredictable bytes, expanded from 32 bytes of ``entropy``."""
    return keystream(entropy(KEY_BYTES), size)
