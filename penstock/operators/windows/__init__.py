"""Aggregates rows and columns by windows. The kinds of windows lie in `assigners/`; the operators know none of them."""
