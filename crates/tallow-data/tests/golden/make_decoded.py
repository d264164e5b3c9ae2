"""Writes what Pillow reads from folders of test pictures, a line a file, to decoded.txt.

Packages: pillow 13.0.0, numpy.
Run: python make_decoded.py NAME=FOLDER...   with
    libjxl=/usr/share/libjxl-testdata   (Debian's libjxl-testdata)
    pillow=.../pillow-13.0.0/Tests/images   (Pillow's source package)

A line: folder/path, tab, bytes of the file, tab, then "refused", or height x width, the CRC-32 of the RGB bytes, and 24
bytes of them at evenly spaced places, all in hexadecimal.
"""

import pathlib
import sys
import warnings
import zlib

import numpy as np
from PIL import Image

warnings.simplefilter("ignore")
MARKS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM")


def line(path):
    try:
        image = Image.open(path)
        image.load()
        if image.mode.startswith("I"):
            image = Image.fromarray((np.array(image).astype(np.uint32) >> 8).astype(np.uint8))
        values = np.array(image.convert("RGB"))
    except Exception:
        return "refused"
    flat = values.reshape(-1)
    places = [i * flat.size // 24 for i in range(24)]
    return f"{values.shape[0]}x{values.shape[1]} {zlib.crc32(flat.tobytes()):08x} {flat[places].tobytes().hex()}"


def main():
    lines = []
    for name, folder in (argument.split("=") for argument in sys.argv[1:]):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if not path.is_file():
                continue
            head = path.read_bytes()[:12]
            if head.startswith(MARKS) or head[8:12] == b"WEBP":
                where = f"{name}/{path.relative_to(folder).as_posix()}"
                lines.append(f"{where}\t{path.stat().st_size}\t{line(path)}\n")
    (pathlib.Path(__file__).parent / "decoded.txt").write_text("".join(lines))


main()
