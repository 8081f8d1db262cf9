"""The error of a model without a label, from class shares of its clients' sets.

Heads in closed form are judged on the points that they are made of, without each in turn; trained
models on points that clients hold out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.common import log

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.config.method_settings import AdmissionSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.data.class_priors import uniform_prior
from fedul_flwr.data.run_files.run import COVERAGE, TEMPERATURE
from fedul_flwr.data.safe_files import load_arrays_of
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Content, count, numbers
from fedul_flwr.errors import TooFewLeftError, UserError
from fedul_flwr.federated import owner_offsets
from fedul_flwr.federated.client import names_of, weight_type
from fedul_flwr.federated.messages import PRIOR, to_arrays
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.owner.model_check import check_model
from fedul_flwr.federated.payload import Sum
from fedul_flwr.federated.stage import (
    ClientStage,
    Finished,
    RoundAtServer,
    ServerStage,
    Stage,
    all_stages,
    clients_at_end,
)
from fedul_flwr.federated.stages import heads
from fedul_flwr.federated.stages.heads import features_of, head_names
from fedul_flwr.learning.calibration import coverage_by_margin, matching_temperature
from fedul_flwr.learning.closed_form import posteriors
from fedul_flwr.learning.known_error import (
    ARRAYS_OF_ONE,
    MOST_CLASSES,
    KnownError,
    LeaveOneOut,
    ShareSums,
    known_error,
    misfit,
    moved_by_others,
    share_sums_size,
)
from fedul_flwr.secure.words import FIXED

OF_ERRORS, OF_MISFITS, OF_FARTHEST = "known-error", "misfits", "farthest"
"""Names of the sums: of what a model says by class, of how far owners' points are from it, and of
owners who are farther than others."""
_WEIGHT, _BIAS, _UNSURE = "before/weight", "before/bias", "before/unsure"
"""Arrays of the head before, whose posteriors a refined head is of, and how these follow it."""
_CONFUSION, _LEVEL = "confusion", "level"
_BESIDE = ARRAYS_OF_ONE | {_WEIGHT, _BIAS, _UNSURE}
_PART, _STATED, _OF_ROUND = "part", "stated", "of-round"
"""Values: how far the head's covariance is shrunk, whether it is of what is stated, and of which
round the model is."""
_NORMAL = 1.96
"""Standard errors on each side of an interval of 95 %."""
_UNLIKELY = 0.001
"""Probability below which an owner's points do not fit by chance."""
_MISFITS = {OF_MISFITS: 4, OF_FARTHEST: 1}
"""How many numbers these sums are."""
_JUDGED = "judged"


