"""A model in one message: sums over the clients' points, of which its last layer follows.

Nothing is trained. The network is fixed, the points themselves or random features, and a round is a
sum (:mod:`fedul_flwr.learning.closed_form`).
"""

from __future__ import annotations

from fedul_flwr import method as kit
from fedul_flwr.config.sections import HeadSettings


class ClosedForm(kit.Strategy):
    """Each round makes the last layer anew: first of what is stated, then by posteriors."""

    takes_test_prior = True
    goes_with = (kit.NOT_ALONE, kit.only_without("max-update-norm"))


class SetsClient(kit.Client[kit.AnySetsData]):
    """Sums over the points of its sets, of which one is enough."""

    data_class = kit.AnySetsData


class LabelsClient(kit.SemiSupervisedClient):
    """Sums over its labeled points, then also over the others."""


_OURS = "ours, after Quadrianto et al., JMLR 2009, and FedCGS, arXiv:2503.06962"
METHOD = kit.Method(
    name="closed-form",
    line="A last layer from sums over all sets, in one message and a refinement; trains nothing.",
    needs="unlabeled sets with class shares at clients, that together tell the classes apart; "
    "classes that look alike at all clients",
    paper=_OURS,
    strategy=ClosedForm,
    client=SetsClient,
    settings=(kit.AdmissionSettings, HeadSettings),
    updates=False,
)
OF_LABELS = kit.Method(
    name="closed-form-labels",
    line="The same from labels of some or all points, and then from posteriors of the others.",
    needs="labels for some points of clients",
    paper=_OURS,
    strategy=ClosedForm,
    client=LabelsClient,
    settings=(kit.LabelSettings, HeadSettings),
    data="partly-labeled",
    updates=False,
)
