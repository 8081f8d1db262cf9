"""Methods by name. A method is two references, resolved only where its code runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedul_flwr.config.base import Settings
from fedul_flwr.config.baselines import (
    FedLLPSettings,
    FedLLPVATSettings,
    FedPLSettings,
    SupervisedSettings,
)
from fedul_flwr.config.consistency import FedULConsistencySettings
from fedul_flwr.config.fedul import AdmissionSettings, FedULSettings, UnlabeledSetSettings
from fedul_flwr.config.labels import LabelSettings
from fedul_flwr.config.matching import (
    ConsistencySettings,
    FedMatchSettings,
    FixMatchSettings,
    LabelPlaceSettings,
    ScenarioSettings,
    SupervisedPartSettings,
    UDASettings,
    ViewSettings,
)
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.references import load_reference
from fedul_flwr.config.semi import (
    CrossClientSettings,
    FedSiamSettings,
    PropagatedLabelSettings,
    PropagationSettings,
    SamplingSettings,
    SemiSupervisedSettings,
    StageSettings,
    XCLPPredictSettings,
    XCLPSettings,
)
from fedul_flwr.config.server import FedULMixSettings, ServerTrainingSettings
from fedul_flwr.errors import UserError

DataKind = Literal["unlabeled-sets", "labels", "partly-labeled", "fully-labeled"]
"""What a client learns from."""
PARTLY_LABELED = frozenset({"partly-labeled", "fully-labeled"})
"""Kinds whose points are dealt each once, some or all of them with labels."""


@dataclass(frozen=True)
class Method:
    """One federated method.

    Attributes
    ----------
    name : its name and the name of its table of settings.
    strategy : ``"module:Class"`` of the server side, a
        :class:`fedul_flwr.federated.strategy.MethodStrategy`.
    client : ``"module:Class"`` of the client side, a
        :class:`fedul_flwr.federated.dispatch.FederatedClient`.
    sections : tables of settings that have an effect on it.
    data : what a simulated client is given: its unlabeled sets, its points with labels, or its
        points dealt each once with labels for some of them, or for all.
    trains : whether it trains a model over rounds; if not, its clients label their points once.
    """

    name: str
    strategy: str
    client: str
    sections: Mapping[str, type[Settings]] = field(default_factory=dict)
    data: DataKind = "unlabeled-sets"
    trains: bool = True


MATCHING: dict[str, type[Settings]] = {
    "labels": LabelSettings,
    "scenario": ScenarioSettings,
    "ssl": ConsistencySettings,
    "server": ServerTrainingSettings,
}
"""Tables of methods that learn from few labels and from consistency."""

PRIVATE: dict[str, type[Settings]] = {"dp": DPSettings}
"""Table of methods whose clients put their data into nothing but an update of one model, in every
round that they are sampled for."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="fedul",
            strategy="strategies.fedul:FedUL",
            client="client_apps.fedul:FedULClient",
            sections={"fedul": FedULSettings, **PRIVATE},
        ),
        # Bi-objective FedUL: a small labeled set at the server.
        Method(
            name="fedul-finetune",
            strategy="strategies.fedul_finetune:FedULFinetune",
            client="client_apps.fedul:FedULClient",
            sections={"fedul": FedULSettings, "server": ServerTrainingSettings, **PRIVATE},
        ),
        Method(
            name="fedul-mix",
            strategy="strategies.fedul_mix:FedULMix",
            client="client_apps.fedul:FedULClient",
            sections={
                "fedul": FedULSettings,
                "server": ServerTrainingSettings,
                "fedul-mix": FedULMixSettings,
                **PRIVATE,
            },
        ),
        Method(
            name="fedul-consistency",
            strategy="strategies.fedul_consistency:FedULConsistency",
            client="client_apps.fedul_consistency:FedULConsistencyClient",
            sections={
                "fedul": FedULSettings,
                "fedul-consistency": FedULConsistencySettings,
                **PRIVATE,
            },
        ),
        Method(
            name="fedpl",
            strategy="baselines.fedpl:FedPL",
            client="baselines.fedpl:FedPLClient",
            sections={"fedul": AdmissionSettings, "fedpl": FedPLSettings, **PRIVATE},
        ),
        Method(
            name="fedllp",
            strategy="baselines.fedllp:FedLLP",
            client="baselines.fedllp:FedLLPClient",
            sections={"fedul": AdmissionSettings, "fedllp": FedLLPSettings, **PRIVATE},
        ),
        Method(
            name="fedllp-vat",
            strategy="baselines.fedllp:FedLLP",
            client="baselines.fedllp:FedLLPVATClient",
            sections={
                "fedul": AdmissionSettings,
                "fedllp": FedLLPSettings,
                "fedllp-vat": FedLLPVATSettings,
                **PRIVATE,
            },
        ),
        Method(
            name="server-only",
            strategy="baselines.server_only:ServerOnly",
            client="baselines.server_only:ServerOnlyClient",
            # The same split as the methods it is compared with, of which it leaves the clients out.
            sections={"fedul": UnlabeledSetSettings, "server": ServerTrainingSettings},
        ),
        # The ceiling: the points of the same split, with their labels.
        Method(
            name="supervised",
            strategy="baselines.supervised:Supervised",
            client="baselines.supervised:SupervisedClient",
            sections={"fedul": UnlabeledSetSettings, "supervised": SupervisedSettings, **PRIVATE},
            data="labels",
        ),
        # Clients with labels at some points: XCLP, and what it is compared with.
        Method(
            name="xclp",
            strategy="strategies.xclp:XCLP",
            client="client_apps.xclp:XCLPClient",
            sections={
                "labels": LabelSettings,
                "semi": CrossClientSettings,
                "xclp": XCLPSettings,
            },
            data="partly-labeled",
        ),
        Method(
            name="xclp-predict",
            strategy="strategies.xclp_predict:XCLPPredict",
            client="client_apps.xclp_predict:XCLPPredictClient",
            sections={
                "labels": LabelSettings,
                "xclp": XCLPSettings,
                "xclp-predict": XCLPPredictSettings,
            },
            data="partly-labeled",
            trains=False,
        ),
        Method(
            name="labels-only",
            strategy="baselines.labels_only:LabelsOnly",
            client="baselines.labels_only:LabelsOnlyClient",
            sections={"labels": LabelSettings, "semi": StageSettings},
            data="partly-labeled",
        ),
        Method(
            name="perclient-lp",
            strategy="baselines.perclient_lp:PerClientLP",
            client="baselines.perclient_lp:PerClientLPClient",
            sections={
                "labels": LabelSettings,
                "semi": PropagatedLabelSettings,
                "xclp": PropagationSettings,
            },
            data="partly-labeled",
        ),
        Method(
            name="network-labels",
            strategy="baselines.network_labels:NetworkLabels",
            client="baselines.network_labels:NetworkLabelsClient",
            sections={"labels": LabelSettings, "semi": SemiSupervisedSettings},
            data="partly-labeled",
        ),
        Method(
            name="fedsem",
            strategy="baselines.fedsem:FedSem",
            client="baselines.fedsem:FedSemClient",
            sections={"labels": LabelSettings, "semi": SemiSupervisedSettings},
            data="partly-labeled",
        ),
        Method(
            name="fedsiam",
            strategy="baselines.fedsiam:FedSiam",
            client="baselines.fedsiam:FedSiamClient",
            sections={
                "labels": LabelSettings,
                "semi": SamplingSettings,
                "fedsiam": FedSiamSettings,
            },
            data="partly-labeled",
        ),
        Method(
            name="fedmatch",
            strategy="strategies.fedmatch:FedMatch",
            client="client_apps.fedmatch:FedMatchClient",
            sections={**MATCHING, "ssl": ViewSettings, "fedmatch": FedMatchSettings},
            data="partly-labeled",
        ),
        # What FedMatch is compared with: consistency within each client, all labels, and the given
        # labels without the unlabeled points.
        Method(
            name="uda",
            strategy="baselines.uda:UDA",
            client="baselines.uda:UDAClient",
            sections={**MATCHING, "uda": UDASettings},
            data="partly-labeled",
        ),
        Method(
            name="fixmatch",
            strategy="baselines.fixmatch:FixMatch",
            client="baselines.fixmatch:FixMatchClient",
            sections={**MATCHING, "fixmatch": FixMatchSettings},
            data="partly-labeled",
        ),
        Method(
            name="all-labels",
            strategy="baselines.all_labels:AllLabels",
            client="baselines.all_labels:AllLabelsClient",
            sections={
                "scenario": ScenarioSettings,
                "ssl": SupervisedPartSettings,
                "server": ServerTrainingSettings,
            },
            data="fully-labeled",
        ),
        Method(
            name="given-labels",
            strategy="baselines.given_labels:GivenLabels",
            client="baselines.given_labels:GivenLabelsClient",
            sections={
                "labels": LabelSettings,
                "scenario": LabelPlaceSettings,
                "ssl": SupervisedPartSettings,
                "server": ServerTrainingSettings,
            },
            data="partly-labeled",
        ),
    )
}
"""Built-in methods."""


def find_method(name: str) -> Method:
    """Built-in method ``name``, or the :class:`Method` that ``package.module:NAME`` refers to.

    Raises
    ------
    UserError
        Unknown name, or a reference that cannot be imported or is no method.
    """
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise UserError(
            f"Setting method = {name!r}: must be one of {', '.join(METHODS)} "
            "or 'package.module:NAME'."
        )
    found = load_reference(name, "method")
    if not isinstance(found, Method):
        raise UserError(f"Setting method = {name!r} does not refer to a fedul_flwr.methods.Method.")
    return found
