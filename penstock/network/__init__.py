"""Moves bytes between slots, and between slots and the driver. Codecs, outgoing queue and handshake are sans-IO."""
