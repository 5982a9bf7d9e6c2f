"""Kernels: declared types, names of kernel modules only, and the cache of machine code."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.placement.small_instances import KINDS, answer_to, random_case
from muster.placement.kernels import compilation
from muster.placement.kernels.compilation import Kernel, all_kernels

KERNELS = all_kernels()
KERNELS_ARE_IN = Path(compilation.__file__).parent

PROGRAM = """
import sys
from muster.placement.kernels.compilation import INTS, Kernel, kernel, kernels
sys.path.insert(0, sys.argv[1])
import doubling
[made] = kernels()
compiled = made.load()
import numpy as np
print(compiled, doubling.total(np.arange(4)))
"""

MODULE = """
from muster.placement.kernels.compilation import INTS, kernel

@kernel(INTS)
def total(values):
    found = 0
    for at in range(len(values)):
        found += 2 * values[at]
    return found
"""


def run(tmp_path: Path, **environment: str) -> str:
    """Runs a process that loads or compiles a kernel; returns whether it compiled, and the kernel's result."""
    (tmp_path / "doubling.py").write_text(MODULE)
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip()


def names_of(code: Any) -> set[str]:
    nested = (each for each in code.co_consts if hasattr(each, "co_names"))
    return set(code.co_names).union(*map(names_of, nested))


def test_machine_code_is_cached_for_the_next_process(tmp_path: Path) -> None:
    assert run(tmp_path) == "True 12"
    assert run(tmp_path) == "False 12"


def test_a_corrupt_cache_is_compiled_anew(tmp_path: Path) -> None:
    run(tmp_path)
    kept = list(tmp_path.rglob("*.nbc"))
    assert kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:100])
    assert run(tmp_path) == "True 12"
    assert run(tmp_path) == "False 12"


def test_without_a_writable_cache_each_process_compiles(tmp_path: Path) -> None:
    nowhere = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": "/dev/null/nowhere"}
    assert run(tmp_path, **nowhere) == "True 12"
    assert run(tmp_path, **nowhere) == "True 12"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernels_use_names_of_kernel_modules_only(kernel: Kernel) -> None:
    functions = [kernel.compiled.py_func]
    seen = set(functions)
    while functions:
        function = functions.pop()
        assert file_of(function).parent == KERNELS_ARE_IN, f"{function.__name__} is elsewhere"
        known: dict[str, Any] = function.__globals__
        for name in names_of(function.__code__) & known.keys():
            value = known[name]
            part = getattr(value, "py_func", None)
            if part is not None and part not in seen:
                seen.add(part)
                functions.append(part)
            elif part is None and value is not np:
                made_of_fields = isinstance(value, type) and issubclass(value, tuple)
                assert isinstance(value, int) or made_of_fields, f"{name} may change elsewhere"
                assert is_said_in(name, function), f"{name} is from elsewhere"


def file_of(function: Any) -> Path:
    return Path(function.__code__.co_filename)


def is_said_in(name: str, function: Any) -> bool:
    """Defined in the function's file, or in another kernel module that it is imported from."""
    text = file_of(function).read_text()
    if f"\n{name}: Final = " in text or f"\nclass {name}(NamedTuple)" in text:
        return True
    imports = [line for line in ast.walk(ast.parse(text)) if isinstance(line, ast.ImportFrom)]
    modules = [line.module for line in imports if name in {alias.name for alias in line.names}]
    return bool(modules) and all(f"{module}".startswith("muster.placement.kernels.") for module in modules)


def test_cache_keys_depend_on_all_kernel_modules(tmp_path: Path) -> None:
    """numba itself checks only the kernel's own file."""
    run(tmp_path)
    kept = {path.name for path in tmp_path.rglob("*.nbi")}
    assert kept
    assert all(re.match(r"doubling\.total\.[0-9a-f]{16}-", name) for name in kept), kept


def test_solves_call_kernels_with_the_compiled_types() -> None:
    for kind in KINDS:
        for number in range(40):
            answer_to(random_case(number, kind))
    called = [kernel for kernel in KERNELS if kernel.compiled.signatures]
    assert len(called) > len(KERNELS) / 2
    for kernel in called:
        assert kernel.compiled.signatures == [kernel.types], f"{kernel.name} would be compiled in a solve"
