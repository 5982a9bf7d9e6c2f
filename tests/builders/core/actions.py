"""What stories about making room do again and again: fill a cluster, stop at an effect, let pods end, see who went.

story = full(gang("v").of(4), nodes={"n": 4})
story.add(gang("p").of(4).priority(10))
plan = until_planned(story)
...  # something happens before the plan is durable
story.run_effects()
end(story)
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from builders.core.objects import GangBuilder
from builders.core.world import Story, Under
from muster.coordinator.core.effects import Persist, Solve
from muster.coordinator.core.events import Solved
from muster.gangs.facts import PodFacts, PodPhase


def crowded(nodes: dict[str, int], **budgets: int) -> Story:
    """A cluster in which evicted pods take their time, with budgets ("default/<name>") that allow so many evictions."""
    story = Story(nodes)
    story.graceful = True
    for name, allowed in budgets.items():
        story.set_budget(f"default/{name}", allowed)
    return story


def full(*gangs: GangBuilder, nodes: dict[str, int]) -> Story:
    """These gangs run, and what is evicted takes its time."""
    story = crowded(nodes)
    story.add(*gangs)
    story.run_effects()
    for built in gangs:
        assert story.bound(built.name), f"{built.name} was to run"
    return story


# -- the moment at which something is under way


def until(story: Story, kind: type[Under], such: Callable[[Any], bool] = lambda _: True) -> Under:
    """Do what is under way, in order, until there is such an effect; it stays under way."""
    while True:
        for effect in story.under_way:
            if isinstance(effect, kind) and such(effect):
                return effect
        assert story.under_way, f"all is quiet, and there was no such {kind.__name__}"
        story.do(0)


def held_back(story: Story, kind: type[Under], such: Callable[[Any], bool] = lambda _: True) -> Under:
    """The same, but the effect is under way no more: it is the test's to do."""
    effect = until(story, kind, such)
    story.under_way.remove(effect)
    return effect


def asks_for_room(solve: Solve) -> bool:
    """It is asked who is to go."""
    return bool(solve.potential_victims)


def is_plan(persist: Persist) -> bool:
    """Victims are recorded."""
    return any(record.evicting for record in persist.puts)


def until_planned(story: Story) -> Persist:
    """Somebody is to be evicted, and that is not durable yet."""
    return until(story, Persist, is_plan)


def answered(story: Story, solve: Solve) -> Solved:
    """What placement says to this now."""
    return Solved(solve.solve_id, story.solver(solve))


# -- pods that end


def ends(story: Story, *uids: str) -> None:
    """These pods are done."""
    story.change(pods=[replace(story.cluster.pods[uid], phase=PodPhase.SUCCEEDED) for uid in uids])


def all_end(story: Story) -> None:
    """Whatever runs is done."""
    ends(story, *(pod.uid for pod in story.cluster.pods.values() if pod.seated))


def brought_back(built: GangBuilder) -> list[PodFacts]:
    """Pods that the gang's owner makes in the place of those that are gone."""
    return [replace(pod, uid=f"{pod.uid}/new") for pod in built.pods()]


def end(story: Story) -> None:
    """Pods that are being deleted are gone, and what follows from that is done."""
    story.finish_deletions()
    story.run_effects()


# -- what is to be seen


def evicted(story: Story) -> set[str]:
    """Names of the gangs of which pods are on their way out."""
    return {pod.gang.rsplit("/", 1)[-1] for pod in story.cluster.pods.values() if pod.deleting}


def pods_of(story: Story, name: str) -> list[PodFacts]:
    """The gang's pods as they are by now."""
    return [pod for pod in story.cluster.pods.values() if pod.gang.endswith(f"/{name}")]


def places(story: Story, names: Iterable[str]) -> dict[str, int]:
    """How many pods of each of these gangs are bound."""
    return {name: story.bound(name) for name in names}


def reservations(story: Story, names: Iterable[str]) -> dict[str, int]:
    """How many seats each of these gangs holds."""
    return {name: len(story.gang(name).seats) for name in names}