class AtClient(ClientStage):
    """Says what a model that has not learned from a point makes of it, summed over its points."""

    def part(self, of: str, content: Content) -> Floats | None:
        """Sums of class shares and predictions, or whether these fit what is true of all."""
        if of in (OF_MISFITS, OF_FARTHEST):
            return self._misfit(of, content)
        if of != OF_ERRORS:
            return None
        judge = self._held_out if self.settings.holds_out else self._without_each
        sums = ShareSums.of(*judge(content))
        if self.client.node.data:
            self._say(sums)
        return sums.flat()

    def _held_out(self, content: Content) -> tuple[Floats, Floats, Floats, float, float]:
        """Class shares, logits and posteriors of the points that it has held out, by how much
        logits are corrected, and how far classes are drawn."""
        from fedul_flwr.learning.local import load_arrays, predict_logits
        from fedul_flwr.learning.plan import local_plan

        client, sets = self.client, self.client.data.held_out
        number = count(content, "server-round")
        names_of(client, content.arrays)  # refuses another model
        check_model(client, content.arrays, count(content, _OF_ROUND) + 1)
        load_arrays(client.model, content.arrays)
        shares, logits = sets.priors[sets.sets], np.empty((0, client.num_classes))
        if len(sets.points):  # else its sets are too small
            plan = local_plan(self.settings)
            logits = predict_logits(client.model, sets.inputs, sets.points, plan).double().numpy()
        self._keep(number, shares, logits)
        soft = posteriors(logits, shares, numbers(content, PRIOR))
        return shares, logits, soft, 0.0, self._drawn(sets.sets)

    def _drawn(self, sets: Ints) -> float:
        """How far the classes of points are drawn, which are of these sets: sum over them."""
        variances = self.client.data.share_variances
        sizes = np.bincount(sets, minlength=len(variances))
        return float(sizes**2 @ variances) + drawn_from_sets(self.settings) * len(sets)

    def _without_each(
        self, content: Content
    ) -> tuple[Floats, Floats, Floats, Floats | float, float]:
        """The same of each point, by the head that all others make."""
        client, arrays, number = self.client, content.arrays, count(content, "server-round")
        names = head_names(self.settings, client.data.model_shape, client.num_classes)
        model = {name: array for name, array in arrays.items() if name not in _BESIDE}
        points, prior = client.point_shares(), numbers(content, PRIOR)
        is_first = bool(content.values[_STATED])
        summed = points.stated if is_first else points.shares.any(axis=1)  # as for the head
        features, whole = features_of(client, model, points.inputs, points.points[summed])
        features, shares = features[points.stated[summed]], points.shares[points.stated]
        logits, soft = whole[points.stated[summed]], shares
        if not is_first:
            before = features[:, 0] @ arrays[_WEIGHT].T.astype(np.float64) + arrays[_BIAS]
            soft = points.posteriors(before, prior, points.stated)
        one = LeaveOneOut.of_arrays(arrays, float(numbers(content, _PART)[0]))
        weight = model[names[0]].astype(np.float64)
        left_out = one.logits(features, soft, weight, stated=is_first)
        correction: Floats | float = 0.0
        if not is_first:
            moved = client.state.load(_JUDGED, number).get("moved")
            if moved is None or len(moved) != len(left_out):
                raise UserError(
                    "The server asks for the error of a refined head, and not before for that of "
                    "the head that it refines.",
                    "not-sent-yet",
                )
            correction = moved_by_others(moved, arrays[_UNSURE].astype(np.float64), one.gram)
            left_out += correction
        self._keep(number, shares, left_out, left_out - logits)
        drawn = 0.0 if points.sets is None else float(points.drawn[points.sets].sum())
        after = points.posteriors(left_out, prior, points.stated)
        return shares, left_out, after, correction, drawn

    def _keep(
        self, number: int, shares: Floats, logits: Floats, moved: Floats | None = None
    ) -> None:
        """Keep of each set how often the model says each class, and how far points were moved."""
        rows, members = np.unique(shares, axis=0, return_inverse=True)
        counts = np.zeros(rows.shape)
        np.add.at(counts, (members, logits.argmax(axis=1)), 1)
        of_points = {} if moved is None else {"moved": moved.astype(np.float32)}
        self.client.state.save(_JUDGED, number, {"shares": rows, "counts": counts, **of_points})

    def _misfit(self, of: str, content: Content) -> Floats:
        """Whether its points do not fit the confusion matrix of all, whether it has any, and how
        far they are; or whether they are farther than those of others.

        One owner's wrong shares move the matrix of all, and so make other owners' points unlikely.
        """
        number = count(content, "server-round")
        judged = self.client.state.load(_JUDGED, number + 1)
        # What uncertain shares are off by would be taken for the owner's points.
        if not judged or not judged["counts"].any() or self.client.data.share_variances.any():
            return np.zeros(_MISFITS[of])
        confusion = content.arrays[_CONFUSION].astype(np.float64)
        sampled = drawn_from_sets(self.settings)
        here = misfit(judged["shares"], judged["counts"], confusion, sampled=sampled)
        odd = here.chance < _UNLIKELY
        if of == OF_MISFITS:
            return np.array([odd, 1.0, here.excess, here.excess**2])
        odd &= here.excess >= float(numbers(content, _LEVEL)[0])
        self.client.state.publish(OF_FARTHEST, number, {"odd": np.array(odd)})
        if self.client.node.data and odd:
            print(
                f"Client {self.client.node.partition_id}: the model's predictions do not follow "
                f"from its {stated(self.settings)} (probability {here.chance:.1g}): other images "
                f"or units than elsewhere, or wrong {stated(self.settings)}."
            )
        return np.array([float(odd)])

    def _say(self, sums: ShareSums) -> None:
        """Print on the owner's machine alone how the common model does on its own points."""
        try:
            shares = sums.masses / max(1.0, sums.masses.sum())
            here = known_error(sums, shares)
        except ValueError:  # its own sets do not tell the classes apart
            return
        text = in_words(here, self.settings)
        print(f"Client {self.client.node.partition_id}: error on its own points {text}.")


