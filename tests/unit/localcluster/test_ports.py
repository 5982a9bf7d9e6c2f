"""Ports that are given out once, whatever others do with the common source of chance."""

import random

from muster.localcluster.ports import free_port


def test_no_port_is_given_twice_although_nothing_listens_on_it() -> None:
    ports = [free_port() for _ in range(1000)]
    assert len(set(ports)) == len(ports)


def test_a_seed_of_the_common_source_does_not_choose_the_ports() -> None:
    random.seed(7)
    first = [random.randint(20_000, 32_000) for _ in range(20)]
    random.seed(7)
    assert [free_port() for _ in range(20)] != first
