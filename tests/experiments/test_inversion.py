"""Gradient inversion by observer: pictures from messages of real runs, and the picture's formula by brute force."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from experiments.inversion.by_observer import (
    CLIP_NORM,
    COMMAND,
    PAGE,
    VIEWS,
    Study,
    fashion_mnist,
    pictures,
    transcript,
)
from experiments.inversion.estimate import CLASSES, Images, Knowledge, decibels, exact
from experiments.programs import between_markers
from h2fdp.audit.instrumented_run import observations

SUBNETS, DEVICES = 40, 5
RAW, SINGLE, SUM, ABOVE_TRUSTED, ABOVE_UNTRUSTED, _ = VIEWS
PRIVATE_VIEWS = [SINGLE, SUM, ABOVE_TRUSTED, ABOVE_UNTRUSTED]
PLAIN, WEAK, STRONG = math.inf, 100_000.0, 1.0  # epsilons
MARGIN_DB = 0.1  # of the mean over 40 images; measured: at most 0.012 at STRONG, at least 13 at WEAK
ids = [view.who for view in PRIVATE_VIEWS]


@pytest.fixture(scope="module")
def digits():
    """Private images of `SUBNETS` subnets, and what an observer knows of all others."""
    x, y = load_digits(return_X_y=True)
    x = np.rint(255 / 16 * x) / 255  # of 8 bits, as other images
    order = np.random.default_rng(1).permutation(len(y))
    private, public = order[: SUBNETS * DEVICES], order[SUBNETS * DEVICES :]
    return Images(x[private], y[private]), Knowledge.of(Images(x[public], y[public]))


@pytest.fixture(scope="module")
def heard(digits):
    """What passed, by trust and epsilon."""
    found = {}

    def passed(trust, epsilon):
        if (trust, epsilon) not in found:
            found[trust, epsilon] = transcript(digits[0], trust, DEVICES, epsilon)
        return found[trust, epsilon]

    return passed


def drawn(view, heard, digits):
    """The observer's pictures, and the originals."""
    return np.stack(list(pictures(view, heard, *digits))), digits[0].x[::DEVICES]


def gain(view, heard, digits):
    """By how many dB the observer's pictures are better than the mean images of their labels: the mean."""
    images, knowledge = digits
    found, originals = drawn(view, heard, digits)
    guesses = knowledge.means[images.y[::DEVICES]]
    return float((decibels(found, originals) - decibels(guesses, originals)).mean())


def received(view, heard):
    """The vectors of the attacked devices that an observer has, and the noise that it should have on them."""
    first = [subnet.first_device for subnet in heard.subnets]
    return list(observations(view.observer, heard, first, lambda device: device))


def test_an_untrusted_edge_server_draws_every_image_without_noise(digits, heard):
    assert exact(*drawn(SINGLE, heard("untrusted", PLAIN), digits)).all()


@pytest.mark.parametrize("epsilon", [PLAIN, STRONG])
def test_a_trusted_edge_server_draws_every_image_whatever_the_noise_above_it(digits, heard, epsilon):
    assert exact(*drawn(RAW, heard("trusted", epsilon), digits)).all()


@pytest.mark.parametrize("view", [SUM, ABOVE_TRUSTED, ABOVE_UNTRUSTED], ids=ids[1:])
def test_a_sum_of_five_without_noise_shows_the_sum_of_each_label(digits, heard, view):
    """Five images leave labels without any, and their rows are the sum of all: what is left of a row is its label's."""
    images, knowledge = digits
    found, originals = drawn(view, heard(view.trust, PLAIN), digits)
    alone = np.empty(SUBNETS, dtype=bool)
    for subnet in range(SUBNETS):
        own = np.arange(subnet * DEVICES, (subnet + 1) * DEVICES)
        own = own[images.y[own] == images.y[own[0]]]
        mean, weights = knowledge.means[images.y[own[0]]], images.shrunk(CLIP_NORM)[own]
        wanted = mean + weights[0] * (weights @ (images.x[own] - mean)) / (weights @ weights)
        np.testing.assert_allclose(found[subnet], np.clip(wanted, 0, 1), atol=1e-3)
        alone[subnet] = len(own) == 1
    assert (exact(found, originals) == alone).all()
    assert 0 < alone.sum() < SUBNETS


@pytest.mark.parametrize("view", PRIVATE_VIEWS, ids=ids)
def test_at_a_small_epsilon_a_picture_is_no_better_than_a_guess_and_at_a_large_one_it_is(digits, heard, view):
    assert gain(view, heard(view.trust, STRONG), digits) < MARGIN_DB
    assert gain(view, heard(view.trust, WEAK), digits) > 50 * MARGIN_DB


