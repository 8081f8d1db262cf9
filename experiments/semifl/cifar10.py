"""SemiFL (Diao, Ding and Tarokh, NeurIPS 2022), CIFAR-10 with 250 labels."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table, figures_of

# As the authors' code, but for: RandAugment of our magnitudes, 2 to 5 of 10 (theirs draws with
# repetition, always of magnitude 10, and leaves about half of the draws out), and validation
# points, which the clients lose. FixMatch and labels alone have no momentum that lives on. (FL)²
# has the plan of SemiFL: its authors' code has a constant step size, 50 epochs at the server
# before round 1, and batches of 32 at clients.
SETTINGS = {
    "method": "semifl",
    "dataset": "uoft-cs/cifar10",
    "validation-fraction": 0.02,
    "scenario.labels-at": "server",
    "server-fraction": 0.005,
    "model": "wrn28-2",
    "num-rounds": 800,
    "fraction-train": 0.1,
    "base": "fedavgm",
    "fedavgm.server-momentum": 0.5,
    "local-epochs": 5,
    "server.epochs": 5,
    "batch-size": 10,
    "optimizer": "sgd",
    "learning-rate": 0.03,
    "momentum": 0.9,
    "weight-decay": 5e-4,
    "learning-rate-schedule": "cosine",
    "augment": "translate-flip",
    "ssl.operations": 2,
}
SPLIT = {
    "IID": {"partition": "iid"},
    "IID 4000 labels": {"partition": "iid", "server-fraction": 0.08},  # of the paper's ablation
    "Dirichlet 0.3": {"partition": "dirichlet", "dirichlet.alpha": 0.3},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet.alpha": 0.1},
    "two classes": {"partition": "pathological", "pathological.classes-per-client": 2},
}
ROWS = {
    "labels alone": {"method": "given-labels", "ssl.supervised-weight": 1.0},
    "SemiFL": {},
    "SemiFL in parallel": {"server.when": "parallel"},
    "FixMatch by turns": {
        "method": "fixmatch",
        "fixmatch.threshold": 0.95,
        "server.when": "after",
        "views.weak": True,
        "ssl.supervised-weight": 1.0,
        "ssl.unlabeled-batch-size": 10,
    },
    "FixMatch in parallel": {
        "method": "fixmatch",
        "fixmatch.threshold": 0.95,
        "server.when": "parallel",
        "views.weak": True,
        "ssl.supervised-weight": 1.0,
        "ssl.unlabeled-batch-size": 10,
    },
    "(FL)²": {
        "semifl.threshold": "adaptive",
        "semifl.mix-weight": 0.0,
        "semifl.learning-status": True,
        "semifl.sharpness": 0.1,
        "ssl.operations": 3,
    },
}
QUICK = {
    "points-per-client": 200,
    "model": "cnn6-quarter",
    "num-rounds": 30,
    "evaluate-every": 10,
    "local-epochs": 2,
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns; quick ones are for two cores."""
    for split, of_split in SPLIT.items():
        settings = {**SETTINGS, **of_split}
        if quick:
            settings |= QUICK
            if split == "IID 4000 labels":
                settings |= {"points-per-client": 1000, "server.epochs": 2}
        yield Column(split, settings, ROWS, clients=20 if quick else 100)


COMPARED = ["labels alone", "SemiFL"]
ACCURACY = {
    "IID": [42.4, 88.2],
    "Dirichlet 0.3": [42.4, 71.9],
    "Dirichlet 0.1": [42.4, 63.0],
    "two classes": [42.4, 60.0],
}

TABLE = Table(
    title="CIFAR-10, 250 or 4,000 labels at the server, 10 of 100 clients in a round",
    source="SemiFL (Diao, Ding and Tarokh, NeurIPS 2022), CIFAR-10 with 250 labels",
    measures=["accuracy"],
    note=(
        "Nobody has run it at full size here; the quick columns with IID splits ran with three "
        "seeds. The paper takes the best round by test accuracy, and has the rows in parallel "
        "and FixMatch by turns with 4,000 labels alone."
    ),
    columns=columns,
    paper={"accuracy": figures_of(COMPARED, ACCURACY)},
)
