"""Supervised federated training on clients' points: the upper bound for methods without labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.method_settings import SupervisedSettings, UnlabeledSetSettings
from fedul_flwr.data.split import open_labeled_points, open_unlabeled_sets
from fedul_flwr.data.types import Inputs, LabeledPoints, OwnPoints, labeled_own_points, set_aside
from fedul_flwr.errors import OwnDataError
from fedul_flwr.federated.client_data import ClientData, PointShares


class LabeledData(ClientData):
    """Points that all have labels, or a part of them."""

    registers = {kit.NUM_POINTS: kit.Part.count(says="how many points")}

    @cached_property
    def _chosen(self) -> LabeledPoints:
        """Points with labels: ``supervised.label-fraction`` of all, at least one."""
        everything = self._all_points()
        fraction = self.settings[SupervisedSettings].label_fraction
        count = max(1, round(fraction * len(everything.points)))
        # The same order for all fractions: a larger one includes the points of a smaller one.
        order = kit.stream(self.settings.seed, "labeled", self.node.partition_id).permutation(
            len(everything.points)
        )
        chosen = np.sort(order[:count])
        return LabeledPoints(
            everything.inputs, everything.points[chosen], everything.labels[chosen]
        )

    @cached_property
    def _aside(self) -> kit.Ints:
        """Positions of the points that the run does not train on (setting `personal`)."""
        everything = np.arange(len(self._chosen.points))
        if self.settings.personal == "off":
            return everything[:0]
        return set_aside(everything, self.settings.seed, self.node.partition_id)

    @cached_property
    def examples(self) -> LabeledPoints:
        """Training points: those with labels, without some that are set aside."""
        chosen = self._chosen
        if not len(self._aside):
            return chosen
        points, labels = (np.delete(a, self._aside) for a in (chosen.points, chosen.labels))
        return LabeledPoints(chosen.inputs, points, labels)

    @property
    def own_points(self) -> OwnPoints:
        """The training points, and those set aside."""
        trained = np.delete(np.arange(len(self._chosen.points)), self._aside)
        return labeled_own_points(self._chosen, self.examples.points, trained, self._aside)

    @property
    def own_rows(self) -> tuple[Inputs, kit.Ints]:
        """The points that it trains on."""
        return self.examples.inputs, self.examples.points

    def point_shares(self) -> PointShares:
        """The labels."""
        examples = self.examples
        shares = np.eye(self.num_classes)[examples.labels]
        return PointShares(examples.inputs, examples.points, shares, np.ones(len(shares), bool))

    def register(self) -> dict[str, kit.Value]:
        """Number of training points."""
        return {"num-points": len(self.examples.points)}

    def describe(self) -> Iterator[str]:
        """Number of points by class."""
        yield f"{len(self.examples.points)} points to train on, all with a label"
        counts = np.bincount(self.examples.labels, minlength=self.num_classes)
        for name, count in zip(self.class_names, counts, strict=True):
            yield f"class {name}: {count} points"

    def _all_points(self) -> LabeledPoints:
        folder = self.folder
        if folder is None:
            points = open_labeled_points(self.setup, self.node.partition_id)
            points = replace(points, inputs=self.shifted(points.inputs))
            return replace(points, inputs=self.standardized(points.inputs, points.points))
        if self.settings[SupervisedSettings].steps == "sets":
            raise kit.UserError(
                "Setting supervised.steps = 'sets' is for simulations: an owner of labeled points "
                "has no unlabeled sets. Use 'labeled'.",
                "setting-for-simulations",
                setting="supervised.steps",
            )
        all_points = self.load_points(folder)
        missing = int((all_points.labels == kit.UNLABELED).sum())
        if missing:
            where = f" in {folder}" if folder.name else ""
            raise OwnDataError(
                f"{missing} of the {len(all_points.points)} points{where} have no label; method "
                f"{self.settings.method!r} learns from the labels of all points.",
                "labels-missing",
            )
        inputs = self.standardized(all_points.inputs, all_points.points)
        return LabeledPoints(inputs, all_points.points, all_points.labels)


class SupervisedClient(kit.Client[LabeledData]):
    """Trains on this client's points with their labels, or on a part of them."""

    data_class = LabeledData

    def task(self, round: kit.Round) -> kit.Task:
        """One pass over the labeled points, or as many steps as FedUL makes over the sets."""
        points, plan = self.data.examples, round.plan
        if self.settings[SupervisedSettings].steps == "labeled":
            batches = learning.point_batches(points.inputs, points.points, points.labels, plan)
        else:
            in_sets = open_unlabeled_sets(self.setup, self.node.partition_id).points
            count = learning.num_batches(len(in_sets), plan.batch_size)
            batches = learning.repeated_batches(
                points.inputs, points.points, points.labels, plan, count
            )
        return kit.Task(batches, kit.on_logits(learning.scaled_cross_entropy(1.0)))


METHOD = kit.Method(
    name="supervised",
    line="Federated learning with labels for all points of clients, or a part: the ceiling.",
    needs="labels for all points of clients, or a fraction",
    paper="McMahan et al., AISTATS 2017, arXiv:1602.05629",
    client=SupervisedClient,
    settings=(UnlabeledSetSettings, SupervisedSettings),
    data="labels",
)
