"""The installed etcd3 works with the current protobuf."""

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from muster.etcd.etcd3_import import Etcd3Incompatible, etcd3, etcdrpc, message_module, serialized_descriptor


def test_messages_encode_as_etcd_expects() -> None:
    request = etcdrpc.RangeRequest(key=b"/a", limit=3, sort_order=etcdrpc.RangeRequest.DESCEND)
    wire = request.SerializeToString()
    assert wire == b"\x0a\x02/a\x18\x03\x28\x02"
    assert etcdrpc.RangeRequest.FromString(wire) == request


def test_client_classes_are_available() -> None:
    compare = etcd3.Transactions().create("/leader") == 7
    message = compare.build_message()
    assert (message.key, message.create_revision, message.target) == (b"/leader", 7, etcdrpc.Compare.CREATE)
    for stub in ("KVStub", "WatchStub", "LeaseStub", "ClusterStub", "MaintenanceStub", "AuthStub"):
        assert hasattr(etcdrpc, stub)


def test_import_works_in_a_new_process_in_any_order() -> None:
    program = (
        "import grpc, google.protobuf, muster.clusterstate.v1.clusterstate_pb2\n"
        "from muster.etcd.etcd3_import import etcd3\n"
        "import muster.etcd.etcd3_import, etcd3 as again\n"
        "assert again is etcd3; print(etcd3.__version__)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (answer.stdout.strip(), answer.stderr) == ("0.12.0", "")


@pytest.mark.parametrize(
    "source",
    [
        "D = F(name='a.proto', serialized_pb=_b('\\n\\x07\\xe9'))",
        "D = F(name='a.proto', serialized_pb=b'\\n\\x07\\xe9')",
    ],
)
def test_descriptor_is_extracted_from_the_source(source: str) -> None:
    assert serialized_descriptor(source) == b"\n\x07\xe9"


@pytest.mark.parametrize("source", ["", "x = 1", "D = F(serialized_pb=make())", "D = F(serialized_pb=name)"])
def test_source_without_a_descriptor_names_the_version_to_install(source: str) -> None:
    with pytest.raises(Etcd3Incompatible, match=r"pip install etcd3==0\.12\.0|install etcd3==0\.12\.0"):
        serialized_descriptor(source)


def test_message_module_has_messages_and_enums() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="muster_test.proto", package="muster_test", syntax="proto3")
    file.message_type.add(name="Thing").field.add(name="size", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    file.enum_type.add(name="Color").value.add(name="RED", number=0)
    pool = descriptor_pool.DescriptorPool()
    module = message_module("muster_test_pb2", pool.AddSerializedFile(file.SerializeToString()))
    assert module.Thing(size=3).SerializeToString() == b"\x08\x03"
    assert module.Color.Name(0) == "RED"
    assert module.RED == 0
