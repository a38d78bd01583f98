"""Unpacks an OCI image, as a container engine does: checks all digests, applies the layers, and says what it runs.

    unpack.py IMAGE.oci.tar FOLDER
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def main() -> None:
    archive, folder = Path(sys.argv[1]), Path(sys.argv[2])
    with tarfile.open(archive) as tar:
        files = {info.name: tar.extractfile(info).read() for info in tar if info.isfile()}

    def blob(descriptor: dict) -> bytes:
        data = files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], descriptor
        assert len(data) == descriptor["size"], descriptor
        return data

    assert json.loads(files["oci-layout"])["imageLayoutVersion"] == "1.0.0"
    (described,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"])
    folder.mkdir()
    for layer, digest in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
        data = gzip.decompress(blob(layer))
        assert "sha256:" + hashlib.sha256(data).hexdigest() == digest, layer
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(folder, numeric_owner=True, filter="fully_trusted")
    (older,) = json.loads(files["manifest.json"])
    assert older["Config"] in files and all(layer in files for layer in older["Layers"])
    user = config["config"]["User"]
    assert user.split(":")[0] not in ("", "0", "root"), user
    unpacked = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"digests are right; {unpacked / 1e6:.1f} MB unpacked; runs {config['config']['Cmd']} as {user}")


if __name__ == "__main__":
    main()
