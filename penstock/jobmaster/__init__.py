"""Runs the JobMaster, the driver's side of a job: slots, generations, checkpoints, commits and the log, through
ports.
"""
