#!/usr/bin/env python3
"""A device plugin of Kubernetes: a pod asks for `rdma/pumice` as it asks for an adapter.

    device-plugin.py [--installed FOLDER] [--count N] [--set PUMICE_NAME=VALUE]...

It runs on each node (device-plugin.yml) and tells the kubelet how many devices there are. To a container that asks for one it
gives the folder with pumice, only to read, and the variables by which the loader finds libpumice.so under the names of
libibverbs and librdmacm. So the container needs no `pumice run`, and its image knows nothing of pumice. `--set` adds variables
for all containers, such as PUMICE_PROFILE=connectx.

The kubelet speaks gRPC through a socket in --kubelet. The messages of the device plugin API, v1beta1, are few, so they are
written and read here by their field numbers. It needs grpcio (Debian: python3-grpcio).
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator

import grpc

SOCKET = "pumice.sock"
LOOK_EVERY_S = 1.0
BYTES = 2


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: "str | bytes | bool") -> bytes:
    """A field of a message: a text, a message, or true."""
    if isinstance(value, bool):
        return varint(number << 3) + varint(int(value))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def containers(request: bytes) -> int:
    """How many containers an AllocateRequest is about: its fields are one message for each."""
    count = position = 0

    def read() -> int:
        nonlocal position
        number = shift = 0
        while True:
            byte = request[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while position < len(request):
        tag, length = read(), read()
        if tag != 1 << 3 | BYTES:
            raise ValueError(f"an AllocateRequest has no field {tag >> 3}")
        count += 1
        position += length
    return count


class Plugin(grpc.GenericRpcHandler):
    """The service v1beta1.DevicePlugin."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.ended = threading.Event()

    def is_healthy(self) -> bool:
        return (self.options.installed / "lib/pumice/libpumice.so").is_file()

    def list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """All devices at once, and again when pumice is installed or removed."""
        told = None
        while context.is_active() and not self.ended.is_set():
            health = "Healthy" if self.is_healthy() else "Unhealthy"
            if health != told:
                told = health
                devices = (field(1, f"pumice-{number}") + field(2, health) for number in range(self.options.count))
                yield b"".join(field(1, device) for device in devices)
            self.ended.wait(LOOK_EVERY_S)

    def allocate(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        """What the container gets: variables (field 1) and a mount (field 2)."""
        inside = self.options.inside
        variables = {"LD_LIBRARY_PATH": f"{inside}/lib/pumice/pumice-links", **dict(self.options.set)}
        answer = b"".join(field(1, field(1, name) + field(2, value)) for name, value in variables.items())
        answer += field(2, field(1, inside) + field(2, str(self.options.installed)) + field(3, True))
        return b"".join(field(1, answer) for _ in range(containers(request)))

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler | None":
        empty = grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")
        return {
            "/v1beta1.DevicePlugin/GetDevicePluginOptions": empty,
            "/v1beta1.DevicePlugin/GetPreferredAllocation": empty,
            "/v1beta1.DevicePlugin/PreStartContainer": empty,
            "/v1beta1.DevicePlugin/ListAndWatch": grpc.unary_stream_rpc_method_handler(self.list_and_watch),
            "/v1beta1.DevicePlugin/Allocate": grpc.unary_unary_rpc_method_handler(self.allocate),
        }.get(details.method)


def register(options: argparse.Namespace) -> None:
    """Tells the kubelet the name of the resource, and the socket on which this program listens."""
    with grpc.insecure_channel(f"unix://{options.kubelet}/kubelet.sock") as channel:
        call = channel.unary_unary("/v1beta1.Registration/Register")
        call(field(1, "v1beta1") + field(2, SOCKET) + field(3, options.resource), timeout=10, wait_for_ready=True)


def identity(path: Path) -> "tuple[int, int] | None":
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_ctime_ns


def serve_until_the_kubelet_ends(options: argparse.Namespace) -> None:
    """A kubelet that starts removes all sockets of the folder: then this plugin begins anew."""
    own, kubelet = options.kubelet / SOCKET, options.kubelet / "kubelet.sock"
    own.unlink(missing_ok=True)
    plugin, server = Plugin(options), grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([plugin])
    server.add_insecure_port(f"unix://{own}")
    server.start()
    before = identity(kubelet)
    try:
        register(options)
        print(f"{options.count} devices {options.resource} are registered", flush=True)
        while own.exists() and identity(kubelet) == before:
            time.sleep(LOOK_EVERY_S)
    finally:
        plugin.ended.set()
        server.stop(1).wait()


def variable(text: str) -> "tuple[str, str]":
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("PUMICE_"):
        raise argparse.ArgumentTypeError(f"{text} is not PUMICE_NAME=VALUE")
    return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description="Offers rdma/pumice to the pods of this node.")
    parser.add_argument("--installed", type=Path, default=Path("/opt/pumice"), help="the folder on the node")
    parser.add_argument("--inside", default="/opt/pumice", help="where containers see it")
    parser.add_argument("--count", type=int, default=100, help="how many containers of a node may have a device")
    parser.add_argument("--resource", default="rdma/pumice")
    parser.add_argument("--kubelet", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--set", type=variable, action="append", default=[], metavar="PUMICE_NAME=VALUE")
    options = parser.parse_args()
    if not os.access(options.kubelet, os.W_OK):
        sys.exit(f"{options.kubelet} cannot be written: mount it from the node (device-plugin.yml)")
    while True:
        try:
            serve_until_the_kubelet_ends(options)
        except grpc.RpcError as error:
            # The kubelet refused, or does not answer yet. It says which.
            print(f"not registered: {error.details() if isinstance(error, grpc.Call) else error}", file=sys.stderr, flush=True)
            time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main()
