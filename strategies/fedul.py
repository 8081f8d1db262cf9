"""FedUL's server side (Algorithm 1): a base strategy, and nothing else."""

from __future__ import annotations

from strategies.unlabeled_sets import UnlabeledSets


class FedUL(UnlabeledSets):
    """Federation of unsupervised learning around any base strategy.

    Training is the base's: a client's transition makes its surrogate task train the wanted model.
    What is left to the server is to hear every client's verdict on its sets.
    """

    can_hold_out = True
