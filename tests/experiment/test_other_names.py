"""Keys as other programs call them: the message says which key of ours is meant."""

import pytest

import h2fdp
from h2fdp import UserError
from h2fdp.config.check import follow
from h2fdp.experiment.sections import OTHER_NAMES, ExperimentFile

IN_CHOICES = {  # keys of a choice among several, or of a topology file, which no path of the schema leads to
    "topology.cloud.trust",
    "method.privacy.noise_multiplier",
    "method.server.server_step",
    "method.objective.mu",
    "data.public",
    "data.test",
    "data.records",
    "data.validation",
    "data.partition",
    "data.partition.dirichlet",
    "data.partition.labels_per_device",
}


def refusal(**settings):
    with pytest.raises(UserError) as caught:
        h2fdp.Experiment(**settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "key", "meant"),
    [
        ({"lr": 0.1}, "lr", "training.step_size"),
        ({"training": {"lr": 0.1}}, "training.lr", "training.step_size"),
        ({"training": {"rounds": 5}}, "training.rounds", "training.intervals"),
        ({"num-clients": 5}, "num-clients", "topology"),
        ({"privacy": {"Sigma": 2.0}}, "privacy.Sigma", "method.privacy.noise_multiplier"),
        ({"sigma": 2.0}, "sigma", "method.privacy.noise_multiplier"),
        ({"training": {"clip": 1.0}}, "training.clip", "training.clip_norm"),
        ({"training": {"epsilon": 1.0}}, "training.epsilon", "privacy.epsilon"),  # a key of another section
        ({"training": {"epsilo": 1.0}}, "training.epsilo", "privacy.epsilon"),  # nearly
        ({"epsilo": 1.0}, "epsilo", "epsilon"),
        ({"training": {"step_sise": 1.0}}, "training.step_sise", "step_size"),
    ],
)
def test_a_key_of_another_program_or_section_is_told_by_its_name_here(settings, key, meant):
    assert f"{key}: unknown" in refusal(**settings)
    assert f"did you mean `{meant}`?" in refusal(**settings)


def test_the_names_lead_to_keys_that_there_are_and_are_none_themselves():
    for other, ours in OTHER_NAMES.items():
        *sections, key = ours.split(".")
        if ours not in IN_CHOICES:
            owner = follow(ExperimentFile, [*sections, key]).owner
            assert owner is not None, ours
            assert key in owner.model_fields, ours
        assert other not in ExperimentFile.model_fields
    assert {ours for ours in OTHER_NAMES.values() if ours in IN_CHOICES} == IN_CHOICES
