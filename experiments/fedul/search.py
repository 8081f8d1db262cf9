"""The search for every row of FedUL's tables (docs/tune.md).

Each row tries its own settings and eleven points of this space, in as many rounds as the experiment
has. What the authors' code adds to a rival is taken back in half of the trials; other rows drop
these dimensions. Rungs count from the end of a rival's warm-up.
"""

from fedul_flwr.experiments.search_space import Search

SEARCH = Search(
    trials=12,
    reduction_factor=8,
    rungs=1,
    # Adam's 1e-3 without dropout, in batches of 32: what an earlier search chose for FedLLP.
    # FedLLP-VAT and others try it too.
    first=[{"step": 5, "dropout": 1, "batch": 0}],
    space={
        "step": [
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.03},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.01},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.003},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
            {"optimizer": "adam", "learning-rate": 3e-4},
            {"optimizer": "adam", "learning-rate": 1e-4},
        ],
        "dropout": [{}, {"fedllp.dropout": 0.0}],
        "relabeling": [{}, {"fedpl.relabel": False}],
        "batch": [
            {"batch-size": 32, "learning-rate-schedule": "cosine"},
            {"batch-size": 128, "learning-rate-schedule": "cosine"},
        ],
        "regularization": [{}, {"augment": "affine", "weight-decay": 1e-3}],
    },
)
