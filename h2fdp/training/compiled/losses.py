"""Gradients of a record's loss: in its scores, and in its features where models are compared."""

from __future__ import annotations

import math

import numpy as np

from h2fdp.training.compiled.arrays import Floats, Rules
from h2fdp.training.compiled.jit import inlined, kernel

SMOOTHED_CROSS_ENTROPY, HINGE = range(2)
_SMALLEST_LENGTH = 1e-8  # of features that are compared, as in torch's cosine similarity


@inlined
def softmax(scores: Floats) -> None:
    """In place."""
    largest = scores[0]
    for c in range(1, scores.shape[0]):
        largest = max(largest, scores[c])
    total = np.float32(0.0)
    for c in range(scores.shape[0]):
        scores[c] = math.exp(scores[c] - largest)
        total += scores[c]
    share = np.float32(1.0) / total
    for c in range(scores.shape[0]):
        scores[c] *= share


@kernel
def loss_gradient(rules: Rules, scores: Floats, label: int, delta: Floats) -> None:
    """The gradient of a record's loss in its scores (classes,)."""
    classes = scores.shape[0]
    if rules.loss == SMOOTHED_CROSS_ENTROPY:
        for c in range(classes):
            delta[c] = scores[c]
        softmax(delta)
        spread = rules.loss_value / np.float32(classes)
        for c in range(classes):
            delta[c] -= spread
        delta[label] -= np.float32(1.0) - rules.loss_value
        return
    largest = np.float32(-np.inf)
    for c in range(classes):
        if c != label:
            largest = max(largest, scores[c])
    alike = 0
    for c in range(classes):
        alike += c != label and scores[c] == largest
    over = rules.loss_value + largest - scores[label]
    share = np.float32(0.0) if over < 0.0 else np.float32(1.0)
    for c in range(classes):  # equal scores share the gradient, as torch's `amax` has it
        delta[c] = share / np.float32(alike) if c != label and scores[c] == largest else np.float32(0.0)
    delta[label] = over - over if math.isnan(over) else -share


@kernel
def _similarity(a: Floats, b: Floats) -> tuple[float, float, float]:
    """The cosine between vectors, and their lengths."""
    product, left, right = 0.0, 0.0, 0.0
    for k in range(a.shape[0]):
        product += a[k] * b[k]
        left += a[k] * a[k]
        right += b[k] * b[k]
    left, right = max(math.sqrt(left), _SMALLEST_LENGTH), max(math.sqrt(right), _SMALLEST_LENGTH)
    return product / (left * right), left, right


@kernel
def add_contrast(rules: Rules, features: Floats, received: Floats, previous: Floats, delta: Floats) -> None:
    """The gradient, in a record's features, of mu log(1 + exp((sim(., previous) - sim(., received)) / temperature))."""
    near, length, near_length = _similarity(features, received)
    far, length, far_length = _similarity(features, previous)
    weight = rules.contrast / rules.temperature / (1.0 + math.exp((near - far) / rules.temperature))
    own = np.float32(weight * (near - far) / (length * length)) if length > _SMALLEST_LENGTH else np.float32(0.0)
    to_far, to_near = np.float32(weight / (length * far_length)), np.float32(weight / (length * near_length))
    for k in range(features.shape[0]):
        delta[k] += to_far * previous[k] - to_near * received[k] + own * features[k]
