"""Inter-pod rules: pod affinity, anti-affinity and topology spread, decoded from raw JSON.

matchLabelKeys and mismatchLabelKeys are merged into the selectors. The API server does so for affinity at creation;
doing it again changes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.byte_cache import cached_by_bytes
from muster.gangs.facts import PodTerm, PreferredPodTerm, SpreadConstraint
from muster.gangs.quoting import quoted
from muster.gangs.selectors import Operator, PodSelector, Requirement, pod_selector
from muster.kube.objects import NOTHING, Int32, decode_field
from muster.kube.selectors import BadSelector, label_selector

MAX_TERMS: Final = 100
"""Terms of pod affinity and anti-affinity, and spread constraints, of one pod: each is matched with all pods."""

_CACHE_BYTES: Final = 4 * 1024 * 1024

S = TypeVar("S", bound=Struct)


class _Term(Struct, frozen=True, rename="camel"):
    label_selector: Raw = NOTHING
    namespaces: list[str] | None = None
    namespace_selector: Raw = NOTHING
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class _Weighted(Struct, frozen=True, rename="camel"):
    weight: int = 0
    pod_affinity_term: _Term = _Term()


class _Terms(Struct, frozen=True):
    required: list[_Term] | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[_Weighted] | None = field(default=None, name="preferredDuringSchedulingIgnoredDuringExecution")


class _Affinity(Struct, frozen=True, rename="camel"):
    pod_affinity: _Terms | None = None
    pod_anti_affinity: _Terms | None = None


class _Spread(Struct, frozen=True, rename="camel"):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: Raw = NOTHING
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class InterPodRules(Struct, frozen=True):
    """The inter-pod rules of a pod class, and the selectors to which they refer, each once."""

    required_affinity: tuple[PodTerm, ...] = ()
    required_anti_affinity: tuple[PodTerm, ...] = ()
    preferred: tuple[PreferredPodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    selectors: tuple[PodSelector, ...] = ()


def may_have_pod_terms(affinity: bytes) -> bool:
    """Whether an affinity may have pod terms; if not, it need not be decoded for them."""
    return b'"podA' in affinity  # podAffinity or podAntiAffinity


def shared_label_keys(affinity: bytes, spread: bytes) -> tuple[str, ...]:
    """Keys of the pod's own labels to which these fields of its spec refer."""
    return _shared_label_keys((affinity, spread))


@cached_by_bytes(_CACHE_BYTES)
def _shared_label_keys(fields: tuple[bytes, bytes]) -> tuple[str, ...]:
    affinity, spread = fields
    given, spreads = _read_affinity(affinity, []), _read_spreads(spread, [])
    found: set[str] = set()
    for terms in (given.pod_affinity or _Terms(), given.pod_anti_affinity or _Terms()):
        for term in (*(terms.required or ()), *(each.pod_affinity_term for each in terms.preferred or ())):
            found.update(term.match_label_keys or (), term.mismatch_label_keys or ())
    for spread_ in spreads:
        found.update(spread_.match_label_keys or ())
    return tuple(sorted(found))


def inter_pod_rules(
    affinity: bytes, spread: bytes, namespace: str, labels: Mapping[str, str], problems: list[str], *, ours: bool
) -> InterPodRules:
    """Decode affinity and topologySpreadConstraints of a pod in a namespace; empty where absent.

    Of `labels` only those with shared_label_keys are used. For pods that are not `ours` only the required
    anti-affinity is decoded. Malformed parts are added to `problems` and skipped.
    """
    return _RuleDecoder(namespace, labels, problems).of(
        _read_affinity(affinity, problems), _read_spreads(spread, problems) if ours else [], ours=ours
    )


