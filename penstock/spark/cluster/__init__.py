"""Prepares Spark itself: Java, versions, modules for executors; notices its end."""
