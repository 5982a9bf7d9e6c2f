"""Terms quote declarations in the user's own words, with the object they are on."""

from builders.gangs.declarations import koordinator_gang, koordinator_group, koordinator_pod, marked
from builders.gangs.gang import KOORDINATOR
from muster.dialects.marks import MarkSet
from muster.dialects.registry import read_gang

LIGHTWEIGHT = "pod-group.scheduling.sigs.k8s.io/"


def test_koordinators_terms_quote_pods_then_the_pod_group() -> None:
    group = koordinator_group({"minMember": 4, "scheduleTimeoutSeconds": 30}, mode="NonStrict")
    gang = koordinator_gang(
        koordinator_pod("w-1", 2, min_available="3"), koordinator_pod("w-0", 1, mode=""), definition=group
    )
    assert gang.terms == (
        f"{KOORDINATOR}min-available: 3 (pod w-1)",
        f"{KOORDINATOR}mode: '' (pod w-0)",
        f"{KOORDINATOR}mode: NonStrict (PodGroup a/A)",
        "minMember: 4 (PodGroup a/A)",
        "scheduleTimeoutSeconds: 30 (PodGroup a/A)",
    )


def test_terms_name_the_oldest_pod() -> None:
    def worker(age: int) -> MarkSet:
        labels = {f"{LIGHTWEIGHT}name": "l", f"{LIGHTWEIGHT}min-available": str(age)}
        return marked(f"w-{age}", labels=labels, created_seconds=age)

    pods = [worker(3), worker(2)]
    assert read_gang("lightweight/a/l", None, pods).terms == (f"{LIGHTWEIGHT}min-available: 2 (pod w-2)",)


def test_a_long_value_is_cut_and_lines_are_joined() -> None:
    groups = '[\n  "a/A",\n  "b/' + "B" * 100 + '"\n]'
    gang = koordinator_gang(koordinator_pod(min_available="1", groups=groups))
    (term,) = (term for term in gang.terms if "groups" in term)
    assert term == f'{KOORDINATOR}groups: [ "a/A", "b/{"B" * 51}… (pod w-0)'


def test_musters_own_annotations_are_quoted_in_every_dialect() -> None:
    own = {"muster.dev/topology": "rack: hard pack", "muster.dev/repair-policy": "Evict"}
    gang = read_gang("koordinator/a/A", None, [koordinator_pod(min_available="1"), marked("w-9", annotations=own)])
    assert gang.terms[-2:] == (
        "muster.dev/topology: rack: hard pack (pod w-9)",
        "muster.dev/repair-policy: Evict (pod w-9)",
    )
