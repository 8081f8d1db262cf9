"""The data set that the settings name: where it lies, its form and its content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedul_flwr.config.point_kinds import refuse_other_points
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import NaturalSettings
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.data.columns import read_columns
from fedul_flwr.data.formats import composed
from fedul_flwr.data.sources import read_source, source_directory
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.data.types import Source
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.feature_store import feature_source
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.results.predict import extractor_of


def open_named(
    dataset: str, settings: RunConfig, table: TableOptions
) -> tuple[DataShape, Path, Source]:
    """Shape, folder and content of a data set; the latter two of its features, if it has some."""
    place = source_directory(dataset, image_size=settings.image_size, table=table)
    source = read_source(place)
    shape = DataShape(source.input_shape, source.class_names, source.columns, bits=source.bits)
    if not settings.features:
        return shape, place, source
    refuse_other_points(settings, shape.input_shape)  # before an extractor gets them
    place = feature_source(place, extractor_of(settings))
    featured = read_source(place)
    return replace(shape, num_features=featured.input_shape[0]), place, featured


def table_options(settings: SharedSettings) -> TableOptions:
    """Rules for the server's tables of features."""
    columns = read_columns(settings.columns) if settings.columns else None
    group = ""
    if isinstance(settings, RunConfig) and settings.partition == "natural":
        group = settings[NaturalSettings].column
    return TableOptions(
        settings.missing,
        settings.label_column,
        columns,
        settings.text_column,
        settings.image_bits,
        group,
    )


def named_shape(settings: SharedSettings) -> DataShape:
    """Input shape and classes from ``class-names``, ``input-shape`` and ``columns``."""
    names = tuple(composed(name.strip()) for name in settings.class_names.split(","))
    columns = table_options(settings).columns
    told = tuple(map(int, settings.input_shape.split("x"))) if settings.input_shape else ()
    shape = told if columns is None else (len(columns.features),)
    if told not in ((), shape):
        raise UserError(
            f"Setting input-shape = {settings.input_shape!r}: the columns file has {shape[0]} "
            "features; leave input-shape out."
        )
    count = extractor_of(settings).num_features(shape) if settings.features else 0
    return DataShape(shape, names, columns, count, settings.image_bits)
