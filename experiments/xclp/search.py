"""The search for every row of XCLP's tables (docs/tune.md).

It is that of all tables, with the step of 0.3 that the authors' code has in place of Adam's
largest.
"""

from fedul_flwr.experiments.search_space import SPACE, Search

STEP = [
    {"optimizer": "sgd", "momentum": 0.0, "learning-rate": 0.3},
    *(option for option in SPACE["step"] if option != {"optimizer": "adam", "learning-rate": 1e-2}),
]
SEARCH = Search(space={**SPACE, "step": STEP})
