"""Published settings of ResNet-18 on CIFAR-100 and of adapters on a language model, on few records of their shapes."""

import numpy as np
import pytest

from h2fdp import Experiment
from h2fdp.run.preview import privacy_report

FOLDER = "experiments/published_settings"


def test_flutes_resnet_has_its_parameters_and_devices(tmp_path):
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 256, (1000, 3, 32, 32), dtype=np.uint8), np.arange(1000) % 100
    np.savez(tmp_path / "cifar100.npz", x_train=x, y_train=y, x_test=x[:500], y_test=y[:500])
    data = f"data={{name: npz, path: {tmp_path / 'cifar100.npz'}, partition: iid}}"
    setup = Experiment.from_file(f"{FOLDER}/flute-cifar100.yaml", [data, "runtime.gpus_per_host=0"]).prepare()
    assert setup.initial.numel() == 11_227_812
    assert setup.config.training.taking(np.array([500])).tolist() == [10]
    assert setup.blueprint.clipping is None


def test_pfls_adapters_are_trained_on_a_frozen_base_of_16_bits_at_epsilon_2(tmp_path):
    pytest.importorskip("transformers")
    rng = np.random.default_rng(1)
    x = rng.integers(1, 50, (3300, 9))
    np.savez(tmp_path / "alpaca.npz", x_train=x[:, :8], y_train=x[:, 1:], x_test=x[:50, :8], y_test=x[:50, 1:])
    config = "vocab_size: 50, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 2"
    model = f"{{name: 'transformers:AutoModelForCausalLM', config: {{model_type: llama, {config}}}, dtype: bfloat16"
    settings = [
        f"data={{name: npz, path: {tmp_path / 'alpaca.npz'}, task: tokens, partition: iid}}",
        f"model={model}, lora: {{rank: 8, layers: [q_proj, v_proj]}}}}",
        "runtime.gpus_per_host=0",
    ]
    setup = Experiment.from_file(f"{FOLDER}/pfl-lora.yaml", settings).prepare()
    assert setup.initial.numel() == 2 * 2 * 8 * (16 + 16)
    assert privacy_report(setup)["observers"]["public"]["pld"] == pytest.approx(2.0, rel=0.02)
