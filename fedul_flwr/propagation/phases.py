"""Names of XCLP's phases and of what travels in them."""

from __future__ import annotations

COMPARE, SUM, LABEL, END = "xclp-compare", "xclp-sum", "xclp-label", "xclp-end"
"""Phases: similarities of points; labels summed along the graph; where no training message follows
that could carry it, what comes of the sum; and that a propagation has ended without one."""

MODEL = "model/"
"""Prefix of the arrays of a model among those of a phase."""

LABELED, COLUMNS, SENT, ROWS = "labeled", "columns", "sent", "rows"
"""Arrays: whether a point is labeled, columns of S, a share, rows of the sum. ``ROWS`` is also the
record of a training message that holds them."""

FIRST, ROUND = "first", "server-round"
"""Values: whether a propagation begins, and which it is."""

PARTICIPANTS, UNLABELED_POINTS, ATTEMPT = "participants", "unlabeled", "attempt"
WITHHELD = "withheld"
"""Values with a sum: its participants, unlabeled points of each, which attempt it is, and whether
this client's own labels are left out."""

OWN_LABELS, LAST = "own-labels", "last"
"""Values with rows: whether this client's own labels had a part in the sum, and whether the
propagation ends with them."""
