"""Local training, augmentation, losses, and device and precision of a process.

What methods use of it is imported on first use, as it needs torch.
"""

from typing import TYPE_CHECKING

from fedul_flwr.lazy import door

if TYPE_CHECKING:
    from fedul_flwr.learning.batch_statistics import *
    from fedul_flwr.learning.batches import *
    from fedul_flwr.learning.consistency import *
    from fedul_flwr.learning.device import *
    from fedul_flwr.learning.disjoint import *
    from fedul_flwr.learning.dropout import *
    from fedul_flwr.learning.fix_mix import *
    from fedul_flwr.learning.helpers import *
    from fedul_flwr.learning.local import *
    from fedul_flwr.learning.matching import *
    from fedul_flwr.learning.network import *
    from fedul_flwr.learning.plan import *
    from fedul_flwr.learning.proportions import *
    from fedul_flwr.learning.proxies import *
    from fedul_flwr.learning.pseudo_labels import *
    from fedul_flwr.learning.scaffold import *
    from fedul_flwr.learning.views import *

_MODULES = {
    "batch_statistics": "norm_statistics num_statistic_batches statistic_names",
    "batches": "bag_batches fix_mix_batches num_batches paired_batches "
    "point_batches repeated_batches set_batches",
    "consistency": "ConsistencyObjective MeanTeacherObjective fixmatch_loss "
    "uda_loss virtual_adversarial_loss",
    "device": "move_model release_freed_memory retain_freed_memory",
    "disjoint": "Decomposed DisjointLoss Penalties no_consistency train_disjoint",
    "dropout": "with_dropout",
    "fix_mix": "FixMixLoss aligned class_factors select",
    "helpers": "HelperChoice InterClientConsistency",
    "local": "dump_arrays extract_features features_and_logits load_arrays "
    "local_normalizer pixel_features predict_logits train_local",
    "matching": "MatchingObjective SageObjective annealed_cross_entropy "
    "threshold_for top_probabilities",
    "network": "Network frozen_statistics",
    "plan": "LocalPlan local_plan plateau ramp_up signal_threshold",
    "proportions": "CountLoss ProportionLoss assign_set assign_sets bags_of over_bags",
    "proxies": "ProxyObjective trained_rows",
    "pseudo_labels": "FixMixObjective PseudoLabels WeightedPoints "
    "network_labels released_network_labels scaled_cross_entropy weighted_points "
    "weighted_task",
    "scaffold": "train_with_variates",
    "views": "augmented_view fixed_strong_view strong_view weak_view",
}
__getattr__ = door(__name__, _MODULES)
