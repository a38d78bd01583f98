"""Files for Kubernetes against its schemas, and the device plugin against a stand-in for the kubelet.

    kubernetes.py PLACE        PLACE/opt/pumice is pumice as packages install it

The messages of the device plugin API are read by Google's protobuf from the descriptions below, so that what the plugin writes by
hand is judged by another program.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import grpc
import kubernetes_validate
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from ruamel.yaml import YAML

DEPLOY = Path("docs/deploy")
VERSIONS = ["1.28", "1.32"]
SECONDS = 30
TEXT, FLAG, MESSAGE = (descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
                       descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE)
# Each message of v1beta1 that is used here: its fields by their numbers; "*" stands for any number of them.
MESSAGES = {
    "RegisterRequest": {1: ("version", TEXT), 2: ("endpoint", TEXT), 3: ("resource_name", TEXT)},
    "Device": {1: ("ID", TEXT), 2: ("health", TEXT)},
    "ListAndWatchResponse": {1: ("devices*", "Device")},
    "ContainerAllocateRequest": {1: ("devices_ids*", TEXT)},
    "AllocateRequest": {1: ("container_requests*", "ContainerAllocateRequest")},
    "Pair": {1: ("key", TEXT), 2: ("value", TEXT)},
    "Mount": {1: ("container_path", TEXT), 2: ("host_path", TEXT), 3: ("read_only", FLAG)},
    "ContainerAllocateResponse": {1: ("envs*", "Pair"), 2: ("mounts*", "Mount")},
    "AllocateResponse": {1: ("container_responses*", "ContainerAllocateResponse")},
}


def messages() -> dict:
    file = descriptor_pb2.FileDescriptorProto(name="v1beta1.proto", package="v1beta1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (label, kind) in fields.items():
            one = message.field.add(name=label.rstrip("*"), number=number, label=3 if label.endswith("*") else 1)
            if isinstance(kind, str):
                one.type, one.type_name = MESSAGE, f".v1beta1.{kind}"
            else:
                one.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}")) for name in MESSAGES}


API = messages()


def forms() -> int:
    count = 0
    for file in [*DEPLOY.glob("kind/*.yml"), *DEPLOY.glob("kubernetes/*.yml")]:
        for document in YAML(typ="safe").load_all(file):
            if document["kind"] == "Cluster":
                continue
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
            count += 1
    return count


class Kubelet:
    """What a kubelet does with device plugins: it listens, and calls those that register."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.registered = folder, Queue()
        self.server = grpc.server(ThreadPoolExecutor(4))
        method = grpc.unary_unary_rpc_method_handler(self.register, request_deserializer=API["RegisterRequest"].FromString)
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method})])
        self.server.add_insecure_port(f"unix://{folder}/kubelet.sock")
        self.server.start()

    def register(self, request, _context) -> bytes:
        self.registered.put(request)
        return b""

    def end(self) -> None:
        """As one that starts again: it removes all sockets of its folder."""
        self.server.stop(0).wait()
        for socket in self.folder.iterdir():
            socket.unlink()


def check(is_good: bool, sentence: str) -> None:
    if not is_good:
        sys.exit(f"kubernetes: {sentence}")


def devices(channel: grpc.Channel):
    """The lists that the plugin sends."""
    call = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", response_deserializer=API["ListAndWatchResponse"].FromString)
    return call(b"", timeout=SECONDS)


