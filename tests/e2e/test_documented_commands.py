"""Every command of the documentation is run, page by page and in order, against one `muster up`.

A command that cannot be run here is checked by a row of INSTEAD with the reason. Any other command is a failure.
"""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from builders.docs.pages import DOCS, Block, blocks_of

ROOT: Final = DOCS.parent
SECONDS: Final = 120.0
SHELL: Final = ("console", "sh", "bash", "shell")
HELM: Final = Path(sys.prefix) / "tools" / "helm"

OWN_TESTS: Final = {
    ("README.md", "A first gang"): "test_up.py",
    ("docs/operations.md", ""): "test_operations_page.py",
}
"""Pages, or sections of pages, that another test file runs."""

RUN: Final = ("kubectl", "muster", "openssl", "sed", "echo", "export", "GO=")
"""Beginnings of commands that are run. All others must be in INSTEAD."""

NAMES: Final = {"NAME": "resnet", "[TREE]": "labels", "REGISTRY": "registry.example.com"}
"""Placeholders that readers replace, and their values here."""


@dataclass(frozen=True)
class Instead:
    """How a command that is not run is checked."""

    command: str
    """Pattern of the beginning of the command."""
    shell: str
    """The command that is run instead; \\g<0> is the match of the pattern."""
    why: str


OF_CONTROLLERS: Final = "|".join(
    re.escape(group)
    for group in (
        "batch.volcano.sh",
        "jobset.x-k8s.io",
        "kubeflow.org",
        "kueue.x-k8s.io",
        "leaderworkerset.x-k8s.io",
        "ray.io",
        "sparkoperator.k8s.io",
        "trainer.kubeflow.org",
    )
)
"""API groups of controllers that are not here."""
INSTEAD: Final = (
    Instead(r"helm install ", "helm_template ", "the API server here makes no pods; test_chart.py installs the chart"),
    Instead(r"helm test .*", "a_test_is_in_the_chart", "it takes the release; test_chart.py runs it"),
    Instead(
        r"kubectl -n muster-system port-forward service/(\S+) \d+:(\d+)",
        r"helm_template muster deploy/helm/muster --set console.enabled=true -s templates/services.yaml; serves \1 \2",
        "the chart is not installed here; it has a service of that name with that port",
    ),
    Instead(
        r"kubectl create serviceaccount (\S+)",
        r"""kubectl apply -f - <<<'{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "\1"}}'""",
        "kubectl create sends protobuf, and the API server here reads JSON",
    ),
    Instead(
        r"kubectl create token (\S+).*",
        r"""kubectl create --raw /api/v1/namespaces/default/serviceaccounts/\1/token -f - <<<{} | grep -q '"token"'""",
        "as above",
    ),
    Instead(r"make up\b", "made up", "test_up.py runs `muster up`, and this cluster is one"),
    Instead(r"OTEL_\w+=\S+ make up\b", "made up", "its target is a Jaeger; test_jaeger.py has one"),
    Instead(r"make (simulate|outages|chaos|compare|interop|bench[a-z-]*)\b", r"made \1", "it takes minutes"),
    Instead(r"(?:kubectl )?muster (?:whatif|snapshot) .*", r"parses \g<0>", "its files are the reader's"),
    Instead(r"muster replay .*", r"parses \g<0>", "it takes minutes; tests of forecasts run it"),
    Instead(r"muster up .*", r"parses \g<0>", "as make up"),
    Instead(r"python worst_fit\.py .*&", ":", "test_documented_placement.py runs it"),
    Instead(r"muster conformance .*", r"parses \g<0>", "tests of conformance run it, on both placements"),
    Instead(r"\S+/muster conformance (.*)", r"parses muster conformance \1", "it wants the placement in Go, see below"),
    Instead(r"go mod init .*", "go_is_formed main.go", "the modules it needs are fetched over the network"),
    Instead(r"go (install|mod tidy) .*", ":", "as above; names of the contracts: test_documented.py of conformance"),
    Instead(r"export PATH=.*go env.*", ":", "as above"),
    Instead(r"\./placement .*&", ":", "as above"),
    Instead(r"(\S+/python -m grpc_tools.protoc -I \S+) .*?( muster/.*)", r"\1 -o /dev/null\2", "its plugins are in Go"),
    Instead(r"make (setup|lint|test)\b(.*)", r"make -n \1\2 >/dev/null", "make test runs this test"),
    Instead(r"make$", "make help", "the same"),
    Instead(r"make image .*", ":", "there is no engine; tests/unit/deploy look at what it would build"),
    Instead(r"docker push .*", ":", "there is no registry"),
    Instead(r"docker run .* (jaegertracing/jaeger:\S+)", r"grep -q 'image: \1$' compose.yaml", "there is no engine"),
    Instead(r"docker compose (up|down) .*", ":", "there is no engine; test_compose.py runs what compose.yaml says"),
    Instead(r"docker compose exec (\S+) (muster .*)", r"in_compose \1; \2", "the same; it is run on the cluster here"),
    Instead(
        rf"(?s)kubectl apply -f - <<'EOF'\n.*apiVersion: ({OF_CONTROLLERS})/.*",
        ":",
        "their controllers are not here; make interop runs these very commands",
    ),
    Instead(r"kubectl --server http://127\.0\.0\.1:6443 ", "published kubectl ", "the same"),
)

