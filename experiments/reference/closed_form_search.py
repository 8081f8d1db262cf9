"""The search for rows of these tables that train nothing: as many trials, of the shrinkage."""

from fedul_flwr.experiments.search_space import Search

SEARCH = Search(
    trials=7,
    seeds=1,
    rungs=0,
    space={
        "shrinkage": [
            {},
            {"closed-form.shrinkage": 0.01},
            {"closed-form.shrinkage": 0.03},
            {"closed-form.shrinkage": 0.1},
            {"closed-form.shrinkage": 0.3},
            {"closed-form.shrinkage": 0.6},
            {"closed-form.shrinkage": 0.9},
        ],
    },
)