def run_as_container(mounts: list[tuple[str, str]], variables: dict[str, str], command: list[str]) -> str:
    """Runs a command in a mount namespace with these mounts, only to read, and these variables."""
    steps = [
        f'mkdir -p "{inside}" && mount --bind "{node}" "{inside}" && mount -o remount,bind,ro "{inside}"' for node, inside in mounts
    ]
    script = " && ".join(["mount -t tmpfs tmpfs /opt", *steps, 'exec "$@"'])
    own = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": os.environ["PLACE"], **variables}
    ended = subprocess.run(
        ["unshare", "-m", "-r", "sh", "-c", script, "sh", *command], env=own, text=True, capture_output=True, timeout=SECONDS
    )
    check(ended.returncode == 0, f"{command} in a container ends with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def plugin_is_tried(place: Path) -> None:
    folder, node = place / "kubelet", place / "opt/pumice"
    folder.mkdir()
    kubelet = Kubelet(folder)
    plugin = subprocess.Popen(
        [sys.executable, str(DEPLOY / "kubernetes/device-plugin.py"), "--kubelet", str(folder), "--installed", str(node), "--count",
         "3", "--set", "PUMICE_PROFILE=connectx"]
    )
    try:
        request = kubelet.registered.get(timeout=SECONDS)
        check((request.version, request.resource_name) == ("v1beta1", "rdma/pumice"), f"registered as {request}")
        with grpc.insecure_channel(f"unix://{folder}/{request.endpoint}") as channel:
            lists = devices(channel)
            first = next(lists)
            check([one.health for one in first.devices] == ["Healthy"] * 3, f"not three healthy devices: {first}")
            check(len({one.ID for one in first.devices}) == 3, f"devices share names: {first}")
            library = node / "lib/pumice/libpumice.so"
            library.rename(place / "taken-away")
            check(next(lists).devices[0].health == "Unhealthy", "devices are healthy without libpumice.so")
            (place / "taken-away").rename(library)
            check(next(lists).devices[0].health == "Healthy", "devices stay unhealthy")
            lists.cancel()
            allocate = channel.unary_unary("/v1beta1.DevicePlugin/Allocate", response_deserializer=API["AllocateResponse"].FromString)
            asked = API["AllocateRequest"]()
            for name in [["pumice-0"], ["pumice-1", "pumice-2"]]:
                asked.container_requests.add(devices_ids=name)
            answer = allocate(asked.SerializeToString(), timeout=SECONDS)
            check(len(answer.container_responses) == 2, f"two containers ask, and the answer is {answer}")
            got = answer.container_responses[0]
            check(all(mount.read_only for mount in got.mounts), f"containers may write: {got}")
        mounts = [(mount.host_path, mount.container_path) for mount in got.mounts]
        variables = {pair.key: pair.value for pair in got.envs}
        shown = run_as_container(mounts, variables, ["ibv_devinfo"])
        check("hca_id:\tpumice0" in shown and "0x02c9" in shown, f"not the device of --set: {shown}")
        check("pumice0" in run_as_container(mounts, variables, ["/opt/pumice/bin/pumice", "devices"]), "pumice itself does not run")
        kubelet.end()
        kubelet = Kubelet(folder)
        kubelet.registered.get(timeout=SECONDS)
    finally:
        plugin.terminate()
        plugin.wait()
        kubelet.end()


def cdi_is_tried(place: Path) -> None:
    """The file for container engines says the same as the plugin."""
    spec = json.loads((DEPLOY / "cdi/pumice.json").read_text())
    check(set(spec) == {"cdiVersion", "kind", "devices"} and spec["kind"] == "rdma/pumice", "fields of the CDI file")
    for device in spec["devices"]:
        edits = device["containerEdits"]
        check(set(edits) == {"env", "mounts"}, f"edits {set(edits)}")
        mounts = [(one["hostPath"].replace("/opt/", f"{place}/opt/", 1), one["containerPath"]) for one in edits["mounts"]]
        variables = dict(pair.split("=", 1) for pair in edits["env"])
        check("pumice0" in run_as_container(mounts, variables, ["ibv_devices"]), "no device by the CDI file")


def main() -> None:
    place = Path(sys.argv[1]).resolve()
    os.environ["PLACE"] = str(place)
    print(f"{forms()} documents for Kubernetes {' and '.join(VERSIONS)}")
    if not shutil.which("ibv_devinfo") or subprocess.run(["unshare", "-m", "-r", "true"]).returncode:
        print("no containers are tried: there is no ibv_devinfo, or namespaces of users are not allowed")
        sys.exit(77)
    begun = time.monotonic()
    plugin_is_tried(place)
    cdi_is_tried(place)
    print(f"the device plugin registered twice and gave devices, in {time.monotonic() - begun:.1f} s")


main()
