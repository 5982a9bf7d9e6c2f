"""Makes the etcd3 package work with current protobuf; everything else here takes `etcd3` from this module.

What protoc wrote for etcd3 0.12.0 is refused by protobuf 4 and newer, but only the code is too old: the descriptors in
it are good. They are taken out of the source text, registered in the default pool, and message modules made of them are
put where etcd3 imports its own from.
"""

import ast
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_PACKAGE: Final = "etcd3.etcdrpc"
_MODULES: Final = ("kv_pb2", "auth_pb2", "rpc_pb2")  # each needs only those before it


class Etcd3Incompatible(ImportError):
    """The installed etcd3 is not the one that this was made for."""


def serialized_descriptor(source: str) -> bytes:
    """The file descriptor in code that protoc wrote before 2022, without running it. Raises Etcd3Incompatible."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            literal = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                return literal.value.encode("latin-1")
            if isinstance(literal, ast.Constant) and isinstance(literal.value, bytes):
                return literal.value
    raise Etcd3Incompatible("no serialized_pb found; etcd3 0.12.0 has one in every *_pb2.py: install etcd3==0.12.0")


def message_module(name: str, file: FileDescriptor) -> ModuleType:
    """A module with the messages and enums of a file, as protoc would write it."""
    module = ModuleType(name, f"Messages of {file.name}.")
    module.__spec__ = ModuleSpec(name, None, origin=file.name)
    for message_name, message in file.message_types_by_name.items():
        setattr(module, message_name, message_factory.GetMessageClass(message))
    for enum_name, enum in file.enum_types_by_name.items():
        setattr(module, enum_name, EnumTypeWrapper(enum))
        for value_name, value in enum.values_by_name.items():
            setattr(module, value_name, value.number)
    return module


def _prepare() -> None:
    if "etcd3" in sys.modules:
        return
    spec = importlib.util.find_spec("etcd3")
    if spec is None or not spec.submodule_search_locations:
        raise Etcd3Incompatible("the package etcd3 is not installed: pip install etcd3==0.12.0")
    folder = Path(spec.submodule_search_locations[0]) / "etcdrpc"
    pool = descriptor_pool.Default()
    for module_name in _MODULES:
        serialized = serialized_descriptor((folder / f"{module_name}.py").read_text("utf-8"))
        file = pool.AddSerializedFile(serialized)
        name = f"{_PACKAGE}.{module_name}"
        sys.modules[name] = message_module(name, file)


_prepare()

import etcd3  # noqa: E402
from etcd3 import etcdrpc  # noqa: E402

__all__ = ["Etcd3Incompatible", "etcd3", "etcdrpc", "message_module", "serialized_descriptor"]
