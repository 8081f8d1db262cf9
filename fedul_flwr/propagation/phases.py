"""Names of XCLP's phases and of the arrays and values in their messages."""

from __future__ import annotations

COMPARE, SUM, LABEL, END = "xclp-compare", "xclp-sum", "xclp-label", "xclp-end"
"""Phases: similarities of points; sums of labels along the graph; result of the sum, if no training
message follows that can contain it; end of a propagation without a result."""

MODEL = "model/"
"""Prefix of a model's arrays in a phase's message."""

LABELED, COLUMNS, SENT, ROWS = "labeled", "columns", "sent", "rows"
"""Arrays: whether a point is labeled, columns of S, a share, rows of the sum. ``ROWS`` is also
the name of the record with them in a training message."""

FIRST, ROUND = "first", "server-round"
"""Values: whether a propagation starts, and its round."""

PARTICIPANTS, UNLABELED_POINTS, ATTEMPT = "participants", "unlabeled", "attempt"
WITHHELD = "withheld"
"""Values for a sum: its participants, the number of unlabeled points of each, the number of the
attempt, and whether this client's own labels are excluded."""

OWN_LABELS, LAST = "own-labels", "last"
"""Values with rows: whether the sum includes this client's own labels, and whether the propagation
ends with them."""
