"""The written-out LSTM against torch's own, and its gradients for each record."""

import torch
from torch import nn

from h2fdp.models.architectures import lstm


def test_its_scores_are_those_of_torchs_lstm():
    torch.manual_seed(0)
    ours = lstm((6,), 3, vocabulary=20, embedding=5, hidden=4)
    theirs = nn.LSTM(5, 4, batch_first=True, bidirectional=True)
    for at, suffix in enumerate(["", "_reverse"]):
        for name, value in (
            ("weight_ih", ours.inputs[at].weight),
            ("weight_hh", ours.states[at].weight),
            ("bias_ih", ours.inputs[at].bias),
            ("bias_hh", torch.zeros(16)),
        ):
            getattr(theirs, f"{name}_l0{suffix}").data = value.data
    x = torch.randint(0, 21, (7, 6))
    _, (state, _) = theirs(ours.embedding(x))
    expected = ours.scores(torch.cat(list(state), dim=1))
    torch.testing.assert_close(ours(x.float()), expected)


def test_gradients_of_single_records_are_those_of_autograd():
    model = lstm((4,), 2, vocabulary=9, embedding=3, hidden=2)
    parameters = dict(model.named_parameters())
    x, y = torch.randint(0, 10, (5, 4)).float(), torch.tensor([0, 1, 0, 1, 1])

    def loss(values, record, label):
        return nn.functional.cross_entropy(torch.func.functional_call(model, values, (record[None],)), label[None])

    found = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, x, y)
    for place in range(5):
        expected = torch.autograd.grad(loss(parameters, x[place], y[place]), list(parameters.values()))
        for ours, theirs in zip(found.values(), expected, strict=True):
            torch.testing.assert_close(ours[place], theirs)
