"""Writes an image as an OCI image layout in a tar file, which `podman load`, `docker load` (25 or newer) and skopeo read.

    oci.py --version VERSION --arch amd64|arm64 --base ROOT.tar --layer FOLDER --out FILE.tar

The image has two layers: the root in --base, and FOLDER. No daemon, no root rights and no registry are needed. The layout is a
handful of JSON documents that name each other by SHA-256 (github.com/opencontainers/image-spec, v1.1). Times are
SOURCE_DATE_EPOCH at the latest.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
import time
from pathlib import Path

USER = "pumice"
UID = 1000
HOME = f"/home/{USER}"
PASSWD = f"root:x:0:0:root:/root:/bin/bash\n{USER}:x:{UID}:{UID}::{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
GROUP = f"root:x:0:\n{USER}:x:{UID}:\nnogroup:x:65534:\n"
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])


def entry(name: str, mode: int, kind: bytes = tarfile.REGTYPE, owner: int = 0) -> tarfile.TarInfo:
    """An entry of a layer."""
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.mtime = mode, kind, EPOCH
    info.uid = info.gid = owner
    return info


def add_file(layer: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = entry(name, mode)
    info.size = len(data)
    layer.addfile(info, io.BytesIO(data))


def base_layer(root: Path) -> bytes:
    """The tar file of the root: sorted, and without files that depend on the machine that made it."""
    out = io.BytesIO()
    dropped = ("./dev/", "./var/cache/", "./var/log/", "./var/lib/apt/", "./etc/apt/", "./tmp/")
    with tarfile.open(root) as source, tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as layer:
        # A hard link must stay behind the file that it names, so the order stays: that of the packages.
        for info in source:
            if info.name.startswith(dropped) or info.ischr() or info.isblk():
                continue
            info.mtime = min(info.mtime, EPOCH)
            info.uname = info.gname = ""
            info.pax_headers = {}
            layer.addfile(info, source.extractfile(info) if info.isreg() else None)
    return out.getvalue()


def own_layer(folder: Path) -> bytes:
    """pumice, and the account that runs it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for path in sorted(folder.rglob("*")):
            name = f"./{path.relative_to(folder)}"
            if path.is_symlink():
                info = entry(name, 0o777, tarfile.SYMTYPE)
                info.linkname = os.readlink(path)
                layer.addfile(info)
            elif path.is_dir():
                layer.addfile(entry(name, 0o755, tarfile.DIRTYPE))
            else:
                add_file(layer, name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
        # What the scripts of Debian's packages would make.
        awk = entry("./usr/bin/awk", 0o777, tarfile.SYMTYPE)
        awk.linkname = "mawk"
        layer.addfile(awk)
        add_file(layer, "./etc/passwd", PASSWD.encode())
        add_file(layer, "./etc/group", GROUP.encode())
        layer.addfile(entry(f".{HOME}", 0o700, tarfile.DIRTYPE, UID))
    return out.getvalue()


class Layout:
    """The files of the layout."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def blob(self, data: bytes, media_type: str) -> dict:
        """Keeps a blob. Its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def document(self, value: object, media_type: str) -> dict:
        return self.blob(json.dumps(value, sort_keys=True).encode(), media_type)

    def write(self, path: Path) -> None:
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for folder in ("blobs", "blobs/sha256"):
                archive.addfile(entry(folder, 0o755, tarfile.DIRTYPE))
            for name in sorted(self.files):
                add_file(archive, name, self.files[name])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--layer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    layout = Layout()
    layers = [base_layer(options.base), own_layer(options.layer)]
    made = "application/vnd.oci.image.layer.v1.tar+gzip"
    descriptors = [layout.blob(gzip.compress(layer, 9, mtime=0), made) for layer in layers]
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    about = {
        "org.opencontainers.image.title": "pumice",
        "org.opencontainers.image.version": options.version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.source": "https://github.com/pumice-rdma/pumice",
    }
    config = {
        "created": created,
        "architecture": options.arch,
        "os": "linux",
        "config": {
            "User": f"{UID}:{UID}",
            "WorkingDir": HOME,
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", f"HOME={HOME}", "LANG=C.UTF-8"],
            "Cmd": ["pumice", "doctor"],
            "Labels": about,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers],
        },
        "history": [
            {"created": created, "created_by": "Debian 12, ibverbs-utils, rdmacm-utils"},
            {"created": created, "created_by": f"pumice {options.version}"},
        ],
    }
    described = layout.document(config, "application/vnd.oci.image.config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described,
        "layers": descriptors,
        "annotations": about,
    }
    described_manifest = layout.document(manifest, manifest["mediaType"])
    described_manifest["annotations"] = {
        "org.opencontainers.image.ref.name": options.version,
        "io.containerd.image.name": f"docker.io/library/pumice:{options.version}",
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described_manifest],
    }
    layout.files["index.json"] = json.dumps(index, sort_keys=True).encode()
    layout.files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    # What `docker load` before version 25 reads.
    older = {
        "Config": described["digest"].replace("sha256:", "blobs/sha256/"),
        "RepoTags": [f"pumice:{options.version}"],
        "Layers": [layer["digest"].replace("sha256:", "blobs/sha256/") for layer in descriptors],
    }
    layout.files["manifest.json"] = json.dumps([older], sort_keys=True).encode()
    layout.write(options.out)


if __name__ == "__main__":
    main()
