"""Runs the embedded API server until SIGTERM or SIGINT."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from muster.localcluster.apiserver import ApiServer
from muster.localcluster.apiserver.access.tokens import BadTokenFile, read_tokens
from muster.localcluster.apiserver.kubeconfigs import BadCertificates, Certificates
from muster.telemetry.logs import configure_logs


def main() -> None:
    options = _arguments()
    configure_logs("api-server", options.log_level, options.log_format)
    try:
        uvloop.run(_serve(options))
    except KeyboardInterrupt:
        pass
    except (BadCertificates, BadTokenFile) as error:
        sys.exit(str(error))


async def _serve(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    server = ApiServer(
        options.listen,
        allow_faults=options.allow_faults,
        history=options.history,
        tokens=read_tokens(options.token_auth_file) if options.token_auth_file else None,
        certificates=_certificates(options),
    )
    url = await server.start()
    try:
        if options.kubeconfig_out:
            server.write_kubeconfig(options.kubeconfig_out)
        if options.ready_file:
            options.ready_file.write_text(url)
        if options.ready_fd is not None:
            with os.fdopen(options.ready_fd, "w") as ready:
                ready.write(f"{url}\n")
        await stopped.wait()
    finally:
        await server.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.apiserver", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--kubeconfig-out", type=Path, help="write a kubeconfig that leads here")
    parser.add_argument("--ready-file", type=Path, help="write the URL there once it serves")
    parser.add_argument("--ready-fd", type=int, help="write the URL to this file descriptor once it serves")
    parser.add_argument("--token-auth-file", type=Path, help='tokens, a line each: TOKEN,USER,UID,"GROUP,GROUP"')
    parser.add_argument("--tls-cert-file", type=Path, help="serve HTTPS with this certificate (PEM)")
    parser.add_argument("--tls-private-key-file", type=Path, help="its key")
    parser.add_argument("--tls-ca-file", type=Path, help="who signed it; goes into the kubeconfig")
    parser.add_argument("--allow-faults", action="store_true", help="serve /muster-faults, for tests of clients")
    parser.add_argument("--history", type=int, default=16_384, help="changes per resource that a watch may be behind")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    options = parser.parse_args()
    files = (options.tls_cert_file, options.tls_private_key_file, options.tls_ca_file)
    if any(files) and not all(files):
        parser.error("--tls-cert-file, --tls-private-key-file and --tls-ca-file are of use only together")
    return options


def _certificates(options: argparse.Namespace) -> Certificates | None:
    if options.tls_cert_file is None:
        return None
    return Certificates(options.tls_cert_file, options.tls_private_key_file, options.tls_ca_file)


if __name__ == "__main__":
    main()
