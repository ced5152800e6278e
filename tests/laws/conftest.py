"""The laws play with budgets and with costs that are not known: they need no warning of that."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.filterwarnings("ignore:session .* has a limit of spend, but the cost"))
