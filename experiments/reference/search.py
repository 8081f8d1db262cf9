"""The search for every row of these tables (docs/tune.md): its own settings, and six steps."""

from fedul_flwr.experiments.search_space import Search

SEARCH = Search(
    trials=7,
    seeds=1,
    rungs=1,
    space={
        "step": [
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.01},
            {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.003},
            {"optimizer": "adam", "learning-rate": 3e-3},
            {"optimizer": "adam", "learning-rate": 1e-3},
            {"optimizer": "adam", "learning-rate": 3e-4},
        ],
    },
)
