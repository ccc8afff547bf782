"""Offers a source of numbers in sequence."""

from penstock.connectors.generators.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
