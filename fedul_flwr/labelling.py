"""Runs that train nothing: clients label their own points, and a simulation scores the labels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from logging import INFO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.bridge import Arrays
from fedul_flwr.config import RunConfig
from fedul_flwr.data.label_split import LabelTruth
from fedul_flwr.data.types import UNLABELED, Floats, Ints
from fedul_flwr.results import store
from fedul_flwr.results.label_files import SOURCES, XCLP, file_name, read_labels
from fedul_flwr.results.scoring import risk_coverage, score
from fedul_flwr.server_data import ServerData
