"""Registry of methods by name; their classes are imported only where they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedul_flwr.config.base import Settings, load_reference, nearest, shown
from fedul_flwr.config.method_settings import (
    AdmissionSettings,
    ConsistencySettings,
    FedLLPDCSettings,
    FedLLPSettings,
    FedLLPVATSettings,
    FedMatchSettings,
    FedPLSettings,
    FedULConsistencySettings,
    FedULMixSettings,
    FedULSettings,
    FixMatchSettings,
    LabelSettings,
    LabelsOnlySettings,
    LabelSourceSettings,
    PropagationSettings,
    PseudoLabelSettings,
    SAGESettings,
    ScenarioSettings,
    SemiFLSettings,
    ServerTrainingSettings,
    StageSettings,
    StrongViewSettings,
    SupervisedPartSettings,
    SupervisedSettings,
    UnlabeledSetSettings,
    ViewSettings,
    WeakViewSettings,
    XCLPPredictSettings,
    XCLPSettings,
)
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.errors import UserError

_SETS = "unlabeled sets with known class shares at clients"
_K_SETS = f"{_SETS}, at least as many sets as classes"
_SERVER = "labeled points at the server"
_SOME = "labels for some points of clients, and their other points"
_PARTLY_LABELED = "labels for some points of clients or of the server, and clients' other points"

_FEDUL = "Lu et al., ICLR 2022, arXiv:2204.03304"
_BI_OBJECTIVE = "A Bi-Objective Optimization Approach for Enhancing FedUL, project report"
_FEDMATCH = "Jeong et al., ICLR 2021, arXiv:2006.12097"
_XCLP = "Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434"


DataKind = Literal["unlabeled-sets", "labels", "partly-labeled", "fully-labeled"]
"""Kind of a client's training data."""
PARTLY_LABELED = frozenset({"partly-labeled", "fully-labeled"})
"""Kinds in which each point belongs to one client, and some or all points have labels."""


STRATEGY = "fedul_flwr.federated.strategy:Strategy"
CLIENT = "fedul_flwr.federated.client:Client"


@dataclass(frozen=True)
class Method:
    """One federated method.

    Attributes
    ----------
    name : its name and the name of its table of settings.
    strategy, client : classes of its two sides,
        a :class:`fedul_flwr.federated.strategy.Strategy` and
        a :class:`fedul_flwr.federated.client.Client`, or ``"module:Class"``.
    settings : classes of its settings, one for each table of the run config.
    data : a simulated client's data: unlabeled sets, the points of these sets with labels, or
        points that no other client has, with labels for some or all of them.
    trains : whether it trains a model over rounds; if not, its clients label their points once.
    needs_labels : whether somebody must have a label, also if the first weights (``start-from``)
        tell classes apart.
    can_sum : whether a sum of its clients' models is all that the server needs (``secure-sum``).
    disclosures : ``"module:NAME"`` of a tuple of :class:`fedul_flwr.federated.disclosure.Sent`, all
        that its clients send beside their reports; by default what their kind of data needs.
    line : one sentence on how it learns; empty for a method of somebody's own that has none.
    needs : data that it needs.
    paper : authors, conference and arXiv id; ``"ours"`` where there is no paper.
    """

    name: str
    strategy: str | type = STRATEGY
    client: str | type = CLIENT
    settings: tuple[type[Settings], ...] | type[Settings] = ()
    data: DataKind = "unlabeled-sets"
    trains: bool = True
    needs_labels: bool = True
    can_sum: bool = True
    disclosures: str = ""
    line: str = ""
    needs: str = ""
    paper: str = ""

    @property
    def asks_clients(self) -> bool:
        """Whether its clients take part; those of ``server-only`` say who they are and no more."""
        return self.client != CLIENT

    @property
    def strategy_class(self) -> Any:
        """Class of the server side."""
        return _loaded(self.strategy)

    @property
    def client_class(self) -> Any:
        """Class of the client side."""
        return _loaded(self.client)

    def __post_init__(self) -> None:
        for kind in self.tables.values():
            if not kind.table:
                raise UserError(
                    f"Method {self.name!r}: settings class {kind.__name__} names no table; "
                    f"give it table = {self.name!r}.",
                    "own-method-wrong",
                )

    @property
    def tables(self) -> dict[str, type[Settings]]:
        """Classes of its settings by table."""
        kinds = self.settings if isinstance(self.settings, tuple) else (self.settings,)
        return {kind.table: kind for kind in kinds}


def _loaded(side: str | type) -> Any:
    return load_reference(side, "method") if isinstance(side, str) else side


MATCHING = (
    *(LabelSettings, ScenarioSettings, ConsistencySettings, ServerTrainingSettings),
    WeakViewSettings,
)
"""Settings of methods that learn from few labels and from consistency."""

