"""XCLP for prediction (section 4.1): one propagation, and every client labels its own points."""

from __future__ import annotations

from functools import partial

import numpy as np
from flwr.serverapp import Grid

from fedul_flwr.bridge import Arrays, Content
from fedul_flwr.config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.errors import UserError
from fedul_flwr.federation import Member
from fedul_flwr.propagation.codes import SEED_BYTES
from fedul_flwr.propagation.phases import LABEL, OWN_LABELS, ROUND
from fedul_flwr.settings.labels import LabelSettings
from fedul_flwr.settings.semi import XCLPPredictSettings, XCLPSettings
from strategies.label_propagation import LabelPropagation
from strategies.partly_labeled import PartlyLabeled


class XCLPPredict(PartlyLabeled):
    """Trains nothing: the clients of each group propagate once, and write labels where they run."""

    @property
    def prediction(self) -> XCLPPredictSettings:
        """Groups, and what else is asked for."""
        return self.settings.section("xclp-predict", XCLPPredictSettings)

    @classmethod
    def check(cls, settings: RunConfig) -> None:
        """Refuse features without a model, and points that there are not."""
        super().check(settings)
        options = settings.section("xclp-predict", XCLPPredictSettings)
        if options.features == "model" and not settings.start_from:
            raise UserError(
                "Setting xclp-predict.features = 'model' needs a model: set start-from."
            )
        if options.features == "pixels" and settings.start_from:
            raise UserError(
                f"Setting start-from = {settings.start_from!r} has no effect with "
                "xclp-predict.features = 'pixels'."
            )
        if not options.use_unlabeled and not _has_new_points(settings):
            raise UserError(
                "Setting xclp-predict.use-unlabeled = false leaves no point to label: "
                "set labels.new-fraction above 0."
            )

    @classmethod
    def needs_model(cls, settings: RunConfig) -> bool:
        """Whether features are a model's."""
        return settings.section("xclp-predict", XCLPPredictSettings).features == "model"

    def label(self, grid: Grid, weights: Arrays) -> None:
        """Propagate in every group.

        Parameters
        ----------
        weights : the model that makes the features; empty for pixels.
        """
        self.prepare(grid)
        for number, members in enumerate(self.groups()):
            propagation = LabelPropagation(
                partial(self.ask, grid),
                self.settings.section("xclp", XCLPSettings),
                1,
                stream(self.settings.seed, "codes", number).bytes(SEED_BYTES),
            )
            left, joint = propagation.join(members, weights)
            self._tell(grid, propagation.sum_labels(left, joint), own_labels=True)
            for member in left if self.prediction.leave_one_out else ():
                rows = propagation.sum_labels(left, joint, withheld=member.partition_id)
                if member in rows:
                    self._tell(grid, {member: rows[member]}, own_labels=False)

    def groups(self) -> list[list[Member]]:
        """Members dealt at random into groups as equal as can be; each has somebody."""
        count = self.prediction.groups
        if count > len(self.members):
            raise UserError(
                f"Setting xclp-predict.groups = {count}: there are {len(self.members)} clients."
            )
        order = stream(self.settings.seed, "groups").permutation(len(self.members))
        if count == 1:
            return [self.members]
        return [
            sorted(self.members[index] for index in part) for part in np.array_split(order, count)
        ]

    def _tell(self, grid: Grid, rows: dict[Member, Content], *, own_labels: bool) -> None:
        contents = {
            member: Content(content.arrays, {ROUND: 1, OWN_LABELS: own_labels})
            for member, content in rows.items()
        }
        told = self.ask(grid, LABEL, contents)
        if own_labels:
            self.record.clients += len(told)


def _has_new_points(settings: RunConfig) -> bool:
    options = settings.section("labels", LabelSettings)
    return options.new_fraction > 0 or bool(options.split)
