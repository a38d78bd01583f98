"""Tests of the plugin run a pytest of their own."""

pytest_plugins = ["pytester"]
