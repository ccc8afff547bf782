"""Offers tests of pipelines without Spark and Java: `Harness`, and `verify_operator`, which interrupts a function."""

from penstock.common.program.failures import OperatorFailure
from penstock.common.watermark_strategy import Watermark
from penstock.testing.harness import Harness, Input, Output
from penstock.testing.verifying import Advance, At, verify_operator

__all__ = ["Advance", "At", "Harness", "Input", "OperatorFailure", "Output", "Watermark", "verify_operator"]
