#!/usr/bin/env python3
"""The cases of benches/loader.rs with PyTorch's DataLoader and torchvision: one JSON line.

    torch_loader.py memory WORKERS
    torch_loader.py jpeg WORKERS FOLDER
    torch_loader.py make FOLDER

`memory` reads 50,000 images [3, 32, 32] out of memory: pad 4, random crop, flip, to tensor, normalize, batches of 128.
`jpeg` reads an image folder: resize 256, centre crop 224, normalize, batches of 32. `make` writes that folder: 500
JPEGs of about 500x375 pixels and 80 KB, patterns and noise, in 5 classes. Needs torch, torchvision, Pillow, numpy.
"""
import json
import os
import sys
import time


def make(folder):
    import numpy as np
    from PIL import Image

    for number in range(500):
        random = np.random.default_rng(number)
        height, width = 375 + number % 3, 500 - number % 5
        y, x = np.mgrid[0:height, 0:width] / 40
        waves = [np.sin(x * random.uniform(0.2, 2) + y * random.uniform(0.2, 2)) for _ in range(3)]
        values = np.stack(waves, -1) * 90 + 128 + random.normal(0, 10, (height, width, 3))
        image = Image.fromarray(values.clip(0, 255).astype("uint8"))
        path = os.path.join(folder, f"class{number % 5}", f"{number:03}.jpg")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        image.save(path, quality=93)


def memory():
    import torch
    from PIL import Image
    from torchvision import transforms

    change = transforms.Compose([
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    ])
    values = (torch.arange(50_000 * 32 * 32 * 3) % 253).to(torch.uint8)
    images = values.reshape(50_000, 32, 32, 3).numpy()

    class Memory(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, index):
            return change(Image.fromarray(images[index])), index % 10

    return Memory(), 128, True


def jpeg(folder):
    from torchvision import datasets, transforms

    change = transforms.Compose([
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    return datasets.ImageFolder(folder, change), 32, False


def main():
    case, *rest = sys.argv[1:]
    if case == "make":
        return make(rest[0])
    import torch

    torch.set_num_threads(1)
    workers = int(rest[0])
    data, batch, train = memory() if case == "memory" else jpeg(rest[1])
    loader = torch.utils.data.DataLoader(
        data, batch, shuffle=train, drop_last=train, num_workers=workers, persistent_workers=workers > 0
    )
    rates = []
    for _ in range(3 if train else 5):
        start, count = time.perf_counter(), 0
        for images, _ in loader:
            count += len(images)
        rates.append(count / (time.perf_counter() - start))
    # The first epoch starts the workers.
    rates = sorted(rates[1:])
    print(json.dumps({"case": case, "workers": workers, "images_per_s": rates[len(rates) // 2]}))


if __name__ == "__main__":
    main()
