"""Base of clients that train on unlabeled sets: loads the sets and checks them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from fedul_flwr.config.fedul import AdmissionSettings
from fedul_flwr.config.node_config import SET_FORMATS
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Value
from fedul_flwr.data.set_check import Verdict, judge_sets
from fedul_flwr.data.set_split import open_unlabeled_sets
from fedul_flwr.data.types import UnlabeledSets
from fedul_flwr.errors import OwnDataError
from fedul_flwr.federated.client import MethodClient, TrainingData
from fedul_flwr.federated.disclosure import PREPARE, Sent


class UnlabeledSetsClient(MethodClient):
    """Has unlabeled sets with class priors; subclasses define the training."""

    min_sets: int | None = None
    """Fewest sets with which a client can take part; ``None`` is the number of classes."""

    @property
    def admission(self) -> AdmissionSettings:
        """Settings of the checks of sets."""
        return self.settings[AdmissionSettings]

    @cached_property
    def sets(self) -> UnlabeledSets:
        """This client's unlabeled sets: its own data, or its part of a simulated split."""
        told, folder = self.federation, self.own_folder
        if folder is None:
            return open_unlabeled_sets(told, self.node.partition_id)
        self.node.expect_format(self.settings.method, SET_FORMATS)
        from fedul_flwr.data.local_data import load_unlabeled_sets

        names = list(told["class-names"])
        return load_unlabeled_sets(folder, names, len(names), self.image_shape)

    def introduce(self) -> dict[str, Value]:
        """Check the sets and send the result; priors only with ``fedul.share-priors``."""
        verdict = self.verdict()
        for line in filter(None, (verdict.reason, *verdict.warnings)):
            print(f"Client {self.node.partition_id}: {line}")
        values: dict[str, Value] = {
            "reason": verdict.told,
            "num-sets": verdict.num_sets,
            "num-points": verdict.num_points,
            "condition-number": verdict.condition_number,
        }
        if self.admission.share_priors:
            values["priors"] = self.sets.priors.ravel().tolist()
            values["set-sizes"] = self.sets.set_sizes.tolist()
        return values

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Inherited entries, the result of the check, and priors with ``fedul.share-priors``."""
        verdict = ("reason", "num-sets", "num-points", "condition-number")
        sent = [*super().sends(settings), Sent(PREPARE, verdict, "whether its sets can be used")]
        if settings[AdmissionSettings].share_priors:
            priors = ("priors", "set-sizes")
            sent.append(Sent(PREPARE, priors, "class priors and size of every set"))
        return sent

    def describe(self) -> Iterator[str]:
        """Sets, rank and condition number of their priors, and warnings."""
        sets, verdict = self.sets, self.verdict()
        num_classes = sets.priors.shape[1]
        yield f"{verdict.num_points} points in {verdict.num_sets} sets, {num_classes} classes"
        for name, size in zip(sets.names, sets.set_sizes, strict=True):
            yield f"set {name}: {size} points"
        if verdict.rank:
            condition = verdict.condition_number
            yield f"class priors: rank {verdict.rank}, condition number {condition:.3g}"
        yield from (f"warning: {warning}" for warning in verdict.warnings)

    def judge(self) -> None:
        """Raise an error if the check of the sets refuses them."""
        verdict = self.verdict()
        if not verdict.accepted:
            number = self.node.partition_id
            text = f"Client {number} cannot take part: {verdict.reason}."
            raise OwnDataError(text, verdict.refusal)

    def verdict(self) -> Verdict:
        """Result of this client's check of its own sets."""
        return judge_sets(
            self.sets.priors,
            self.sets.set_sizes,
            strict_rank=self.admission.strict_rank,
            min_sets=self.min_sets,
            set_names=self.sets.names,
            class_names=list(self.federation["class-names"]),
        )

    def training_data(self) -> TrainingData:
        """All points with the index of their set as target (eq. 6 of the FedUL paper)."""
        sets = self.sets
        return TrainingData(sets.images, sets.points, sets.sets)
