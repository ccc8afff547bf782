"""The JobMaster: the driver's side of a job. Slots, generations, checkpoints, commits and the log,
carried out through ports."""
