"""Admission and reservations by a namespace's quota account."""

from typing import Any

import pytest

from builders.lifecycle.quota import TEAM, QuotaReplica, counted, group, limit, observed, units, usage
from muster.gangs.quantity import NANOS_PER_UNIT
from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import PodTraits, ScopeRequirement
from muster.lifecycle.quota.accounting import ADMITTED_SECONDS, IDLE_SECONDS, LedgerFull, QuotaAccount
from muster.lifecycle.quota.ledger import MAX_ADMITTED, Ledger, decode_ledger, encode_ledger
from muster.lifecycle.quota.messages import exceeded, rejection
from muster.lifecycle.quota.usage import QuotaLimit


def test_pods_may_use_the_whole_quota_without_reservations() -> None:
    replica = QuotaReplica(observed(limit(cpu=4)))
    assert replica.admit_all("abcde", cpu=1) == [True, True, True, True, False]


def test_reserved_quota_is_not_available_to_other_pods() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=10), train))
    assert replica.reserve(train)
    assert replica.admit_all("abcde", cpu=1) == [True, True, True, True, False]
    assert replica.in_use() == 10


def test_the_groups_pods_use_its_reservation() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=10), train))
    replica.admit_all("abcd", cpu=1)
    assert replica.reserve(train)
    assert replica.admit_all(["t0", "t1", "t2"], train, cpu=2) == [True, True, True]
    assert replica.in_use() == 10


def test_pods_beyond_the_total_are_like_others() -> None:
    train = group(cpu=2)
    replica = QuotaReplica(observed(limit(cpu=4), train))
    replica.reserve(train)
    assert replica.admit_all(["t0", "t1", "t2", "t3", "t4"], train, cpu=1) == [True] * 4 + [False]


def test_a_group_that_does_not_fit_gets_nothing_and_none_of_its_pods_in() -> None:
    train = group(cpu=8)
    replica = QuotaReplica(observed(limit(cpu=10), train, counted("other", cpu=3)))
    assert not replica.reserve(train)
    assert not replica.admit("t0", train, cpu=1)
    assert replica.in_use() == 3
    assert replica.admit("another", cpu=7)


def test_the_first_pod_of_a_group_reserves_for_all_of_them() -> None:
    train = group(cpu=8)
    replica = QuotaReplica(observed(limit(cpu=10), train))
    assert replica.admit("t0", train, cpu=1)
    assert replica.in_use() == 8
    assert not replica.admit("other", cpu=3)


def test_pods_older_than_their_group_count_toward_it() -> None:
    train = group(cpu=8)
    replica = QuotaReplica(observed(limit(cpu=8), train, counted("t0", of=train.id, cpu=3)))
    assert replica.reserve(train)
    assert replica.in_use() == 8


def test_two_groups_that_need_more_than_half_do_not_both_start() -> None:
    one, other = group("one", cpu=6), group("other", cpu=6)
    replica = QuotaReplica(observed(limit(cpu=10), one, other))
    assert (replica.admit("a0", one, cpu=3), replica.admit("b0", other, cpu=3)) == (True, False)
    assert replica.admit("a1", one, cpu=3)


def test_succeeded_pods_return_their_share_and_failed_ones_keep_it() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(
        observed(limit(cpu=6), train, *(counted(f"t{each}", of=train.id, cpu=2) for each in range(3)))
    )
    replica.reserve(train)
    replica.observed.put(counted("t0", of=train.id, ended="Succeeded", revision=2, cpu=2))
    replica.settle()
    assert replica.in_use() == 4
    replica.observed.put(counted("t1", of=train.id, ended="Failed", revision=3, cpu=2))
    replica.settle()
    assert replica.in_use() == 4
    assert not replica.admit("other", cpu=3)
    assert replica.admit("t1-again", train, cpu=2)


def test_a_succeeded_pod_returns_its_share_exactly_once() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=6), train, counted("live", of=train.id, cpu=2)))
    replica.reserve(train)
    replica.observed.put(counted("t0", of=train.id, ended="Succeeded", revision=2, cpu=2))
    for _ in range(3):
        replica.settle()
    assert replica.ledger.observed_revision == 2, "who has not seen it end must not decide by this ledger"
    replica.observed.remove("t0", 3)
    for _ in range(3):
        replica.settle()
    assert replica.in_use() == 4


