"""Cross-client label propagation (Scott, Yeo and Lampert), table 3."""

from collections.abc import Iterator
from dataclasses import replace

from fedul_flwr.experiments.table import Column, Table

from .search import SEARCH
from .table_1 import columns as of_table_1


def columns(quick: bool) -> Iterator[Column]:
    """The fine-tuned models of table 1 and their training points, now with the unlabeled ones."""
    for column in of_table_1(quick):
        if column.name in ("finetuned 10 %", "finetuned 25 %", "finetuned 50 %"):
            settings = {**column.settings, "xclp-predict.use-unlabeled": True}
            yield replace(column, settings=settings)


TABLE = Table(
    title="Fed-ISIC2019: unlabeled training points in the graph",
    source="Cross-client label propagation (Scott, Yeo and Lampert), table 3",
    measures=["balanced-accuracy", "balanced-accuracy-alone", "balanced-accuracy-network"],
    note=(
        "The text that these were written from has lost the paper's figures. The fractions are "
        "ours; labeled points alone are in table 1."
    ),
    columns=columns,
    search=SEARCH,
)
