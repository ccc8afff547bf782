"""The loops that feed events into the protocol and carry its effects out."""
