"""GRPO in plain torch and transformers, in one process or over SyncGroup: the same bits either way.

settings    one run, as figures
model       the tiny model and SmolLM2-135M; characters and tokens
task        sums with a reward that can be checked
rollout     samples of one prompt group; what travels between trainer and workers
learner     group-relative advantages, clipped ratios, AdamW
sources     where a step's rollouts come from: this process, or leased workers
training    the loop over steps, with its checkpoint
local, trainer, worker    the programs
plots       reward, lag, bytes and tokens/s as PNG and HTML
"""
