//! Training loop, hooks, optimizers, schedules and checkpoints.
