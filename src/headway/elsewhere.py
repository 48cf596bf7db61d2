"""Names that other libraries give to Headway's settings, so that an error can point to Headway's own name."""

from __future__ import annotations

_SETTINGS = {
    "rate": "lr learning_rate local_lr local_learning_rate client_lr client_learning_rate eta step_size "
    "base_lr init_lr",
    "rate_decay": "lr_decay learning_rate_decay lr_gamma decay learning_rate_decay_gamma",
    "schedule": "scheduler lr_scheduler lr_schedule rate_schedule warmup warmup_steps warmup_rounds cosine lr_policy",
    "rounds": "num_rounds n_rounds nrounds global_rounds communication_rounds comm_rounds num_server_rounds "
    "central_num_iterations iterations num_iterations T",
    "epochs": "local_epochs local_ep num_epochs n_epochs local_num_epochs num_local_epochs client_epochs E",
    "steps": "local_steps num_local_steps local_num_steps local_iterations max_steps",
    "batch_size": "batch bs local_bs local_batch_size train_batch_size minibatch_size B",
    "clients": "num_clients n_clients total_clients num_users n_users users num_supernodes num_parties n_parties",
    "participation": "fraction frac fraction_fit fraction_train client_fraction sample_fraction sample_rate join_ratio "
    "participation_rate participation_ratio C",
    "cohort_size": "cohort clients_per_round num_clients_per_round num_sampled_clients num_join_clients "
    "min_fit_clients sample_size",
    "data": "dataset dataset_name data_name",
    "data_dir": "data_path data_folder data_root root dataset_dir",
    "partition": "partitioner split dirichlet_alpha non_iid niid iid",
    "split_seed": "partition_seed data_seed",
    "sampling": "sampler client_sampling client_selection selection",
    "weights": "weighting aggregation_weights",
    "dropout": "drop_rate dropout_rate drop_prob client_drop_rate",
    "model": "net network arch architecture model_name",
    "task": "criterion loss_fn loss_function task_type problem_type",
    "metrics": "metric metric_fn eval_metrics",
    "padding": "pad_value padding_value pad_token_id",
    "weight_decay": "wd l2 l2_reg weight_decay_rate",
    "clip": "clip_norm grad_clip clip_grad gradient_clip max_grad_norm clip_grad_norm gradient_clip_val",
    "delta": "target_delta dp_delta",
    "epsilon": "target_epsilon dp_epsilon privacy_budget max_epsilon",
    "seed": "random_seed random_state manual_seed rng_seed",
    "seeds": "num_seeds n_seeds repeats trials times num_trials",
    "eval_every": "eval_interval eval_gap eval_freq eval_frequency evaluation_frequency test_every test_interval "
    "eval_period evaluate_every",
    "eval_samples": "num_eval_samples test_samples",
    "target": "target_accuracy target_acc goal",
    "stop_at_target": "auto_break",
    "patience": "early_stopping early_stop stop_early",
    "validation": "val_fraction validation_split val_split valid_ratio",
    "device": "gpu cuda use_cuda use_gpu no_cuda device_id",
    "executor": "workers num_workers n_workers processes n_jobs num_processes backend num_cpus num_gpus parallel",
    "precision": "dtype amp fp16 mixed_precision half",
    "deterministic": "reproducible cudnn_deterministic",
    "checkpoint_every": "save_every checkpoint_interval checkpoint_freq save_gap save_interval",
    "out": "output output_dir out_dir save_dir save_path log_dir logdir results_dir save_folder_name",
    "method": "method algorithm algo alg strategy aggregator aggregation",
}
_SENTENCES = {
    "optimizer": "local steps are a slot of the method: fedavg+adamw, fedacg+muon, or your own, Method(local=…)",
    "momentum": "it is an option of a method: the server's of fedavgm:momentum=0.9, the clients' of fedavg+sgd",
    "mu": "the weight of a proximal term is an option of a method: fedprox:mu=0.01",
    "alpha": "a split's is in the partition, dirichlet:0.3; a method's is its option, feddyn:alpha=0.1",
    "server_lr": "the server's rate is an option of a method: fedavg:server_rate=1",
    "lam": "it is an option of a method, written after its name: fedacg:lam=0.9",
    "fraction_evaluate": "the server's model is scored on the test set (eval_every, eval_samples)",
    "callbacks": "they are an argument of simulate, compare and resume: callbacks=[…]",
    "noise_multiplier": "it is an option of +dp: fedavg+dp:clip=1,noise=1.2 (headway privacy finds one for an epsilon)",
    "clipping_norm": "the bound on a client's whole upload is an option of +dp: fedavg+dp:clip=1,noise=1.2",
}
_SAME = {
    "optimizer": "optimiser local_optimizer client_optimizer local_optimiser client_optimiser optim opt",
    "momentum": "local_momentum client_momentum server_momentum sgd_momentum",
    "mu": "prox_mu proximal_mu fedprox_mu proximal_term",
    "server_lr": "server_learning_rate global_lr global_learning_rate eta_g server_rate "
    "central_lr central_learning_rate",
    "lam": "beta gamma temperature bits tau rho",
    "fraction_evaluate": "fraction_eval min_evaluate_clients",
    "callbacks": "callback",
    "noise_multiplier": "noise dp_noise sigma noise_scale server_noise",
    "clipping_norm": "l2_norm_clip dp_clip clipping_threshold client_clip",
}
SETTINGS = {word: ours for ours, words in _SETTINGS.items() for word in words.split()}
"""Headway's name of a setting or argument, by its name in other libraries."""
SENTENCES = _SENTENCES | {word: _SENTENCES[ours] for ours, words in _SAME.items() for word in words.split()}
"""What to do instead, by the name of a setting of other libraries that Headway does not have."""


def pointer(name: str, *, flag: bool = False) -> str | None:
    """What an error says about a name of another library: Headway's name, or what to do instead; None if unknown.

    `flag`: the name was typed as a flag on the command line.
    """
    plain = name.lstrip("-").replace("-", "_")
    plain = plain if plain in SETTINGS else plain.lower()
    ours = SETTINGS.get(plain)
    if ours == "method":
        return "the method is the first argument, such as fedavg or fedacg:lam=0.9"
    if ours is not None:
        return f"Headway's name for it is {'--' + ours.replace('_', '-') if flag else ours}"
    return SENTENCES.get(plain)