_BUILT_IN = (
    Method(
        name="fedul",
        line="FedUL: trains to predict a point's set through a fixed map of class posteriors.",
        needs=_K_SETS,
        paper=_FEDUL,
        strategy="fedul_flwr.strategies.fedul:FedULStrategy",
        client="fedul_flwr.client_apps.fedul:FedULClient",
        disclosures="fedul_flwr.client_apps.fedul:DISCLOSURES",
        settings=(FedULSettings, DPSettings),
    ),
    # Bi-objective FedUL: a small labeled set at the server.
    Method(
        name="fedul-finetune",
        line="FedUL with M1: the server trains the combined model on its labels after every round.",
        needs=f"{_K_SETS}; {_SERVER}",
        paper=_BI_OBJECTIVE,
        strategy="fedul_flwr.strategies.fedul_finetune:FedULFinetune",
        client="fedul_flwr.client_apps.fedul:FedULClient",
        disclosures="fedul_flwr.client_apps.fedul:DISCLOSURES",
        settings=(FedULSettings, ServerTrainingSettings, DPSettings),
    ),
    Method(
        name="fedul-mix",
        line="FedUL with M2: the server mixes the combined model with one trained on its labels.",
        needs=f"{_K_SETS}; {_SERVER}",
        paper=_BI_OBJECTIVE,
        strategy="fedul_flwr.strategies.fedul_mix:FedULMix",
        client="fedul_flwr.client_apps.fedul:FedULClient",
        disclosures="fedul_flwr.client_apps.fedul:DISCLOSURES",
        settings=(FedULSettings, ServerTrainingSettings, FedULMixSettings, DPSettings),
    ),
    Method(
        name="fedul-consistency",
        line="FedUL, and the same prediction for two views of a point.",
        needs=_K_SETS,
        paper="ours, on Lu et al., ICLR 2022, arXiv:2204.03304",
        strategy="fedul_flwr.strategies.fedul:FedULStrategy",
        client="fedul_flwr.client_apps.fedul_consistency:FedULConsistencyClient",
        disclosures="fedul_flwr.client_apps.fedul:DISCLOSURES",
        settings=(FedULSettings, FedULConsistencySettings, DPSettings),
    ),
    Method(
        name="fedul-assign",
        line="FedUL, and strong views trained on classes assigned under the shares of each set.",
        needs=_K_SETS,
        paper="ours, on Lu et al., ICLR 2022, arXiv:2204.03304",
        strategy="fedul_flwr.strategies.fedul:FedULStrategy",
        client="fedul_flwr.client_apps.fedul_assign:FedULAssignClient",
        disclosures="fedul_flwr.client_apps.fedul:DISCLOSURES",
        settings=(FedULSettings, FedULConsistencySettings, DPSettings),
    ),
    Method(
        name="fedpl",
        line="A set's most frequent class is the pseudo label of its points, with MixUp.",
        needs=_SETS,
        paper="Diao et al. 2021, as in Lu et al., ICLR 2022, arXiv:2204.03304",
        client="fedul_flwr.baselines.fedpl:FedPLClient",
        settings=(AdmissionSettings, FedPLSettings, DPSettings),
    ),
    Method(
        name="fedllp",
        line="The mean prediction of a set is trained to be its class shares.",
        needs=_SETS,
        paper="Dulac-Arnold et al. 2019, as in Lu et al., ICLR 2022, arXiv:2204.03304",
        client="fedul_flwr.baselines.fedllp:FedLLPClient",
        settings=(AdmissionSettings, FedLLPSettings, DPSettings),
    ),
    Method(
        name="fedllp-vat",
        line="FedLLP, and predictions that the worst small change of a point does not move.",
        needs=_SETS,
        paper="Tsai and Lin 2020, as in Lu et al., ICLR 2022, arXiv:2204.03304",
        client="fedul_flwr.baselines.fedllp:FedLLPVATClient",
        settings=(AdmissionSettings, FedLLPSettings, FedLLPVATSettings, DPSettings),
    ),
    Method(
        name="fedllp-dc",
        line="FedLLP, and strong views trained on classes assigned under the shares of each set.",
        needs=_SETS,
        paper="Ma et al., CVPR Findings 2026 (LLP-DC), each client its own sets",
        client="fedul_flwr.baselines.fedllp_dc:FedLLPDCClient",
        settings=(AdmissionSettings, FedLLPSettings, FedLLPDCSettings, DPSettings),
    ),
    Method(
        name="fedllp-pvc",
        line="The model makes the exact class counts of each set as probable as it can.",
        needs="unlabeled sets with class shares that are exact counts, at clients",
        paper="Ma et al., ICLR 2026 (LLP-PVC), each client its own sets",
        client="fedul_flwr.baselines.fedllp_pvc:FedLLPPVCClient",
        settings=(AdmissionSettings, FedLLPSettings, DPSettings),
    ),
    Method(
        name="server-only",
        line="Trains on the server's labels alone; clients do nothing.",
        needs=_SERVER,
        paper=_BI_OBJECTIVE,
        strategy="fedul_flwr.baselines.server_only:ServerOnly",
        client="fedul_flwr.federated.client:Client",
        disclosures="fedul_flwr.federated.disclosure:DESCRIBE_ONLY",
        # Uses the same split as the methods it is compared with, but only the server's part.
        settings=(UnlabeledSetSettings, ServerTrainingSettings),
        can_sum=False,
    ),
    # Upper bound: the points of the same split, with their labels.
    Method(
        name="supervised",
        line="Federated learning with labels for all points of clients, or a part: the ceiling.",
        needs="labels for all points of clients, or a fraction",
        paper="McMahan et al., AISTATS 2017, arXiv:1602.05629",
        client="fedul_flwr.baselines.supervised:SupervisedClient",
        disclosures="fedul_flwr.baselines.supervised:DISCLOSURES",
        settings=(UnlabeledSetSettings, SupervisedSettings, DPSettings),
        data="labels",
    ),
    # Clients with labels for some points: XCLP and its rivals.
    Method(
        name="xclp",
        line="Labels spread across clients in every round by similar features, under encryption.",
        needs=f"{_SOME}; at least three clients with labels",
        paper=_XCLP,
        strategy="fedul_flwr.strategies.xclp:XCLPStrategy",
        client="fedul_flwr.client_apps.xclp:XCLPClient",
        disclosures="fedul_flwr.client_apps.xclp:DISCLOSURES",
        settings=(LabelSettings, PseudoLabelSettings, XCLPSettings, WeakViewSettings),
        data="partly-labeled",
    ),
    Method(
        name="xclp-predict",
        line="The same once, without training: labels for clients' points, and no model.",
        needs=f"{_SOME}; at least three clients with labels",
        paper=_XCLP,
        strategy="fedul_flwr.strategies.xclp_predict:XCLPPredict",
        client="fedul_flwr.client_apps.xclp_predict:XCLPPredictClient",
        disclosures="fedul_flwr.client_apps.xclp_predict:DISCLOSURES",
        settings=(LabelSettings, XCLPSettings, XCLPPredictSettings),
        data="partly-labeled",
        can_sum=False,
        trains=False,
    ),
    Method(
        name="labels-only",
        line="Trains on the given labels of clients alone.",
        needs="labels for some points of clients",
        paper=f"rival in {_XCLP}",
        strategy="fedul_flwr.baselines.labels_only:LabelsOnly",
        client="fedul_flwr.baselines.labels_only:LabelsOnlyClient",
        settings=(LabelSettings, StageSettings, LabelsOnlySettings),
        data="partly-labeled",
    ),
    Method(
        name="local-lp",
        line="Labels spread within each client only.",
        needs=_SOME,
        paper=f"rival in {_XCLP}",
        strategy="fedul_flwr.baselines.local_lp:LocalLP",
        client="fedul_flwr.baselines.local_lp:LocalLPClient",
        settings=(LabelSettings, PseudoLabelSettings, PropagationSettings, WeakViewSettings),
        data="partly-labeled",
    ),
    Method(
        name="pseudo-label",
        line="The model's own predictions are labels, made anew in every round.",
        needs=_SOME,
        paper=f"rival in {_XCLP}",
        client="fedul_flwr.baselines.pseudo_label:PseudoLabelClient",
        settings=(LabelSettings, PseudoLabelSettings, WeakViewSettings),
        data="partly-labeled",
        needs_labels=False,
    ),
    Method(
        name="fedsem",
        line="The model's predictions are labels, made once after a stage with labels alone.",
        needs=_SOME,
        paper=f"Albaseer et al. 2020, rival in {_XCLP}",
        strategy="fedul_flwr.baselines.fedsem:FedSem",
        client="fedul_flwr.baselines.fedsem:FedSemClient",
        settings=(LabelSettings, PseudoLabelSettings, WeakViewSettings),
        data="partly-labeled",
    ),
    Method(
        name="fedsiam",
        line="Each client has a teacher, the running mean of its models (mean teacher).",
        needs=_SOME,
        paper=f"Long et al. 2020, rival in {_XCLP}",
        strategy="fedul_flwr.baselines.fedsiam:FedSiam",
        client="fedul_flwr.baselines.fedsiam:FedSiamClient",
        disclosures="fedul_flwr.baselines.fedsiam:DISCLOSURES",
        settings=(LabelSettings, StageSettings),
        data="partly-labeled",
        can_sum=False,
    ),
    Method(
        name="fedmatch",
        line="FedMatch: consistency with similar clients' models, in two parts sent sparsely.",
        needs=_PARTLY_LABELED,
        paper=_FEDMATCH,
        strategy="fedul_flwr.strategies.fedmatch:FedMatchStrategy",
        client="fedul_flwr.client_apps.fedmatch:FedMatchClient",
        disclosures="fedul_flwr.client_apps.fedmatch:DISCLOSURES",
        settings=(
            LabelSettings,
            ScenarioSettings,
            ViewSettings,
            ServerTrainingSettings,
            WeakViewSettings,
            FedMatchSettings,
        ),
        data="partly-labeled",
        needs_labels=False,
    ),
    # FedMatch's rivals: consistency within each client, training with all labels, and training
    # with the given labels only.
    Method(
        name="uda",
        line="The same prediction for a point and its strong view, by divergence of posteriors.",
        needs=_PARTLY_LABELED,
        paper=f"Xie et al. 2020, rival in {_FEDMATCH}",
        client="fedul_flwr.baselines.uda:UDAClient",
        settings=MATCHING,
        data="partly-labeled",
        needs_labels=False,
    ),
    Method(
        name="fixmatch",
        line="A sure prediction for a point is the label of its strong view.",
        needs=_PARTLY_LABELED,
        paper=f"Sohn et al. 2020, rival in {_FEDMATCH}",
        client="fedul_flwr.baselines.fixmatch:FixMatchClient",
        settings=(*MATCHING, FixMatchSettings),
        data="partly-labeled",
        needs_labels=False,
    ),
    Method(
        name="sage",
        line="FixMatch, and the model that a client received corrects its pseudo labels.",
        needs=_PARTLY_LABELED,
        paper="Liu et al., CVPR 2025, arXiv:2503.13227",
        client="fedul_flwr.baselines.sage:SAGEClient",
        settings=(*MATCHING, SAGESettings),
        data="partly-labeled",
        needs_labels=False,
    ),
    Method(
        name="semifl",
        line="SemiFL: the server trains after clients, which trust and mix its sure predictions.",
        needs=f"{_SERVER}, and clients' unlabeled points",
        paper="Diao, Ding and Tarokh, NeurIPS 2022, arXiv:2106.01432",
        strategy="fedul_flwr.baselines.semifl:SemiFL",
        client="fedul_flwr.baselines.semifl:SemiFLClient",
        disclosures="fedul_flwr.baselines.semifl:DISCLOSURES",
        settings=(
            *(LabelSettings, ScenarioSettings, StrongViewSettings, ServerTrainingSettings),
            SemiFLSettings,
        ),
        data="partly-labeled",
        can_sum=False,
    ),
    Method(
        name="all-labels",
        line="Trains with FedMatch's batches on labels of all points: the ceiling.",
        needs="labels for all points of clients",
        paper=f"ceiling in {_FEDMATCH}",
        client="fedul_flwr.baselines.all_labels:AllLabelsClient",
        settings=(ScenarioSettings, SupervisedPartSettings, ServerTrainingSettings),
        data="fully-labeled",
    ),
    Method(
        name="given-labels",
        line="Trains on the given labels and nothing else, at clients or at the server.",
        needs="labels for some points of clients or of the server",
        paper=f"rival in {_FEDMATCH}",
        strategy="fedul_flwr.baselines.given_labels:GivenLabels",
        client="fedul_flwr.baselines.given_labels:GivenLabelsClient",
        disclosures="fedul_flwr.baselines.given_labels:DISCLOSURES",
        settings=(
            LabelSettings,
            LabelSourceSettings,
            SupervisedPartSettings,
            ServerTrainingSettings,
        ),
        data="partly-labeled",
    ),
)
METHODS = {method.name: method for method in _BUILT_IN}
"""Built-in methods."""


def find_method(name: str) -> Method:
    """Built-in method ``name``, or the :class:`Method` that ``package.module:NAME`` refers to.

    Raises
    ------
    UserError
        If the name is unknown, or the reference cannot be imported or is not a method.
    """
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        hint = nearest(name, METHODS)
        raise UserError(
            f"Setting method = {shown(name)}: must be one of {', '.join(METHODS)} "
            f"or 'package.module:NAME'{hint or '.'}",
            "unknown-name",
            setting="method",
        )
    method = load_reference(name, "method")
    if not isinstance(method, Method):
        raise UserError(
            f"Setting method = {name!r} is no Method of fedul_flwr.config.methods.",
            "own-method-wrong",
            setting="method",
        )
    return method
