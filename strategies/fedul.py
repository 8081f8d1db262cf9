"""FedUL's server side (Algorithm 1): any base strategy, for given class priors at test time."""

from __future__ import annotations

from fedul_flwr import method as kit


class FedULStrategy(kit.Strategy):
    """Federation of unsupervised learning around any base strategy.

    The base combines updates as usual, because a client's transition makes its surrogate task train
    the class model. The server only checks the results of clients' checks of their sets.
    """

    can_hold_out = True
    takes_test_prior = True


METHOD = kit.Method(
    name="fedul",
    line="FedUL: trains to predict a point's set through a fixed map of class posteriors.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes; "
    "classes that look alike at all clients",
    paper="Lu et al., ICLR 2022, arXiv:2204.03304",
    strategy=FedULStrategy,
    client="fedul_flwr.client_apps.fedul:FedULClient",
    settings=kit.FedULSettings,
)
