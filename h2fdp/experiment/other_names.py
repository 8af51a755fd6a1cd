"""What other programs and papers call the keys of an experiment file, so that messages can say what they are here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NAMES = {
    "training.step_size": "lr learning_rate local_lr client_lr local_learning_rate eta gamma",
    "training.intervals": "rounds round num_rounds n_rounds total_rounds global_rounds communication_rounds "
    "comm_rounds iterations global_epochs central_num_iterations num_server_rounds",
    "training.local_epochs": "epochs epoch num_epochs n_epochs local_epoch client_epochs local_num_epochs",
    "training.local_steps": "steps tau local_iterations local_updates num_local_steps max_steps",
    "training.batch_size": "batch bs local_batch_size train_batch_size minibatch_size mini_batch_size local_bs",
    "training.sampling_rate": "q sample_rate sampling_probability",
    "training.clip_norm": "clip clipping_norm clipping_bound clipping_threshold max_grad_norm max_norm l2_norm_clip "
    "clip_value grad_clip",
    "training.participation": "fraction_fit fraction_train client_fraction participation_rate frac cohort_size "
    "clients_per_round num_clients_per_round",
    "training.evaluate_every": "eval_every evaluation_frequency eval_frequency test_every",
    "training.loss": "criterion loss_fn loss_function",
    "training.weights": "weighting weighted",
    "privacy.epsilon": "eps target_epsilon epsilon_target",
    "privacy.delta": "target_delta",
    "method.privacy.noise_multiplier": "sigma noise_multiplier noise_scale noise_std z",
    "method.privacy": "dp mechanism noise",
    "method": "algorithm algo strategy aggregator fl_algorithm",
    "method.server": "server_optimizer central_optimizer",
    "method.server.server_step": "server_lr server_learning_rate global_lr central_lr",
    "method.objective.mu": "mu prox_mu proximal_mu",
    "model": "net architecture arch nn",
    "data": "dataset data_set datasets",
    "data.partition": "partitioner split distribution",
    "data.partition.dirichlet": "dirichlet dirichlet_alpha alpha",
    "data.partition.labels_per_device": "labels_per_device labels_per_client classes_per_client shards_per_client",
    "topology": "network clients num_clients n_clients devices num_devices num_users n_parties edges num_edges "
    "num_supernodes hierarchy",
    "runtime.hosts": "workers num_workers n_jobs num_processes",
    "runtime.gpus_per_host": "gpu gpus num_gpus device cuda use_cuda",
    "seed": "random_seed rng_seed random_state manual_seed",
}
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {other: ours for ours, others in _NAMES.items() for other in others.split()}
)
