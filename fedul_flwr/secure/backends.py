"""Backends of similarity by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fedul_flwr.secure.encrypted_distances import SENDS, DistanceServer, mask_keys, respond
from fedul_flwr.secure.hamming.ot import OT
from fedul_flwr.secure.hamming.paillier import PAILLIER
from fedul_flwr.secure.hamming.pairwise import PairwiseHamming
from fedul_flwr.secure.hamming.plaintext import PLAINTEXT
from fedul_flwr.secure.hamming.rlwe import RLWE
from fedul_flwr.secure.session import FEWEST
from fedul_flwr.secure.similarity import SimilarityBackend


def secure_backend(protocol: PairwiseHamming) -> SimilarityBackend:
    """A backend that compares points by a protocol for two clients, and sums masked labels."""
    return SimilarityBackend(
        name=protocol.name,
        respond=partial(respond, protocol),
        mask_keys=mask_keys,
        server=partial(DistanceServer, protocol),
        cost=protocol.cost,
        fewest=FEWEST,
        sends=SENDS,
    )


PROTOCOLS: Mapping[str, PairwiseHamming] = {
    protocol.name: protocol for protocol in (RLWE, PAILLIER, OT)
}
BACKENDS: Mapping[str, SimilarityBackend] = {
    PLAINTEXT.name: PLAINTEXT,
    **{name: secure_backend(protocol) for name, protocol in PROTOCOLS.items()},
}
"""Values of the setting ``xclp.secure``."""