SAYS: Final = {
    "kubectl get pod resnet-0": r"^[0-9a-f]{32}",
    "muster trace resnet": r"gang\.binding",
    "kubectl muster gangs": r"resnet\s",
    "kubectl muster explain": r"min-available",
    "kubectl muster topology": r"labels",
    "openssl x509": r"subject=",
}
"""Patterns that the output of a block must contain where the page does not show the output."""

PRELUDE: Final = """
set -e -o pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
parses() {  # it knows all its options, and takes their values
  local help word; help=$("$@" --help) || return
  for word in "$@"; do case $word in
    --*) grep -q -e "${word%%=*}\\b" <<<"$help" || { echo "there is no $word: $*" >&2; return 1; } ;;
  esac; done
}
made() {  # what make would run last
  local last; last=$(make -n "$@" | tail -n 1) && [ -n "$last" ] && eval "parses $last"
}
helm_template() { helm template "$@" --kube-version 1.33.0 >rendered.yaml; }
serves() { grep -A 30 "^  name: $1$" rendered.yaml | sed '/^---/q' | grep -q "port: $2,"; }
a_test_is_in_the_chart() { grep -q 'helm.sh/hook: test' rendered.yaml; }
in_compose() { grep -q "^  $1:" compose.yaml; }
published() { grep -q '127.0.0.1:.*6443' compose.yaml; "$@"; }
go_is_formed() {
  head -n 5 "$1" | grep -q '^package '
  ! command -v gofmt >/dev/null || gofmt -e "$1" >/dev/null
}
"""


def pages() -> list[str]:
    """Paths of all pages that have commands."""
    found = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "deploy/helm/muster/README.md",
        *sorted(DOCS.rglob("*.md")),
    ]
    return [str(page.relative_to(ROOT)) for page in found if any(shell_blocks(str(page.relative_to(ROOT))))]


def shell_blocks(page: str) -> Iterator[tuple[Block, Block | None]]:
    """The blocks to run, each with the output that the page shows below it."""
    blocks = blocks_of(ROOT / page)
    for each, following in itertools.zip_longest(blocks, blocks[1:]):
        if each.language in SHELL and not {(page, ""), (page, each.section)} & OWN_TESTS.keys():
            shown = following and following.language == "text" and following.section == each.section
            yield each, following if shown else None


def commands(block: Block) -> Iterator[str]:
    """The commands of a block, each with its continuation lines and here-document."""
    lines = iter(textwrap.dedent(block.text).replace("\\\n", " ").splitlines())
    for line in lines:
        command = line
        if here := re.search(r"<<-?\s*['\"]?(\w+)", line):
            for more in lines:
                command += f"\n{more}"
                if more.strip() == here[1]:
                    break
        if command.strip() and not command.lstrip().startswith("#"):
            yield command


def as_run(command: str) -> str:
    """The command to run for a command of a page. Fails if there is no rule for it."""
    for word, here in NAMES.items():
        command = re.sub(rf"(?<![\w/]){re.escape(word)}(?!\w)", here, command)
    for each in INSTEAD:
        if re.match(each.command, command):
            return re.sub(each.command, each.shell, command, count=1)
    if not command.startswith(tuple(word if word.endswith("=") else f"{word} " for word in RUN)):
        pytest.fail(f"it is not run and not checked otherwise, say how in INSTEAD: {command}")
    return command


