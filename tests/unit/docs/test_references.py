"""Modules, symbols and files that docstrings, comments and pages name exist."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE_ROOTS = ("libs", "services", "deploy/local", "tests")
FOLDERS = ("libs", "services", "tests", "deploy", "docs", "proto", "tools")
PROTO = ROOT / "proto"

_QUOTED = re.compile(r"`([^`\n]+)`")
_DOTTED = re.compile(r"(?<![\w./-])(muster(?:\.[A-Za-z_]\w*)+)(?![\w/-])")
_MEMBER = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\(.*\))?")
_PATH = re.compile(rf"(?<![\w./{{-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)(?![\w*{{<-])")
_PLACEHOLDER = re.compile(r"(?<![a-z])[A-Z]{4,}(?![a-z])")
"""A word that readers replace, such as NAME."""
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_MADE = re.compile(r"deploy/docker/\.|gen/")
"""Paths of files that commands write and git does not keep."""


def sources() -> list[Path]:
    return sorted(path for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py") if path != Path(__file__))


def pages() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in found if path.exists())


def module_of(path: Path) -> str:
    for root in sorted(SOURCE_ROOTS, key=len, reverse=True):
        if path.is_relative_to(ROOT / root):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    raise ValueError(path)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """Names that the statements of a module or class define or import."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in names)
            case ast.If() | ast.Try() | ast.With():
                yield from bound_names([each for each in ast.iter_child_nodes(statement) if isinstance(each, ast.stmt)])


def attributes(of: ast.ClassDef) -> set[str]:
    names = set(bound_names(of.body))
    for node in ast.walk(of):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            names.add(node.attr)
    return names


class Names:
    """Everything that the repository defines, by the ways in which prose refers to it."""

    def __init__(self) -> None:
        self.modules: dict[str, set[str]] = {}
        self.classes: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        for path in sources():
            module, tree = module_of(path), parsed(path)
            self.modules.setdefault(module, set()).update(bound_names(tree.body))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, set()).update(attributes(node))
                    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                    self.bases.setdefault(node.name, set()).update(bases)
        for module in list(self.modules):
            while "." in module:
                package, _, name = module.rpartition(".")
                self.modules.setdefault(package, set()).add(name)
                module = package
        for path in PROTO.rglob("*.proto"):
            package = ".".join(path.parent.relative_to(PROTO).parts)
            self.modules.setdefault(package, set()).update(re.findall(r"[A-Za-z_]\w*", path.read_text()))

    def _has(self, owner: str, member: str) -> bool:
        """The class or a base of it has the member."""
        inherits = self.bases.get(owner, set()) - {owner}
        return member in self.classes.get(owner, ()) or any(self._has(base, member) for base in inherits)

    def resolves(self, dotted: str) -> bool:
        """The name is a module, or a symbol of one, or an attribute of a class in one."""
        rest: list[str] = []
        module = dotted
        while module not in self.modules:
            module, _, last = module.rpartition(".")
            if not module:
                return False
            rest.insert(0, last)
        if not rest:
            return True
        if rest[0] not in self.modules[module]:
            return False
        return len(rest) == 1 or rest[0] not in self.classes or self._has(rest[0], rest[1])

    def member_exists(self, owner: str, member: str) -> bool | None:
        """None: no class of the repository is named `owner`, so the text is about something else."""
        if owner in self.classes:
            return self._has(owner, member)
        return None


@pytest.fixture(scope="module")
def names() -> Names:
    return Names()


def docstrings_and_comments(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def missing_files(text: str) -> list[str]:
    named = (path for path in _PATH.findall(text) if not _MADE.match(path) and not _PLACEHOLDER.search(path))
    return [path for path in named if not (ROOT / path).exists()]


def missing_modules(text: str, names: Names) -> list[str]:
    """Dotted names below a package of Muster; others are span attributes, files and the like."""
    found = [dotted for dotted in _DOTTED.findall(text) if ".".join(dotted.split(".")[:2]) in names.modules]
    return [dotted for dotted in found if not names.resolves(dotted)]


def missing_members(text: str, names: Names) -> list[str]:
    quoted = (_MEMBER.fullmatch(each) for each in _QUOTED.findall(text))
    return [found[0] for found in quoted if found and names.member_exists(found[1], found[2]) is False]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_docstrings_and_comments_name_what_exists(path: Path, names: Names) -> None:
    for text in docstrings_and_comments(path):
        assert not missing_modules(text, names)
        assert not missing_members(text, names)
        assert not missing_files(text)


@pytest.mark.parametrize("path", pages(), ids=relative)
def test_pages_name_what_exists(path: Path, names: Names) -> None:
    text = path.read_text()
    assert not missing_modules(text, names)
    assert not missing_files(text)


@pytest.mark.parametrize(
    "path", [path for path in sources() if path.name == "__init__.py" and "tests" not in path.parts], ids=relative
)
def test_a_package_docstring_names_modules_of_the_package(path: Path, names: Names) -> None:
    """In a package's own description a single quoted word is a module or a symbol of the package."""
    text = ast.get_docstring(parsed(path)) or ""
    package = module_of(path)
    inside = {part for module in names.modules if module.startswith(package) for part in module.split(".")}
    inside.update(*(each for module, each in names.modules.items() if module.startswith(package)))
    inside.update(*names.classes.values())
    words = [word for word in _QUOTED.findall(text) if _NAME.fullmatch(word)]
    assert [word for word in words if word not in inside] == []


def test_names_that_do_not_exist_are_found(names: Names) -> None:
    assert missing_modules("see muster.gangs.nowhere and muster.rpc.channel.close_channels", names) == [
        "muster.gangs.nowhere",
        "muster.rpc.channel.close_channels",
    ]
    assert missing_members("`Machine.run` after `Machine.step(events, now)`", names) == ["Machine.run"]
    assert missing_files("read docs/nothing.md and services/muster/coordinator") == ["docs/nothing.md"]
