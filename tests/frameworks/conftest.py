"""Tests of frameworks that have an environment of their own are collected there: `./dev frameworks NAME`."""

from tests.frameworks.environments import left_out

collect_ignore = ["upstream", *left_out()]
