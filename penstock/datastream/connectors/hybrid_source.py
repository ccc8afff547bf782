"""Offers the source that reads several sources, one after the other."""

from penstock.connectors.hybrid.hybrid_source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
