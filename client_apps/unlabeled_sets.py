"""What the clients of all methods that train on unlabeled sets share: sets and their verdict."""

from __future__ import annotations

from functools import cached_property

from client_apps.local import LocalTrainingClient, TrainingData
from fedul_flwr.bridge import Value
from fedul_flwr.data.set_split import open_unlabeled_sets
from fedul_flwr.data.types import UnlabeledSets
from fedul_flwr.settings.fedul import AdmissionSettings
from fedul_flwr.verdict import Verdict, judge_sets


class UnlabeledSetsClient(LocalTrainingClient):
    """Holds unlabeled sets with class priors; a method says what it learns from them."""

    min_sets: int | None = None
    """Fewest sets to take part; ``None`` is the number of classes."""

    @property
    def admission(self) -> AdmissionSettings:
        """Who takes part."""
        return self.settings.section("fedul", AdmissionSettings)

    @cached_property
    def sets(self) -> UnlabeledSets:
        """This client's unlabeled sets: its own, or its share in a simulation."""
        told, folder = self.federation, self.own_folder
        if folder is None:
            return open_unlabeled_sets(told, self.node.partition_id)
        from fedul_flwr.data.owned import load_unlabeled_sets

        names = list(told["class-names"])
        return load_unlabeled_sets(folder, names, len(names), self.image_shape)

    def introduce(self) -> dict[str, Value]:
        """Judge the sets and send the verdict; priors only with ``fedul.share-priors``."""
        verdict = self.verdict()
        for warning in verdict.warnings:
            print(f"Client {self.node.partition_id}: {warning}")
        values: dict[str, Value] = {
            "reason": verdict.reason,
            "num-sets": verdict.num_sets,
            "num-points": verdict.num_points,
            "condition-number": verdict.condition_number,
        }
        if self.admission.share_priors:
            values["priors"] = self.sets.priors.ravel().tolist()
            values["set-sizes"] = self.sets.set_sizes.tolist()
        return values

    def verdict(self) -> Verdict:
        """This client's judgement of its own sets."""
        return judge_sets(
            self.sets.priors,
            self.sets.set_sizes,
            strict_rank=self.admission.strict_rank,
            min_sets=self.min_sets,
            set_names=self.sets.names,
            class_names=list(self.federation["class-names"]),
        )

    def training_data(self) -> TrainingData:
        """All points with the index of their set for a target (eq. 6 of the FedUL paper)."""
        sets = self.sets
        return TrainingData(sets.images, sets.points, sets.sets)
