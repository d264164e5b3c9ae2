"""Makes the seeds in `idx/` and `tar/`.

Packages: pillow.
Run: python make.py
"""

import gzip
import io
import pathlib
import struct
import tarfile

from PIL import Image

HERE = pathlib.Path(__file__).parent


def idx(dims, values, kind=8):
    return struct.pack(f">BBBB{len(dims)}I", 0, 0, kind, len(dims), *dims) + bytes(values)


def png(grey):
    data = io.BytesIO()
    Image.new("RGB", (2, 2), (grey, 0, 255 - grey)).save(data, "PNG")
    return data.getvalue()


def tar(names, form=tarfile.GNU_FORMAT):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as archive:
        for name, content in names:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def main():
    images, labels = idx([3, 1, 2], range(6)), idx([3], range(3))
    seeds = {
        "idx/images": images,
        "idx/labels": labels,
        "idx/images.gz": gzip.compress(images, mtime=0),
        "idx/labels.gz": gzip.compress(labels, mtime=0),
        "idx/floats": idx([3], bytes(12), kind=13),
    }
    pairs = [(f"{i:03}.{end}", data) for i in range(3) for end, data in [("png", png(i)), ("cls", b"%d" % i)]]
    deep = "folder/" * 20
    seeds |= {
        "tar/gnu.tar": tar(pairs),
        "tar/pax.tar": tar([(f"{deep}é{name}", data) for name, data in pairs], tarfile.PAX_FORMAT),
        "tar/gnu_long_names.tar": tar([(deep + name, data) for name, data in pairs]),
        "tar/other_files.tar": tar([("readme.txt", b"hello"), *pairs[:2], ("001.json", b"{}")]),
        "tar/no_end.tar": tar(pairs)[:6144],
    }
    for name, data in seeds.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


main()
