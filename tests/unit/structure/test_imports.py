"""Dependencies point one way: local cluster -> services -> edges -> domain; no service imports another; the domain has
no I/O.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.cli.service_commands import SERVICES as SERVICE_COMMANDS

ROOT = Path(__file__).parents[3]
DOMAIN = {"cel", "devices", "dialects", "gangs", "queues", "topology"}
EDGES = {"config", "etcd", "kube", "retry", "rpc", "telemetry"}
PURE_MODULES = {"muster.retry.backoff"}
"""Modules of the edges that the domain may use, because they are pure themselves."""
SERVICES = {
    *("binding", "clusterstate", "conformance", "console", "coordinator", "firstfit", "forecast", "lifecycle"),
    "placement",
}
CORE = "muster.coordinator.core"
"""The coordinator's rules, which forecasts play, too: pure, like the domain."""
PURE_LIBRARIES = {"msgspec", "numpy", "re2"}
NO_IO = {
    *(
        "asyncio",
        "concurrent",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "select",
        "signal",
    ),
    *("socket", "ssl", "subprocess", "tempfile", "threading", "time", "urllib"),
}


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: relative import"
            assert statement.module is not None
            yield statement.module
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def part(module: str) -> str:
    """The folder of muster that a module is in; "" for others."""
    names = module.split(".")
    return names[1] if names[0] == "muster" and len(names) > 1 else ""


def is_contract(module: str) -> bool:
    """Code written from proto/: muster.<service>.v1..."""
    return module.split(".")[2:3] == ["v1"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


DOMAIN_MODULES = [
    *modules(*(f"libs/muster/{folder}" for folder in sorted(DOMAIN)), "services/muster/coordinator/core"),
    *(ROOT / "libs" / f"{module.replace('.', '/')}.py" for module in sorted(PURE_MODULES)),
]


@pytest.mark.parametrize("path", DOMAIN_MODULES, ids=name)
def test_the_domain_has_no_io(path: Path) -> None:
    for module in imported(path):
        top = module.split(".")[0]
        if top == "muster":
            pure = part(module) in DOMAIN or any(
                module == each or module.startswith(f"{each}.") for each in PURE_MODULES
            )
            allowed = pure or module.startswith("muster.coordinator.core")
            assert allowed or module == "muster", f"{name(path)} imports {module}"
        else:
            pure = top in PURE_LIBRARIES or (top in sys.stdlib_module_names and top not in NO_IO)
            assert pure, f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", modules("libs/muster"), ids=name)
def test_libraries_import_no_service(path: Path) -> None:
    for module in imported(path):
        service = part(module) in SERVICES | {"cli"}
        assert not service or is_contract(module), f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", modules("services/muster"), ids=name)
def test_services_import_only_their_own_code_and_contracts(path: Path) -> None:
    own = path.relative_to(ROOT / "services/muster").parts[0]
    for module in imported(path):
        if part(module) in SERVICES | {"cli"} - {own} and part(module) != own and not is_contract(module):
            names = module.split(".")
            plays_it = own == "forecast" and (module == CORE or module.startswith(f"{CORE}."))
            runs_it = own == "cli" and (len(names) == 2 or names[2] in ("settings", "service", "suite"))
            reads_manifests = own == "console" and module.startswith("muster.clusterstate.suite")
            assert runs_it or plays_it or reads_manifests, f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", modules("libs/muster", "services/muster"), ids=name)
def test_nothing_in_production_imports_the_local_cluster(path: Path) -> None:
    assert not [module for module in imported(path) if part(module) == "localcluster"]
    assert "muster.localcluster" not in path.read_text()


@pytest.mark.parametrize("path", modules("deploy/local"), ids=name)
def test_the_local_cluster_runs_services_without_importing_them(path: Path) -> None:
    for module in imported(path):
        allowed = part(module) not in SERVICES or is_contract(module)
        assert allowed, f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", modules("libs/muster", "services/muster"), ids=name)
def test_only_kernels_of_placement_need_a_compiler(path: Path) -> None:
    if path.parent != ROOT / "services/muster/placement/kernels":
        assert not [module for module in imported(path) if module.split(".")[0] in ("numba", "llvmlite")]


@pytest.mark.parametrize("service", ["binding", "clusterstate", "console", "lifecycle"])
def test_services_without_arrays_do_not_load_numpy(service: str) -> None:
    """Loading numpy takes 0.1 s of a start, and 20 MiB."""
    source = f"import sys, muster.cli.main, muster.{service}.service; print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False"]


@pytest.mark.parametrize("service", sorted(package for package, _ in SERVICE_COMMANDS.values()))
def test_services_do_not_load_rich(service: str) -> None:
    """structlog would load it, which takes a tenth of a start."""
    source = (
        "import sys; import muster.cli.main; from muster.cli import service_commands; "
        f"service_commands.import_service_module('muster.{service}.service'); "
        "print('structlog' in sys.modules, 'rich' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]


def test_the_checks_see_every_folder() -> None:
    assert len(modules("deploy/local")) > 50
    assert len(DOMAIN_MODULES) > 10
    assert {path.name for path in (ROOT / "libs/muster").iterdir() if path.is_dir()} - {"__pycache__"} <= DOMAIN | EDGES
