"""Random nodes and changes of them, and random classes of pods with node filters on the same few labels and taints."""

from hypothesis import strategies as st

from builders.placement.clusters import node, pod_class
from muster.gangs.facts import (
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)

KEYS, VALUES, NAMES = ("zone", "disk", "size"), ("", "a", "b", "3", "7"), ("n0", "n1", "n2", "n3", "n4")

taints = st.builds(
    Taint, st.sampled_from(KEYS), st.sampled_from(VALUES), st.sampled_from([e for e in TaintEffect if e])
)
tolerations = st.builds(
    Toleration,
    st.sampled_from(("", *KEYS, "node.kubernetes.io/unschedulable")),
    st.sampled_from(list(TolerationOperator)),
    st.sampled_from(VALUES),
    st.sampled_from(list(TaintEffect)),
)
label_requirements = st.builds(
    NodeRequirement,
    st.sampled_from(KEYS),
    st.sampled_from(list(NodeOperator)),
    st.lists(st.sampled_from(VALUES), max_size=2).map(tuple),
)
field_requirements = st.builds(
    NodeRequirement,
    st.sampled_from(("metadata.name", "metadata.name", "spec.other")),
    st.sampled_from([NodeOperator.IN, NodeOperator.NOT_IN, NodeOperator.EXISTS]),
    st.lists(st.sampled_from((*NAMES, "")), min_size=1, max_size=2).map(tuple),
)
terms = st.builds(
    NodeSelectorTerm,
    st.lists(label_requirements, max_size=2).map(tuple),
    st.lists(field_requirements, max_size=1).map(tuple),
)
classes = st.builds(
    pod_class,
    st.just("x"),
    gpu=st.sampled_from([0, 1]),
    selector=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
    required=st.none() | st.lists(terms, max_size=2),
    preferred=st.lists(st.builds(PreferredNodeTerm, st.integers(1, 100), terms), max_size=2),
    tolerations=st.lists(tolerations, max_size=2),
    volumes=st.lists(st.lists(terms, max_size=2), max_size=2),
)
nodes = st.builds(
    node,
    st.sampled_from(NAMES),
    gpu=st.sampled_from([0, 8]),
    labels=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
    taints=st.lists(taints, max_size=2),
    unschedulable=st.booleans(),
    ready=st.booleans(),
)
changes = st.lists(st.lists(nodes | st.sampled_from(NAMES), max_size=6), min_size=1, max_size=4)