class _RuleDecoder:
    """Decodes the rules of one pod."""

    def __init__(self, namespace: str, labels: Mapping[str, str], problems: list[str]) -> None:
        self._namespace = namespace
        self._labels = labels
        self._problems = problems
        self._selectors: dict[str, PodSelector] = {}

    def of(self, affinity: _Affinity, spreads: list[_Spread], *, ours: bool) -> InterPodRules:
        near, apart = affinity.pod_affinity or _Terms(), affinity.pod_anti_affinity or _Terms()
        rules = (near.required, near.preferred, apart.required, apart.preferred, spreads)
        count = sum(len(each) for each in rules if each)
        if count > MAX_TERMS:
            self._add_problem(
                f"it has {count} terms of pod affinity and topologySpreadConstraints: at most {MAX_TERMS} are supported"
            )
            return InterPodRules()
        anti = _ordered(self._terms(apart.required or (), "podAntiAffinity"))
        if not ours:
            return InterPodRules(required_anti_affinity=anti, selectors=tuple(self._selectors.values()))
        return InterPodRules(
            required_affinity=_ordered(self._terms(near.required or (), "podAffinity")),
            required_anti_affinity=anti,
            preferred=_sorted(
                [
                    *self._preferred(near.preferred or (), "podAffinity", 1),
                    *self._preferred(apart.preferred or (), "podAntiAffinity", -1),
                ]
            ),
            spread=_ordered(self._spread(spreads)),
            selectors=tuple(self._selectors.values()),
        )

    def _terms(self, terms: Iterable[_Term], where: str) -> Iterable[PodTerm]:
        for each in terms:
            if (term := self._term(each, where)) is not None:
                yield term

    def _preferred(self, wishes: Iterable[_Weighted], where: str, sign: int) -> Iterable[PreferredPodTerm]:
        for wish in wishes:
            if not 1 <= wish.weight <= 100:
                self._add_problem(f"preferred {where} has weight {wish.weight}: it must be 1 to 100")
            elif (term := self._term(wish.pod_affinity_term, where)) is not None:
                yield PreferredPodTerm(sign * wish.weight, term)

    def _term(self, term: _Term, where: str) -> PodTerm | None:
        if not term.topology_key:
            self._add_problem(f"a term of {where} has no topologyKey: it must be the key of a node label")
            return None
        try:
            labels = label_selector(bytes(term.label_selector))
            namespace_labels = label_selector(bytes(term.namespace_selector))
        except BadSelector as error:
            self._add_problem(f"{where}: {error}")
            return None
        shared = self._shared(term.match_label_keys, Operator.IN)
        unlike = self._shared(term.mismatch_label_keys, Operator.NOT_IN)
        namespaces = term.namespaces or []
        if not namespaces and bytes(term.namespace_selector) in (b"", b"null"):
            namespaces = [self._namespace]
        selector = pod_selector(labels.narrowed([*shared, *unlike]), namespaces, namespace_labels)
        return PodTerm(self._named(selector), term.topology_key)

    def _spread(self, spreads: Iterable[_Spread]) -> Iterable[SpreadConstraint]:
        for each in spreads:
            problem = _spread_problem(each)
            if problem:
                self._add_problem(f"a topologySpreadConstraint {problem}")
                continue
            try:
                labels = label_selector(bytes(each.label_selector))
            except BadSelector as error:
                self._add_problem(f"topologySpreadConstraints: {error}")
                continue
            labels = labels.narrowed(self._shared(each.match_label_keys, Operator.IN))
            yield SpreadConstraint(
                each.max_skew,
                each.topology_key,
                self._named(pod_selector(labels, [self._namespace])),
                each.when_unsatisfiable == "DoNotSchedule",
                1 if each.min_domains is None else each.min_domains,
                each.node_affinity_policy == "Ignore",
                each.node_taints_policy == "Honor",
            )

    def _shared(self, keys: list[str] | None, operator: Operator) -> list[Requirement]:
        """Requirements from the pod's own values of these labels; absent labels add none."""
        return [Requirement(key, operator, (self._labels[key],)) for key in keys or () if key in self._labels]

    def _named(self, selector: PodSelector) -> str:
        return self._selectors.setdefault(selector.id, selector).id

    def _add_problem(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


def _spread_problem(spread: _Spread) -> str:
    if spread.max_skew < 1:
        return f"has maxSkew {spread.max_skew}: it must be at least 1"
    if not spread.topology_key:
        return "has no topologyKey: it must be the key of a node label"
    if spread.min_domains is not None and spread.min_domains < 1:
        return f"has minDomains {spread.min_domains}: it must be at least 1"
    if spread.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        return f"has whenUnsatisfiable {quoted(spread.when_unsatisfiable)}: it must be DoNotSchedule or ScheduleAnyway"
    for name, policy in (
        ("nodeAffinityPolicy", spread.node_affinity_policy),
        ("nodeTaintsPolicy", spread.node_taints_policy),
    ):
        if policy not in (None, "Honor", "Ignore"):
            return f"has {name} {quoted(policy)}: it must be Honor or Ignore"
    return ""


def _read_affinity(raw: bytes, problems: list[str]) -> _Affinity:
    return (
        (decode_field(raw, _Affinity, "affinity", problems) or _Affinity()) if may_have_pod_terms(raw) else _Affinity()
    )


def _read_spreads(raw: bytes, problems: list[str]) -> list[_Spread]:
    return decode_field(raw, list[_Spread], "topologySpreadConstraints", problems) or []


def _ordered(values: Iterable[S]) -> tuple[S, ...]:
    return _sorted(dict.fromkeys(values))


def _sorted(values: Iterable[S]) -> tuple[S, ...]:
    return tuple(sorted(values, key=msgspec.json.encode))
