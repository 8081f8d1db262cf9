"""Names of XCLP's phases and of the arrays and values in their messages."""

from __future__ import annotations

COMPARE, SUM, AUDIT = "xclp-compare", "xclp-sum", "xclp-audit"
LABEL, END = "xclp-label", "xclp-end"
"""Phases: similarities of points; sums of labels along the graph; words of check rows that did not
add up to 0; result of the sum, if no training message follows that can contain it; end of a
propagation without a result."""

MODEL = "model/"
"""Prefix of a model's arrays in a phase's message."""

LABELED, COLUMNS, SENT, ROWS = "labeled", "columns", "sent", "rows"
CHECKS = "checks"
"""Arrays: whether a point is labeled, columns of S, a check row and a share, rows of the sum, words
of a check row. ``ROWS`` is also the name of the record with rows in a training message."""

NAMES, COSINES = "names", "name-cosines"
"""Arrays where names of classes are points of the graph: the names that each point is nearest to,
and their cosines; with the result, the names' influence on each unlabeled point."""

FIRST, ROUND = "first", "server-round"
"""Values: whether a propagation starts, and its round."""

PARTICIPANTS, UNLABELED_POINTS, ATTEMPT = "participants", "unlabeled", "attempt"
WITHHELD = "withheld"
"""Values for a sum: its participants, the number of unlabeled points of each, the number of the
attempt, and whether this client's own labels are excluded."""

UNOPENED = "rows-unopened"
"""Value with which a client answers its rows: whether they hold no sum, as somebody's part of it
was wrong."""

PREVIOUS_LABELS, LAST = "own-labels", "last"
"""Values with rows: whether the sum includes this client's own labels, and whether the propagation
ends with them."""
