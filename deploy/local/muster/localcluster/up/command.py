"""Options of `muster up`, which is a command of muster.cli by its entry point."""

from pathlib import Path
from typing import Annotated

import typer

from muster.cli.errors import CliError
from muster.cli.options import Output


def up(
    *,
    nodes: Annotated[int, typer.Option(min=1, max=5000, help="Number of simulated nodes.")] = 20,
    racks: Annotated[int, typer.Option(min=1, help="Number of racks that the nodes are spread over.")] = 4,
    cpu: Annotated[str, typer.Option(help="Allocatable cpu of each node.")] = "8",
    memory: Annotated[str, typer.Option(help="Allocatable memory of each node.")] = "32Gi",
    devices: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:CARDS@FIRST-LAST",
            help="GPUs of nodes as devices of dynamic resource allocation, e.g. gpu:8@0-3; kinds: gpu, mig, nvlink. "
            "May be repeated; default: GPUs of each kind on the last ten nodes.",
            show_default=False,
        ),
    ] = None,
    placement: Annotated[
        str,
        typer.Option(
            metavar="NAME|HOST:PORT",
            help="best-fit, first-fit, or the address of a placement that you run, which watches --listen.",
        ),
    ] = "best-fit",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of cluster-state for a placement that you run.")
    ] = "127.0.0.1:7001",
    examples: Annotated[
        Path | None,
        typer.Option(help="File or directory of manifests to apply; default: deploy/examples.", show_default=False),
    ] = None,
    no_examples: Annotated[bool, typer.Option("--no-examples", help="Apply no manifests.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when every gang is as its manifest expects, with 1 if one is not.")
    ] = False,
    output: Annotated[Output, typer.Option(help="Output format of --once.")] = Output.TABLE,
    timeout: Annotated[float, typer.Option(min=1, help="Time limit of --once in seconds.")] = 120,
    state_dir: Annotated[
        Path,
        typer.Option(
            "--state-dir", envvar="MUSTER_STATE_DIR", help="Directory for logs, traces, kubeconfig and etcd data."
        ),
    ] = Path(".muster"),
) -> None:
    """Run a cluster on this machine with example gangs, until Ctrl-C."""
    from muster.localcluster.deploy_files import NoDeployFiles, find_deploy_files
    from muster.localcluster.kubelets.devices.options import default_devices
    from muster.localcluster.up.placement import chosen_placement
    from muster.localcluster.up.run import UpOptions, run_up

    try:
        crds = find_deploy_files("crds")
        applied = None if no_examples else examples or find_deploy_files("examples")
    except NoDeployFiles as error:
        raise CliError(str(error), usage=True) from error
    run_up(
        UpOptions(
            nodes=nodes,
            racks=racks,
            cpu=cpu,
            memory=memory,
            devices=tuple(devices) if devices is not None else default_devices(nodes),
            placement=chosen_placement(placement, listen),
            examples=applied,
            crds=crds,
            once=once,
            as_json=output is Output.JSON,
            timeout_seconds=timeout,
            state_directory=state_dir,
        )
    )
