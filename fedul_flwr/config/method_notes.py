"""One line, needed data and paper of every built-in method, for lists and model cards."""

from __future__ import annotations

from typing import NamedTuple


class MethodNote(NamedTuple):
    """Description of a method.

    Attributes
    ----------
    line : one sentence on how it learns.
    needs : data that it needs.
    paper : authors, conference and arXiv id; ``"ours"`` where there is no paper.
    """

    line: str
    needs: str
    paper: str


_SETS = "unlabeled sets with known class shares at clients"
_K_SETS = f"{_SETS}, at least as many sets as classes"
_SERVER = "labeled points at the server"
_SOME = "labels for some points of clients, and their other points"
_PLACE = "labels for some points of clients or of the server, and clients' other points"

_FEDUL = "Lu et al., ICLR 2022, arXiv:2204.03304"
_BI_OBJECTIVE = "A Bi-Objective Optimization Approach for Enhancing FedUL, project report"
_FEDMATCH = "Jeong et al., ICLR 2021, arXiv:2006.12097"
_XCLP = "Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434"

METHOD_NOTES: dict[str, MethodNote] = {
    "fedul": MethodNote(
        "FedUL: trains to predict a point's set through a fixed map of class posteriors.",
        _K_SETS,
        _FEDUL,
    ),
    "fedul-finetune": MethodNote(
        "FedUL with M1: the server trains the combined model on its labels after every round.",
        f"{_K_SETS}; {_SERVER}",
        _BI_OBJECTIVE,
    ),
    "fedul-mix": MethodNote(
        "FedUL with M2: the server mixes the combined model with one trained on its labels.",
        f"{_K_SETS}; {_SERVER}",
        _BI_OBJECTIVE,
    ),
    "fedul-consistency": MethodNote(
        "FedUL, and the same prediction for two views of a point.",
        _K_SETS,
        "ours, on Lu et al., ICLR 2022, arXiv:2204.03304",
    ),
    "fedpl": MethodNote(
        "A set's most frequent class is the pseudo label of its points, with MixUp.",
        _SETS,
        "Diao et al. 2021, as in Lu et al., ICLR 2022, arXiv:2204.03304",
    ),
    "fedllp": MethodNote(
        "The mean prediction of a set is trained to be its class shares.",
        _SETS,
        "Dulac-Arnold et al. 2019, as in Lu et al., ICLR 2022, arXiv:2204.03304",
    ),
    "fedllp-vat": MethodNote(
        "FedLLP, and predictions that the worst small change of a point does not move.",
        _SETS,
        "Tsai and Lin 2020, as in Lu et al., ICLR 2022, arXiv:2204.03304",
    ),
    "server-only": MethodNote(
        "Trains on the server's labels alone; clients do nothing.",
        _SERVER,
        _BI_OBJECTIVE,
    ),
    "supervised": MethodNote(
        "Federated learning with labels for all points of clients, or a fraction: the ceiling.",
        "labels for all points of clients, or a fraction",
        "McMahan et al., AISTATS 2017, arXiv:1602.05629",
    ),
    "xclp": MethodNote(
        "Labels spread across clients in every round by similar features, under encryption.",
        f"{_SOME}; at least three clients with labels",
        _XCLP,
    ),
    "xclp-predict": MethodNote(
        "The same once, without training: labels for clients' points, and no model.",
        f"{_SOME}; at least three clients with labels",
        _XCLP,
    ),
    "labels-only": MethodNote(
        "Trains on the given labels of clients alone.",
        "labels for some points of clients",
        f"rival in {_XCLP}",
    ),
    "local-lp": MethodNote(
        "Labels spread within each client only.",
        _SOME,
        f"rival in {_XCLP}",
    ),
    "pseudo-label": MethodNote(
        "The model's own predictions are labels, made anew in every round.",
        _SOME,
        f"rival in {_XCLP}",
    ),
    "fedsem": MethodNote(
        "The model's predictions are labels, made once after a stage with labels alone.",
        _SOME,
        f"Albaseer et al. 2020, rival in {_XCLP}",
    ),
    "fedsiam": MethodNote(
        "Each client has a teacher, the running mean of its models (mean teacher).",
        _SOME,
        f"Long et al. 2020, rival in {_XCLP}",
    ),
    "fedmatch": MethodNote(
        "FedMatch: consistency with similar clients' models, in two parts sent sparsely.",
        _PLACE,
        _FEDMATCH,
    ),
    "uda": MethodNote(
        "The same prediction for a point and its strong view, by divergence of posteriors.",
        _PLACE,
        f"Xie et al. 2020, rival in {_FEDMATCH}",
    ),
    "fixmatch": MethodNote(
        "A sure prediction for a point is the label of its strong view.",
        _PLACE,
        f"Sohn et al. 2020, rival in {_FEDMATCH}",
    ),
    "all-labels": MethodNote(
        "Trains with FedMatch's batches on labels of all points: the ceiling.",
        "labels for all points of clients",
        f"ceiling in {_FEDMATCH}",
    ),
    "given-labels": MethodNote(
        "Trains on the given labels and nothing else, at clients or at the server.",
        "labels for some points of clients or of the server",
        f"rival in {_FEDMATCH}",
    ),
}
"""Notes by name of the method."""
