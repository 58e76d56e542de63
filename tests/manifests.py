"""Manifests with another content but a right checksum, to test what is checked beyond it."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from betae.storage import CHECKSUM, manifest_checksum


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest of a store in place."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest | {CHECKSUM: manifest_checksum(manifest)}))


def approve_parts(folder: Path) -> None:
    """Give the manifest the sizes and checksums that the parts of a store have now."""

    def update(manifest: dict[str, Any]) -> None:
        for name, part in manifest["parts"].items():
            content = (folder / name).read_bytes()
            part |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    edit_manifest(folder, update)