def test_a_group_whose_pods_have_all_ended_releases_the_rest_after_a_while() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=6), train, counted("t0", of=train.id, ended="Failed", cpu=2)))
    replica.reserve(train)
    replica.settle()
    assert replica.in_use() == 6
    assert replica.account.next_change_seconds() == IDLE_SECONDS
    replica.now += IDLE_SECONDS
    replica.settle()
    assert replica.in_use() == 0
    assert replica.account.next_change_seconds() is None
    assert replica.reserve(train), "it has ended: nothing is reserved for it again"
    assert replica.in_use() == 0
    assert replica.admit("t0-again", train, cpu=2)
    assert replica.in_use() == 6


def test_a_finished_group_that_does_not_fit_any_more_waits() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=6), train, counted("t0", of=train.id, ended="Failed", cpu=2)))
    replica.reserve(train)
    replica.settle()
    replica.now += IDLE_SECONDS
    replica.settle()
    replica.admit("other", cpu=1)
    assert not replica.admit("t0-again", train, cpu=2)
    assert replica.account.reservation(train.id) is None
    assert not replica.reserve(train)


def test_pods_on_their_way_keep_a_group_from_being_taken_for_ended() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=6), train, counted("t0", of=train.id, ended="Failed", cpu=2)))
    replica.admit("t1", train, cpu=2)
    replica.settle()
    replica.now += IDLE_SECONDS
    replica.settle()
    assert replica.in_use() == 6


def test_deleted_groups_lose_reservations_but_unobserved_ones_keep_them() -> None:
    train = group(cpu=6, revision=40)
    replica = QuotaReplica(observed(limit(cpu=6), train))
    replica.reserve(train)
    del replica.observed.groups[train.id]
    account = replica.account
    account.drop_deleted_groups({"kube-batch": 39})
    assert account.reservation(train.id) is not None
    account.drop_deleted_groups({"kube-batch": 40})
    assert account.reservation(train.id) is None


def test_a_group_of_the_same_name_is_another_one() -> None:
    first, second = group(cpu=6, uid="1"), group(cpu=2, uid="2")
    replica = QuotaReplica(observed(limit(cpu=6), first))
    replica.reserve(first)
    replica.observed.groups[first.id] = second
    assert replica.reserve(second)
    assert replica.in_use() == 2


def test_a_changed_total_is_reserved_if_it_fits() -> None:
    replica = QuotaReplica(observed(limit(cpu=6), group(cpu=4)))
    assert replica.reserve(group(cpu=4))
    assert not replica.reserve(group(cpu=7))
    assert replica.in_use() == 4
    assert replica.reserve(group(cpu=5))
    assert replica.in_use() == 5


def test_an_admitted_pod_counts_once_and_expires_if_never_created() -> None:
    replica = QuotaReplica(observed(limit(cpu=4)))
    replica.admit_all("ab", cpu=2)
    replica.observed.put(counted("a", revision=7, cpu=2))
    assert replica.in_use() == 4
    replica.settle()
    assert (replica.ledger.observed_revision, list(replica.ledger.admitted)) == (7, ["b"])
    replica.now += ADMITTED_SECONDS - 1
    replica.settle()
    assert replica.in_use() == 4
    replica.now += 1
    replica.settle()
    assert replica.in_use() == 2


def test_an_admitted_pod_that_was_deleted_does_not_count() -> None:
    replica = QuotaReplica(observed(limit(cpu=4)))
    replica.admit("a", cpu=4)
    replica.observed.put(counted("a", revision=7, cpu=4))
    replica.observed.remove("a", 8)
    replica.settle()
    assert replica.in_use() == 0
    assert replica.ledger.observed_revision >= 7


def test_attempts_of_one_name_count_as_one_pod() -> None:
    replica = QuotaReplica(observed(limit(cpu=4)))
    for uid in ("first", "second"):
        account = replica.account
        assert account.admit(uid, "same", usage(cpu=2), None) is None
        replica.ledger = account.ledger
    assert replica.in_use() == 2
    replica.observed.put(counted("first", revision=3, cpu=2))
    replica.settle()
    assert (replica.in_use(), replica.ledger.admitted) == (2, {})


def test_a_retry_by_the_same_name_is_admitted_when_the_first_used_the_quota() -> None:
    replica = QuotaReplica(observed(limit(cpu=4)))
    assert replica.admit_all(["same", "same", "same"], cpu=3) == [True] * 3
    assert not replica.admit("same", cpu=5)
    assert not replica.admit("other", cpu=2)


def test_a_pod_with_an_existing_name_uses_no_further_quota() -> None:
    replica = QuotaReplica(observed(limit(cpu=4), counted("used", cpu=2)))
    account = replica.account
    assert account.admit("second", "used", usage(cpu=2), None) is None
    replica.ledger = account.ledger
    assert replica.in_use() == 2
    assert replica.admit("other", cpu=2)