def standard_scores(vectors):
    """How many standard deviations the mean square of noise over its planned level is above 1."""
    values = np.concatenate(vectors)
    return float((np.mean(values**2) - 1) * math.sqrt(len(values) / 2))


@pytest.mark.parametrize("view", PRIVATE_VIEWS, ids=ids)
def test_what_observers_receive_has_the_planned_noise(heard, view):
    """25,600 values: right noise is refused once in a million; 2/3 and 3/2 of it are 60 standard deviations away."""
    noisy, plain = received(view, heard(view.trust, STRONG)), received(view, heard(view.trust, PLAIN))
    noises = [(a.values - b.values) / a.noise_std for a, b in zip(noisy, plain, strict=True)]
    assert abs(standard_scores(noises)) < 4.9
    for wrong in (0, 2 / 3, 3 / 2):
        assert abs(standard_scores([wrong * each for each in noises])) > 50


@pytest.mark.parametrize("view", PRIVATE_VIEWS, ids=ids)
def test_without_their_noise_these_messages_would_show_the_images(digits, heard, view):
    """An observer that takes a message for one without noise: right where there is none, else far off."""
    images, knowledge = digits
    for epsilon, sees in ((PLAIN, True), (STRONG, False)):
        ratios = []
        for seen in received(view, heard(view.trust, epsilon)):
            inside = slice(seen.device, seen.device + (1 if view is SINGLE else DEVICES))
            weights = seen.weight * images.shrunk(CLIP_NORM)[inside]
            picture = knowledge.picture(seen.values, 0.0, weights, images.y[inside])
            ratios.append(decibels(picture[None], images.x[seen.device][None])[0])
        assert (np.median(ratios) > 60) == sees
        assert (np.median(ratios) < 8) != sees


def test_under_secure_sums_the_cloud_has_what_the_edge_server_has(heard):
    passed = heard("secure-sum", STRONG)
    for subnet, seen in zip(passed.subnets, received(SUM, passed), strict=True):
        np.testing.assert_allclose(seen.values, subnet.upload, rtol=1e-4, atol=1e-3)


def test_gradient_descent_finds_the_same_image(digits, heard):
    """Zhu et al. (2019): an image whose gradient, by automatic differentiation, is the message."""
    images, _ = digits
    message, label = received(SINGLE, heard("untrusted", PLAIN))[0].values, torch.from_numpy(images.y[:1])
    target = torch.from_numpy(message / images.shrunk(CLIP_NORM)[0])
    image = torch.full((1, images.x.shape[1]), 0.5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([image], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-15)

    def mismatch():
        optimizer.zero_grad()
        model = torch.zeros(CLASSES, image.shape[1], dtype=torch.float64, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(image @ model.T, label)
        (gradient,) = torch.autograd.grad(loss, model, create_graph=True)
        distance = ((gradient.flatten() - target) ** 2).sum()
        distance.backward()
        return distance

    optimizer.step(mismatch)
    np.testing.assert_allclose(image.detach().numpy()[0], images.x[0], atol=1e-3)


@pytest.mark.parametrize("noise_std", [0.003, 0.3])
def test_the_picture_is_the_conditional_mean_of_one_large_gaussian(noise_std):
    rng = np.random.default_rng(7)
    pixels, labels, weights = 6, np.array([3, 1, 3, 8, 0]), rng.uniform(0.1, 0.3, 5)
    axes, variances = np.linalg.qr(rng.normal(size=(pixels, pixels)))[0], rng.uniform(0.01, 0.05, pixels)
    means = rng.uniform(0.4, 0.6, (CLASSES, pixels))
    covariance = axes @ np.diag(variances) @ axes.T
    # All images side by side, (5 * pixels,), and the matrix that makes the message of them.
    residuals = weights[:, None] * (1 / CLASSES - np.eye(CLASSES)[labels])  # (5, classes)
    design = np.kron(residuals.T, np.eye(pixels))
    mean, spread = means[labels].ravel(), np.kron(np.eye(len(labels)), covariance)
    truth = rng.multivariate_normal(mean, spread)
    message = design @ truth + noise_std * rng.normal(size=CLASSES * pixels)
    of_message = design @ spread @ design.T + noise_std**2 * np.eye(len(message))
    wanted = mean + spread @ design.T @ np.linalg.solve(of_message, message - design @ mean)
    found = Knowledge(means, axes, variances).picture(message, noise_std, weights, labels)
    np.testing.assert_allclose(found, wanted[:pixels], atol=1e-8)


@pytest.mark.slow
def test_the_page_has_what_the_program_writes(data_root):
    study = Study.of(*fashion_mnist(data_root), subnets=20)
    assert between_markers(PAGE.read_text(), COMMAND, study.table()) == PAGE.read_text()
