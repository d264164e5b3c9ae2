"""Makes the files in `transforms/`: one picture, and what Pillow and torchvision make of it.

Packages: torch 2.15.0, torchvision 0.29.2, pillow 13.0.0, numpy.
Run: python make_transforms.py
"""

import pathlib

import numpy as np
import torch
import torchvision.transforms.v2.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode

OUT = pathlib.Path(__file__).parent / "transforms"


def picture(height=61, width=83):
    """Smooth colours, a few sharp edges and some noise: what photographs have."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    noise = np.random.default_rng(7).normal(0, 6, (height, width, 3))
    smooth = [
        120 + 90 * np.sin(x / 9) * np.cos(y / 13),
        60 + 1.7 * x + 0.6 * y,
        200 - 1.5 * y + 30 * np.sin((x + y) / 5),
    ]
    image = np.stack(smooth, -1) + noise
    image[12:30, 20:45] = [230, 40, 60]
    image[(x - 60) ** 2 + (y - 40) ** 2 < 130] = [30, 90, 220]
    return Image.fromarray(image.clip(0, 255).astype(np.uint8))


def main():
    OUT.mkdir(exist_ok=True)
    image = picture()
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    nearest, bilinear, bicubic = InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC

    # Geometry by Pillow, as torchvision has it for PIL images.
    made = {
        "picture": image,
        "resize_shorter_40": F.resize(image, [40]),
        "resize_50x70": F.resize(image, [50, 70]),
        "resize_larger": F.resize(image, [90, 100]),
        "resize_max_size": F.resize(image, [40], max_size=50),
        "resize_longer_50": F.resize(image, None, max_size=50),
        "resize_center_crop": F.center_crop(F.resize(image, [40]), [33, 30]),
        "resize_bicubic": F.resize(image, [33, 47], InterpolationMode.BICUBIC),
        "center_crop": F.center_crop(image, [40, 50]),
        "horizontal_flip": F.horizontal_flip(image),
        "vertical_flip": F.vertical_flip(image),
        "rotate_30": F.rotate(image, 30.0, nearest),
        "rotate_30_bilinear": F.rotate(image, 30.0, bilinear),
        "rotate_30_bicubic": F.rotate(image, 30.0, bicubic),
        "rotate_expand": F.rotate(image, -20.0, nearest, expand=True, fill=9),
        "affine": F.affine(image, 15.0, [7, -4], 1.2, [10.0, -5.0], nearest, fill=40),
        "affine_bilinear": F.affine(image, 15.0, [7, -4], 0.8, [10.0, -5.0], bilinear),
        "affine_bicubic": F.affine(image, 15.0, [7, -4], 0.8, [10.0, -5.0], bicubic),
        "pad_constant": F.pad(image, [3, 4, 5, 6], 17, "constant"),
        "pad_edge": F.pad(image, [3, 4, 5, 6], 0, "edge"),
        "pad_reflect": F.pad(image, [3, 4, 5, 6], 0, "reflect"),
        "pad_symmetric": F.pad(image, [3, 4, 5, 6], 0, "symmetric"),
    }
    # Colours by torchvision's own arithmetic on tensors.
    colours = {
        "brightness": F.adjust_brightness(tensor, 1.4),
        "contrast": F.adjust_contrast(tensor, 0.6),
        "saturation": F.adjust_saturation(tensor, 1.7),
        "hue": F.adjust_hue(tensor, 0.2),
        "hue_back": F.adjust_hue(tensor, -0.35),
        "sharpness": F.adjust_sharpness(tensor, 1.9),
        "smoothness": F.adjust_sharpness(tensor, 0.1),
        "grayscale": F.rgb_to_grayscale(tensor, 3),
        "posterize": F.posterize(tensor, 3),
        "solarize": F.solarize(tensor, 128.0),
        "autocontrast": F.autocontrast(tensor),
        "equalize": F.equalize(tensor),
    }
    made |= {name: Image.fromarray(t.permute(1, 2, 0).numpy()) for name, t in colours.items()}
    for name, result in made.items():
        result.save(OUT / f"{name}.png", optimize=True)

    floats = F.normalize(F.to_dtype(tensor, torch.float32, scale=True), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    (OUT / "normalized.f32").write_bytes(floats[:, :8, :10].contiguous().numpy().astype("<f4").tobytes())


main()