class Ground:
    """A running `muster up`, and directories like a checkout in which commands are run."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.state = directory, directory / "state"
        tools = [str(Path(sys.prefix) / "bin"), str(HELM.parent), os.environ["PATH"]]
        settings = ("MUSTER_", "OTEL_", "MAKE", "ARGS")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(settings)}
        self.environment = {
            **clean,
            "KUBECONFIG": str(self.state / "kubeconfig"),
            "HELM_CACHE_HOME": str(directory),
            "HOME": str(directory),
            "COLUMNS": "200",
            "PATH": os.pathsep.join(tools),
        }

    def checkout(self, name: str) -> Path:
        """A directory for one page."""
        where = self.directory / name.replace("/", "-")
        where.mkdir()
        for each in ROOT.iterdir():
            if not each.name.startswith("."):
                (where / each.name).symlink_to(each)
        (where / ".venv").symlink_to(sys.prefix)
        (where / ".muster").symlink_to(self.state)
        return where

    async def run(self, script: str, where: Path) -> tuple[int, str]:
        """A shell's exit code and output."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", script),
            cwd=where,
            env=self.environment | {"MUSTER": str(where)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await asyncio.wait_for(process.communicate(), SECONDS))[0].decode()
        return process.returncode or 0, output


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    """A running `muster up` whose example gang runs and has a complete trace."""
    ground = Ground(tmp_path_factory.mktemp("commands"))
    up = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", "up", "--state-dir", str(ground.state)),
        cwd=ROOT,
        env=ground.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    draining = asyncio.create_task(_drained(up, started := asyncio.Event()))
    try:
        async with asyncio.timeout(SECONDS):
            await started.wait()
            where = ground.checkout("trace")
            while (await ground.run("set -o pipefail; muster trace resnet | grep gang.binding", where))[0]:
                pass  # its spans are still being exported
        yield ground
    finally:
        with contextlib.suppress(ProcessLookupError):
            up.send_signal(signal.SIGTERM)
        await asyncio.wait_for(draining, SECONDS)
        await up.wait()


async def _drained(up: asyncio.subprocess.Process, started: asyncio.Event) -> None:
    assert up.stdout is not None
    async for line in up.stdout:
        if b"koordinator/default/resnet satisfied, 8/8 bound" in line:
            started.set()


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("page", pages())
async def test_documented_commands_print_what_the_page_shows(page: str, ground: Ground) -> None:
    parts, blocks = [PRELUDE], list(shell_blocks(page))
    for number, (block, _) in enumerate(blocks):
        parts += [f"echo '@@ {number}'", *map(as_run, commands(block))]
    script = "\n".join(parts)
    if "helm_template " in script.removeprefix(PRELUDE) and not HELM.exists():
        pytest.skip("helm is not there: make tools builds it where Go is")
    code, output = await ground.run(script, ground.checkout(page))
    assert code == 0, f"{page}: {output}"
    outputs = re.split(r"^@@ \d+\n", output, flags=re.MULTILINE)[1:]
    for (block, shown), output in zip(blocks, outputs, strict=True):
        where = f"{page}, line {block.line}: {output}"
        for command, pattern in SAYS.items():
            if any(each.startswith(command) for each in commands(block)):
                assert re.search(pattern, output, re.MULTILINE), where
        if shown:
            assert_looks_like(output, shown.text, where)


def assert_looks_like(output: str, shown: str, where: str) -> None:
    """Check that lines begin with the words of the page, in order; numbers may differ."""
    lines = iter(output.splitlines())
    for wanted in filter(str.split, shown.splitlines()):
        first = re.sub(r"\d+", r"\\d+", re.escape(wanted.split()[0]))
        if first != r"\.\.\.":
            assert any(re.match(rf"\s*{first}(?!\w)", line) for line in lines), f"no line like {wanted!r}: {where}"


def test_tables_name_only_existing_commands() -> None:
    listed = [command for page in pages() for block, _ in shell_blocks(page) for command in commands(block)]
    for each in INSTEAD:
        assert any(re.match(each.command, command) for command in listed), f"no page has {each.command} any more"
    for beginning in SAYS:
        assert any(command.startswith(beginning) for command in listed), f"no page has {beginning} any more"
    for word in NAMES:
        assert any(word in command for command in listed), f"no page has {word} any more"
    for (page, section), test in OWN_TESTS.items():
        sections = [each.section for each in blocks_of(ROOT / page) if each.language in SHELL]
        assert section in sections if section else sections, f"{page} has no commands under {section!r} any more"
        assert Path(page).name in (Path(__file__).parent / test).read_text(), f"{test} is not about {page}"
