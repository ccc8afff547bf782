"""Offers the fixture of the plugin to these tests, also where Penstock was installed before it had one."""

from penstock.pytest_plugin import penstock_harness

__all__ = ["penstock_harness"]
