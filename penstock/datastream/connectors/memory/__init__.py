"""Sources and sinks that hold their rows in memory."""
