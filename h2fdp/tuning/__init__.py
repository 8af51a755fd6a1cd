"""Tuning: a search for the best values of keys, what it may reveal included."""

from h2fdp.tuning.results import Tuned as Tuned
from h2fdp.tuning.search import tune as tune
