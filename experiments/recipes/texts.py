"""Settings of ours: news by word vectors, with the names of the classes and class shares."""

from collections.abc import Iterator

from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table

# The data: python experiments/ag_news.py test.csv ag-news
SETTINGS = {
    "dataset": "./ag-news",
    "text-column": "text",
    "features": "wordllama",
    "model": "linear",
    "method": "fedul",
    "fedul.num-sets": 5,
    "validation-fraction": 0.02,
    "selection": "last",
    "num-rounds": 30,
    "batch-size": 50,
    "learning-rate": 0.1,
    "learning-rate-schedule": "cosine",
    "augment": "none",
}
"""Five sets of about 100 points. Vectors have length 1, and the weights of names 20."""
WORDS = (
    "names:business market company economy|science technology computer internet|"
    "sports game team player|world politics war government"
)
"""In the order of the classes: Business, Sci/Tech, Sports, World."""
SPLITS = {
    "IID": {},
    "two classes": {"partition": "pathological", "pathological.classes-per-client": 2},
}
CLOSED = {"method": "closed-form", "num-rounds": 2}
LABELS = {**CLOSED, "method": "closed-form-labels", "labels.fraction": 1.0}
ROWS = {
    # Before round 1 these are names alone.
    "names and class shares": {"start-from": "names"},
    "four words a name and class shares": {"start-from": WORDS},
    "FedUL": {},
    "closed form in one message": {**CLOSED, "num-rounds": 1, "closed-form.refinements": 0},
    "closed form": CLOSED,
    "25 labels a client in closed form": {**LABELS, "labels.fraction": 0.05},
    "all labels in closed form": LABELS,
    "all labels": {"method": "supervised"},
}


def columns(quick: bool) -> Iterator[Column]:
    """The columns, at both sizes the same."""
    del quick
    for split, settings in SPLITS.items():
        yield Column(split, {**SETTINGS, **settings}, ROWS, clients=10)


SEARCH = Search(
    trials=4,
    rungs=0,
    space={"step": [{}, {"learning-rate": 0.03}, {"learning-rate": 0.01}, {"learning-rate": 3e-3}]},
)

TABLE = Table(
    title="News: names of classes, class shares, labels",
    source="Settings of ours",
    measures=["start-error", "test-error"],
    note=(
        "The 7,600 texts of AG News' test file, 5,200 of them to train on, ten clients, "
        "five sets each. The error before round 1 of the first two rows is that of names alone: "
        "of the four classes' names, and of four words for each. Steps of the trained rows were "
        "searched with validation labels; the closed forms have nothing to choose."
    ),
    columns=columns,
    search=SEARCH,
)
