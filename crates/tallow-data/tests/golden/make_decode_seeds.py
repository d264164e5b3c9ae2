"""Makes the files in `decode/`: one small picture in every format, and the RGB bytes that Pillow reads from each.

Packages: pillow 13.0.0, numpy.
Run: python make_decode_seeds.py
"""

import pathlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parent / "decode"


def main():
    OUT.mkdir(exist_ok=True)
    y, x = np.mgrid[0:21, 0:29].astype(float)
    rgb = np.stack([8 * x, 10 * y, 128 + 100 * np.sin((x + y) / 6)], -1).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(rgb)
    grey = image.convert("L")
    alpha = Image.fromarray((x * 8).clip(0, 255).astype(np.uint8))
    rgba = image.copy()
    rgba.putalpha(alpha)
    orientations = {}
    for value in range(2, 9):
        exif = Image.Exif()
        exif[0x112] = value
        orientations[f"orientation_{value}.jpg"] = (image, {"quality": 90, "exif": exif})
    files = {
        "rgb.png": (image, {}),
        "grey.png": (grey, {}),
        "rgba.png": (rgba, {}),
        "grey_alpha.png": (Image.merge("LA", [grey, alpha]), {}),
        "palette.png": (image.quantize(32), {}),
        "grey16.png": (Image.fromarray((x * 2000 + y * 77).astype(np.uint16)), {}),
        "bilevel.png": (grey.convert("1"), {}),
        "gif.gif": (image.quantize(32), {}),
        "bmp.bmp": (image, {}),
        "lossless.webp": (image, {"lossless": True}),
        "lossless_alpha.webp": (rgba, {"lossless": True, "exact": True}),
        "lossy.webp": (image, {"quality": 80}),
        "baseline.jpg": (image, {"quality": 90, "subsampling": 0}),
        "progressive.jpg": (image, {"quality": 90, "progressive": True, "subsampling": 0}),
        "subsampled.jpg": (image, {"quality": 90, "subsampling": 2}),
        "grey_jpeg.jpg": (grey, {"quality": 90}),
        "cmyk.jpg": (image.convert("CMYK"), {"quality": 90}),
    } | orientations
    for name, (picture, settings) in files.items():
        picture.save(OUT / name, **settings)
        read = Image.open(OUT / name)
        if read.mode.startswith("I"):
            read = Image.fromarray((np.array(read) >> 8).astype(np.uint8))
        if not name.startswith("orientation"):
            (OUT / name).with_suffix(".rgb").write_bytes(read.convert("RGB").tobytes())



main()
