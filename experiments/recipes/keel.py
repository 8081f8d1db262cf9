"""Settings of ours: tables of KEEL, class shares beside all labels in closed form."""

from collections.abc import Iterator

from fedul_flwr.experiments.table import Column, Table

# The data: python experiments/keel_tables.py keel
TABLES = {"letter": 26, "penbased": 10, "satimage": 6, "texture": 11}
SPLITS = {
    "IID": {},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet.alpha": 0.1},
}
SETTINGS = {
    **{"model": "linear", "num-rounds": 2, "augment": "none", "batch-size": 50},
    **{"validation-fraction": 0.02, "selection": "last"},
}
ROWS = {
    "closed form in one message": {
        "method": "closed-form",
        "fedul.num-sets": 10,
        "num-rounds": 1,
        "closed-form.refinements": 0,
    },
    "closed form": {"method": "closed-form", "fedul.num-sets": 10},
    "all labels in closed form": {"method": "closed-form-labels", "labels.fraction": 1.0},
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns, at both sizes the same."""
    del quick
    for name in TABLES:
        for split, options in SPLITS.items():
            settings = {**SETTINGS, **options, "dataset": f"./keel/{name}"}
            yield Column(f"{name} {split}", settings, ROWS, clients=10)


TABLE = Table(
    title="Tables of KEEL: class shares beside all labels in closed form",
    source="Settings of ours",
    measures=["test-error"],
    note=(
        "Ten sets a client, ten clients. The model is linear in the columns of a table: the rows "
        "say what class shares cost beside labels, not how well the tables can be learned. "
        "Nothing was searched."
    ),
    columns=columns,
)
