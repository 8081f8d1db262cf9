"""All that a method imports: its two sides, its settings, and what they declare.

A method's settings are a :class:`Settings`, its server a :class:`Strategy`, its clients a
:class:`Client`, whose :class:`Task` of a round has batches and a loss; a :class:`Method` names the
three. docs/own-method.md has an example and every rule. Behind the first names are parts that the
methods of this package share; importing none of them imports torch.
"""

from typing import TYPE_CHECKING, Any

from fedul_flwr.config.base import ADAPTIVE, AUTO, OR_ADAPTIVE, Settings, only_with, only_without
from fedul_flwr.config.method_settings import (
    AdaptiveConfidence,
    AdmissionSettings,
    Confidence,
    FedULSettings,
    LabelSettings,
    LabelsOnlySettings,
    LabelSourceSettings,
    PropagationSettings,
    PseudoLabelSettings,
    ScenarioSettings,
    ServerTrainingSettings,
    StageSettings,
    StrongViewSettings,
    SupervisedPartSettings,
    SupervisedSettings,
    UnlabeledSetSettings,
    ViewSettings,
    WeakViewSettings,
    Weight,
    XCLPSettings,
)
from fedul_flwr.config.methods import MATCHING, Method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings, HeadSettings
from fedul_flwr.config.shared import MORE_THAN_MODELS, SIMULATED, UNWEIGHTED
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import (
    CONFIDENT_SHARE,
    UNLABELED,
    Arrays,
    Bools,
    Content,
    Floats,
    Inputs,
    Ints,
    LabeledPoints,
    Propagated,
    Value,
    below,
    count,
    l2_norm,
    number,
    numbers,
)
from fedul_flwr.errors import (
    BadMessageError,
    NothingToLearnError,
    NoUpdateError,
    OwnDataError,
    UserError,
)
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import (
    AnySetsData,
    ClientData,
    ClientState,
    PartlyLabeledData,
    PointShares,
    UnlabeledSetData,
    part_of_step,
)
from fedul_flwr.federated.clients import (
    ClientPolicy,
    ClientReport,
    LabeledClientStages,
    LabelStages,
    SetAdmission,
)
from fedul_flwr.federated.grid import RoundRecord
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DIAGNOSTICS,
    METRICS,
    NORMALIZER,
    NUM_POINTS,
    SETUP,
    WEIGHT,
    array_record,
    metric,
    payload_parts,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.messages import PART as SUM_PART
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import (
    ANY,
    AVERAGED,
    CONFIDENT,
    EVERY_ROUND,
    HOW_TRAINING_WENT,
    MODEL,
    STEPS,
    WEIGHTS,
    Declared,
    Part,
    Payload,
    Summed,
    all_of,
    summed_part,
)
from fedul_flwr.federated.secure_sum import from_steps, in_steps
from fedul_flwr.federated.stage import ClientStage, RoundAtServer, ServerStage, Stage
from fedul_flwr.federated.stages.heads import last_layer
from fedul_flwr.federated.strategy import (
    CLASS_COUNTS,
    CLASS_SHARES,
    NO_TURNS,
    NOT_ALONE,
    ROBUST,
    ClassShareStrategy,
    Strategy,
    class_counts,
    require,
)
from fedul_flwr.federated.updates import (
    UpdateCodec,
    average_buffers,
    check_update,
    mix,
)
from fedul_flwr.learning.task import Batch, Batches, Loss, Records, Report, Round, Task, on_logits

if TYPE_CHECKING:
    from fedul_flwr.learning.network import Network


def __getattr__(name: str) -> Any:
    if name != "Network":  # it needs torch, which a list of methods does not
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedul_flwr.learning.network import Network

    return Network
