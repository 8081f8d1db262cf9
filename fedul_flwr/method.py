"""All that a method imports: its two sides, its settings, and what they declare.

A method's settings are a :class:`Settings`, its server a :class:`Strategy`, its clients a
:class:`Client`, whose :class:`Task` of a round has batches and a loss; a :class:`Method` names the
three. docs/own-method.md has an example and every rule. Behind the first names are parts that the
methods of this package share; importing none of them imports torch.
"""

from typing import TYPE_CHECKING, Any

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.config.base import ADAPTIVE, Settings, only_with, only_without
from fedul_flwr.config.method_settings import (
    AdaptiveConfidence,
    AdmissionSettings,
    Confidence,
    FedULSettings,
    LabelSettings,
    PseudoLabelSettings,
    ScenarioSettings,
    ServerTrainingSettings,
    StageSettings,
    SupervisedPartSettings,
    WeakViewSettings,
)
from fedul_flwr.config.methods import MATCHING, Method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import CONFIDENT_SHARE, UNLABELED, Content, Value, number
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.bases import ROBUST
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import AnySetsData, PartlyLabeledData, UnlabeledSetData
from fedul_flwr.federated.messages import ARRAYS, NUM_POINTS, to_arrays, to_record
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import CONFIDENT, Part, Sum, all_of
from fedul_flwr.federated.policies import ClientPolicy, LabeledClientStages, LabelStages
from fedul_flwr.federated.semi_supervised import SemiSupervisedClient
from fedul_flwr.federated.stage import (
    ClientStage,
    RoundAtServer,
    ServerStage,
    Stage,
    are_hidden,
)
from fedul_flwr.federated.strategy import NOT_ALONE, Strategy
from fedul_flwr.learning.task import Batch, Batches, Round, Task, on_logits

if TYPE_CHECKING:
    from fedul_flwr.learning.network import Network


def __getattr__(name: str) -> Any:
    if name != "Network":  # it needs torch, which a list of methods does not
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedul_flwr.learning.network import Network

    return Network