def test_pods_that_the_api_server_would_reject_are_not_admitted() -> None:
    late = QuotaLimit("team", units(cpu=4), reported_used=units(cpu=3))
    replica = QuotaReplica(observed(late))
    assert not replica.admit("a", cpu=2)
    assert replica.ledger.empty
    assert replica.admit("b", cpu=1)


def test_a_dry_run_leaves_no_trace() -> None:
    train = group(cpu=2)
    account = QuotaAccount(observed(limit(cpu=4), train), Ledger(), 0.0)
    assert account.admit("a", "a", usage(cpu=1), train, record=False) is None
    assert account.ledger.empty


def test_quotas_with_scopes_are_about_some_pods() -> None:
    high = limit("high", ScopeRequirement("PriorityClass", "In", ["high"]), pods=1)
    replica = QuotaReplica(observed(high, limit(cpu=9)))
    account = replica.account
    of_class = PodTraits(priority_class="high")
    assert account.admit("a", "a", usage(of_class, cpu=1), None) is None
    assert account.admit("b", "b", usage(of_class, cpu=1), None) is not None
    assert account.admit("c", "c", usage(cpu=1), None) is None


def test_only_requested_resources_can_be_short() -> None:
    replica = QuotaReplica(observed(limit(cpu=1, memory=1), counted("full", cpu=2)))
    assert replica.admit("a", memory=1)
    assert not replica.admit("b", cpu=1)


def test_no_more_pods_than_can_be_noted_are_on_their_way() -> None:
    account = QuotaAccount(observed(limit(pods=10**6)), Ledger(), 0.0)
    for each in range(MAX_ADMITTED):
        account.admit(f"u{each}", f"p{each}", usage(), None)
    with pytest.raises(LedgerFull, match="are not observed yet: try again"):
        account.admit("one", "more", usage(), None)


def test_rejections_name_the_groups_with_reservations() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=10), train, counted("t0", of=train.id, cpu=1)))
    replica.reserve(train)
    shortage = replica.account.admit("a", "a", usage(cpu=5), None)
    assert shortage is not None
    assert rejection(None, shortage) == (
        "exceeded quota: team, requested: cpu=5, used: cpu=6, limited: cpu=10 "
        "(used includes reservations: cpu=5 for PodGroup train)"
    )


def test_a_waiting_groups_condition_names_the_shortage() -> None:
    train = group(cpu=12)
    shortage = QuotaReplica(observed(limit(cpu=10))).account.reserve(train)
    assert shortage is not None
    assert exceeded(train, shortage).message == (
        'spec.totalResources of PodGroup "ml/train" does not fit: exceeded quota: team, requested: cpu=12, '
        "used: cpu=0, limited: cpu=10 (more than the whole quota)"
    )


def test_a_ledger_is_read_as_it_was_written() -> None:
    train = group(cpu=6)
    replica = QuotaReplica(observed(limit(cpu=9), train, counted("t0", of=train.id, ended="Succeeded", cpu=1)))
    replica.admit("t1", train, cpu=2)
    replica.admit("other", cpu=1)
    replica.settle()
    assert decode_ledger(encode_ledger(replica.ledger)) == replica.ledger
    assert TEAM in replica.ledger.reservations
    assert dict(replica.ledger.reservations[TEAM].returned)["cpu"] == NANOS_PER_UNIT


class CountingAccount(QuotaAccount):
    """Counts how often the amounts of a group are looked at."""

    looked_at = 0

    def _held(self, *arguments: Any, **keywords: Any) -> Nanos:
        self.looked_at += 1
        return super()._held(*arguments, **keywords)


def test_i12_a_decision_costs_as_much_however_many_groups_have_reservations() -> None:
    groups = [group(f"g{number:03}", cpu=1) for number in range(400)]
    account = CountingAccount(observed(limit(cpu=100), *groups), Ledger(), 1000.0)
    shortages = [account.reserve(each) for each in groups]
    assert shortages.count(None) == 100
    assert account.looked_at < 10 * len(groups)


def test_sums_follow_all_decisions() -> None:
    groups = [group(f"g{number}", cpu=3) for number in range(5)]
    seen = observed(limit(cpu=10), limit("other", cpu=9), *groups, counted("old", of=groups[0].id, cpu=4))
    account = QuotaAccount(seen, Ledger(), 1000.0)
    for number, each in enumerate(groups):
        account.reserve(each)
        account.admit(f"p{number}", f"p{number}", usage(cpu=1), each)
        account.admit(f"q{number}", f"q{number}", usage(cpu=1), None)
    del seen.groups[groups[0].id]
    account.drop_deleted_groups({"kube-batch": 10})
    for quota in seen.limits.values():
        assert account.in_use(quota) == account._sum(quota)