class AtServer(ServerStage):
    """Asks for the sums after each head or at a run's end, and makes an error of them."""

    def ask_losses(self, round: RoundAtServer, config: ConfigRecord) -> list[Message]:
        """None: what it asks for is a sum."""
        del config
        trained = self.settings.holds_out
        if trained and not (chooses(self.settings) and self.settings.is_evaluated(round.number)):
            return []
        registry = self.strategy.registry
        clients = registry.present(registry.clients)
        arrays, values = to_arrays(round.model), {"server-round": round.number}
        if trained:
            values |= {PRIOR: self._prior().tolist(), _OF_ROUND: round.number}
        else:
            head = next(one for one in self.strategy.stages if isinstance(one, heads.AtServer)).last
            if head is None:
                return []
            beside, about = self._beside(head, round.number)
            moved = owner_offsets.beside(self.strategy)
            arrays, values = {**arrays, **beside, **moved}, {**values, **about}
        made = self._judged(round.grid, clients, arrays, values)
        if made is not None:
            log(INFO, "Round %s: error %s.", round.number, in_words(made, self.settings))
            self.strategy.record.reported |= {
                "known-error": made.error,
                "known-error-deviation": made.deviation,
            }
        return []

    def _prior(self) -> Floats:
        """The class priors at which a trained model's error is known."""
        prior: Floats | None = self.strategy.test_prior
        return uniform_prior(self.strategy.num_classes) if prior is None else prior

    def _beside(self, head: heads.MadeOf, number: int) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and values by which clients take each of their points out of a head."""
        kind, is_first = weight_type(self.settings), head.turn == heads.HEADS[0]
        rng = stream(self.settings.seed, "leave-one-out", number)
        one = LeaveOneOut.of(head.gaussians, head.gram, head.prior, head.part, head.spectrum, rng)
        arrays = one.arrays(kind)
        if not is_first:
            before = *head.before, self.state[_UNSURE]
            arrays |= {
                name: np.asarray(value, kind)
                for name, value in zip((_WEIGHT, _BIAS, _UNSURE), before, strict=True)
            }
        return arrays, {PRIOR: head.prior.tolist(), _PART: [head.part], _STATED: is_first}

    def _judged(
        self, grid: Any, clients: Sequence[ClientRef], arrays: Arrays, values: dict[str, Any]
    ) -> KnownError | None:
        """The error of a model; what else is known of it goes to the state."""
        classes, number = self.strategy.num_classes, values.get(_OF_ROUND, values["server-round"])
        prior = np.array(values[PRIOR])
        if classes > MOST_CLASSES:
            return None
        size = share_sums_size(classes)
        try:
            flat, _ = self.strategy.sums.collect(grid, OF_ERRORS, clients, size, arrays, values)
            sums = ShareSums.of_flat(flat, classes)
            made = known_error(sums, prior)
        except (TooFewLeftError, ValueError) as error:
            log(WARNING, "Round %s: the error is not known without test data: %s.", number, error)
            return None
        points = float(sums.masses.sum())
        right = float(sums.masses @ made.right) / points
        temperature = matching_temperature(sums.sure, points, right, made.deviation / 100)
        coverage = coverage_by_margin(sums.gram, sums.said, sums.near)
        self.state[_UNSURE], self.state[_CONFUSION] = sums.unsure, made.confusion
        self.state[f"{OF_ERRORS}/{number}"] = np.concatenate(
            [
                [made.error, made.deviation, temperature],
                *(made.right, made.confusion.ravel(), coverage.ravel()),
            ]
        )
        return made

    def finish(self, run: Finished) -> Mapping[str, Any]:
        """What is known of the model that the run keeps."""
        clients = self.strategy.registry.present(clients_at_end(self.strategy, run.grid))
        if self.settings.holds_out and not chooses(self.settings):
            arrays = run.directory.load_model(run.model)[0]
            values = {"server-round": self.strategy.record.round, _OF_ROUND: run.round}
            self._judged(run.grid, clients, arrays, {**values, PRIOR: self._prior().tolist()})
        flat = self.state.get(f"{OF_ERRORS}/{run.round}")
        if flat is None:
            return {}
        made, temperature, coverage = self._read(flat)
        if self.settings.calibration == "shares":
            arrays, header = run.directory.load_model(run.model)
            about = {TEMPERATURE: temperature, COVERAGE: coverage.tolist()}
            run.directory.save_model(run.model, arrays, {**header, **about})
        return {
            "known_error": made.error,
            "known_error_interval": interval(made),
            "known_confusion": made.confusion.tolist(),
            "known_from": source(self.settings),
            **({"temperature": temperature} if self.settings.calibration == "shares" else {}),
            **self._misfits(run, clients),
        }

    def _read(self, flat: Floats) -> tuple[KnownError, float, Floats]:
        """A known error, the temperature, and coverage by class and margin."""
        classes = self.strategy.num_classes
        right, confusion, coverage = np.split(flat[3:], [classes, classes + classes**2])
        square = confusion.reshape(classes, classes)
        made = KnownError(float(flat[0]), float(flat[1]), square, right)
        return made, float(flat[2]), coverage.reshape(classes, -1)

    def _misfits(self, run: Finished, clients: Sequence[ClientRef]) -> dict[str, Any]:
        """Of how many owners the points do not fit; who they are is known in a simulation.

        By what clients have last said, which may be of a later model than the one that is kept.
        """
        confusion = self.state[_CONFUSION].astype(weight_type(self.settings))
        last = self.strategy.record.round
        values: dict[str, Any] = {"server-round": last}

        def ask(of: str) -> Floats:
            arrays, size = {_CONFUSION: confusion}, _MISFITS[of]
            collected, _ = self.strategy.sums.collect(run.grid, of, clients, size, arrays, values)
            return np.asarray(collected)

        try:
            odd, judged, excess, squares = ask(OF_MISFITS)
            if round(odd) == 0:
                return {"misfits": 0}
            # Half of the mean excess, in which owners count by their excess: far above that of
            # those who fit but for the wrong one among them.
            values[_LEVEL] = [squares / excess / 2]
            odd = ask(OF_FARTHEST)[0]
        except TooFewLeftError as error:
            log(WARNING, "Whether owners' points differ is not known: %s.", error)
            return {}
        which = [
            int(file.parent.name)
            for file in sorted(run.directory.memory.glob(f"*/{OF_FARTHEST}-{last}.safetensors"))
            if load_arrays_of(file)[0]["odd"]
        ]
        names = f" (clients {', '.join(map(str, which))})" if which else ""
        log(
            WARNING,
            "%s of %s clients%s: the model's predictions do not follow from their %s: other images "
            "or units, or wrong %s. Their logs say so.",
            *(round(odd), round(judged), names, *[stated(self.settings)] * 2),
        )
        return {"misfits": round(odd), "misfitting_clients": which}


def interval(made: KnownError) -> list[float]:
    """95 % interval of an error, in percent."""
    low, high = (made.error + sign * _NORMAL * made.deviation for sign in (-1, 1))
    return [max(0.0, float(low)), min(100.0, float(high))]


def stated(settings: RunConfig) -> str:
    """What owners state of their points."""
    return "class shares" if find_method(settings.method).data == "unlabeled-sets" else "labels"


def source(settings: RunConfig) -> str:
    """From what it is known."""
    what = stated(settings)
    return what if what == "labels" else f"{what}, without labels"


def in_words(made: KnownError, settings: RunConfig) -> str:
    """Such as ``14.2 % (13.1 to 15.4), from class shares, without labels``."""
    low, high = interval(made)
    return f"{made.error:.1f} % ({low:.1f} to {high:.1f}), from {source(settings)}"


def drawn_from_sets(settings: RunConfig) -> float:
    """Which part of each set is not judged: shares are of whole sets."""
    return 1 - settings[AdmissionSettings].heldout_fraction if settings.holds_out else 0.0


def chooses(settings: RunConfig) -> bool:
    """Whether it chooses the round."""
    return settings.selection == "shares"


class KnowsError(Stage):
    """The error of a model is known from what is stated of clients' points."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """Where models are judged on points that they have not learned from, and in sums.

        Noise would need a part of the budget. Points without a label take over in a refinement what
        labels say, and no label can be taken out of them again.
        """
        method = find_method(settings.method)
        noise = settings.makes_heads and settings[HeadSettings].epsilon > 0
        noise |= any(stage.noises and stage.is_on(settings) for stage in all_stages(settings))
        if noise or settings.evaluate == "local":
            return False
        if method.updates:
            return settings.holds_out
        refined = method.data != "unlabeled-sets" and settings[HeadSettings].refinements > 0
        return settings.sums_heads and not method.head and not refined

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Of class shares and predictions, and of owners that differ."""
        ends = settings.holds_out and not chooses(settings)
        often = "after the last round" if ends else "every round that is evaluated"
        says = (
            "sums over its points of class shares, their products, what the model says, how sure "
            "it is, and how near to its first class others are"
        )
        far = "how far the model's predictions are from what follows from its class shares"
        at_end = "after the last round"
        beside = frozenset({_CONFUSION})
        of_misfits = Sum.of(far, at_end, encoding=FIXED, beside=beside)
        return {
            OF_ERRORS: Sum.of(
                says, often, encoding=FIXED, beside=_BESIDE | owner_offsets.arrays_of(settings)
            ),
            OF_MISFITS: of_misfits,
            OF_FARTHEST: replace(of_misfits, undisturbed=False),  # only where some are far
        }
