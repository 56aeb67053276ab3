"""Reads S3 with pyarrow, which shares no code with the ETL's client."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

import pyarrow.fs
from tests.support.s3_server import CREDENTIALS

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage import NotFound


def arrow_options(settings: StorageSettings) -> dict[str, str]:
    """Arguments of `S3FileSystem` for a server."""
    server = urlsplit(settings.s3_endpoint)
    return {
        "access_key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "secret_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "endpoint_override": server.netloc,
        "scheme": server.scheme,
        "region": settings.s3_region,
    }


class ArrowS3:
    """Objects below a root `s3://…`, as pyarrow sees them."""

    def __init__(self, settings: StorageSettings, root: str) -> None:
        self.file_system = pyarrow.fs.S3FileSystem(**arrow_options(settings))
        self._root = root.removeprefix("s3://")

    def objects(self, folder: str) -> list[str]:
        """Keys of all objects below it, relative to the root; empty if there are none."""
        chosen = pyarrow.fs.FileSelector(
            f"{self._root}/{folder}".rstrip("/"), allow_not_found=True, recursive=True
        )
        return sorted(
            info.path.removeprefix(f"{self._root}/")
            for info in self.file_system.get_file_info(chosen)
            if info.is_file
        )

    def read(self, path: str) -> bytes:
        """The content of an object."""
        with self.file_system.open_input_file(f"{self._root}/{path}") as file:
            content: bytes = file.read()
        return content

    def list(self, folder: str) -> list[PurePosixPath]:
        """Paths of what is directly below it; raises NotFound."""
        chosen = pyarrow.fs.FileSelector(f"{self._root}/{folder}")
        try:
            return [PurePosixPath(i.path) for i in self.file_system.get_file_info(chosen)]
        except FileNotFoundError as error:
            raise NotFound(folder, folder, "there is no such prefix") from error
