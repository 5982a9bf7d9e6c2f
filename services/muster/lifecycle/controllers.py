"""The controllers of lifecycle."""

from collections.abc import Callable
from typing import Final

from muster.lifecycle.pod_groups.controller import PodGroups
from muster.lifecycle.queue_jobs.controller import QueueJobs
from muster.lifecycle.quota.controller import Quota
from muster.lifecycle.surroundings import Controller, Surroundings

CONTROLLERS: Final[tuple[Callable[[Surroundings], Controller], ...]] = (PodGroups, QueueJobs, Quota)
"""All of them, each as what makes it."""
