"""Reading and preparing data: `python benchmarks/data.py [--quick]`.

1. Fashion-MNIST in batches of 64, one epoch: apical's batches against torch's DataLoader over a TensorDataset.
2. Preparing Tiny ImageNet images against a bare Pillow decode loop on the same cores.
3. Opening prepared sets of 1,000 and of 1,331,167 rows.
4. Peak resident memory of 2 workers that read an epoch, for small and large data and for small and large batches.

Fashion-MNIST must be on the machine (`apical data prepare fashion-mnist`); everything else is fabricated in a
temporary folder, about 4 GB.
"""

import argparse
import io
import multiprocessing
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, TensorDataset

from apical import bench, data, env
from apical.data import loading, registry, store
from apical.data.sets.tiny_imagenet_classes import WNIDS
from apical.data.split import Parts


def batches_of_64(rounds: int) -> None:
    torch.set_num_threads(1)
    train = data.load("fashion-mnist").train
    ours = train.batches(64, shuffle=True)
    tensors = TensorDataset(train.inputs(np.arange(len(train))), torch.from_numpy(train.labels))
    theirs = DataLoader(tensors, batch_size=64, shuffle=True)
    candidates = {
        "apical": lambda: [None for _ in ours.epoch(1)],
        "torch DataLoader": lambda: [None for _ in theirs],
    }
    timings = bench.compare(
        "epoch, batches of 64", candidates, reference="torch DataLoader", rounds=rounds, seconds=0.01
    )
    print(bench.as_text(timings))
    print(f"Fashion-MNIST: apical is {1 / timings[0].ratio:.1f} times as fast, 1 thread (wanted: at least 5)\n")


def fabricate_tiny_imagenet(folder: Path, per_class: int) -> list[Path]:
    """The official layout; 500 different pictures, linked often enough."""
    pictures, draws = [], np.random.RandomState(0)
    (folder / "pictures").mkdir()
    for k in range(500):
        noise = Image.fromarray(draws.randint(0, 256, (64, 64, 3)).astype(np.uint8))
        out = io.BytesIO()
        noise.filter(ImageFilter.GaussianBlur(2)).save(out, "JPEG", quality=85)
        pictures.append(folder / "pictures" / f"{k}.JPEG")
        pictures[-1].write_bytes(out.getvalue())
    root = folder / "tiny-imagenet-200"
    for wnid in WNIDS:
        images = root / "train" / wnid / "images"
        images.mkdir(parents=True)
        for k in range(per_class):
            (images / f"{wnid}_{k}.JPEG").hardlink_to(pictures[(k * 7) % 500])
    (root / "val" / "images").mkdir(parents=True)
    (root / "val" / "images" / "val_0.JPEG").hardlink_to(pictures[0])
    (root / "val" / "val_annotations.txt").write_text(f"val_0.JPEG\t{WNIDS[0]}\t0\t0\t1\t1\n")
    (root / "wnids.txt").write_text("\n".join(WNIDS))
    (root / "words.txt").write_text("")
    return sorted(root.rglob("*.JPEG"))


def decode_bare(paths: list[Path]) -> int:
    return sum(np.asarray(Image.open(p).convert("RGB")).size for p in paths)


def preparing(folder: Path, rounds: int, per_class: int) -> None:
    files = fabricate_tiny_imagenet(folder, per_class)
    cores = os.cpu_count() or 1
    os.environ["APICAL_HOME"] = str(folder / "home")

    def prepare() -> None:
        shutil.rmtree(folder / "home", ignore_errors=True)
        data.prepare("tiny-imagenet", folder / "tiny-imagenet-200", partial=True)

    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        shares = [files[k::cores] for k in range(cores)]
        pool.map(decode_bare, [s[:10] for s in shares])  # start the processes before the clock
        candidates = {
            "prepare, all of it": prepare,
            "bare Pillow loop": lambda: pool.map(decode_bare, shares),
        }
        timings = bench.compare(
            f"{len(files):,} images", candidates, reference="bare Pillow loop", rounds=rounds, seconds=0.01
        )
    print(bench.as_text(timings))
    speed = len(files) / (timings[0].microseconds / 1e6)
    print(
        f"Tiny ImageNet: {speed:,.0f} images/s prepared with {cores} processes, {100 / timings[0].ratio:.0f} % of the"
    )
    print("speed of the bare loop on warm processes (wanted: at least 80 %)\n")


def fabricate_store(folder: Path, rows: int, shape: tuple[int, ...]) -> Path:
    """A prepared image set of any size, as `prepare` would leave it."""

    def build(draft: store.Draft) -> None:
        inputs = draft.array("inputs", (rows, *shape), np.uint8)
        for start in range(0, rows, 4096):
            inputs[start : start + 4096] = start % 251
        draft.save("gender", np.arange(rows) % 2)
        draft.row_means = np.full(rows, 7.0)
        draft.identify([f"sample-{i:07d}" for i in range(rows)])
        order = np.random.RandomState(0).permutation(rows)
        draft.split("paper", Parts(order[: -rows // 10], order[-rows // 10 : -rows // 20], order[-rows // 20 :]))
        draft.facts |= {"name": "utkface", "source": "fabricated", "official": rows}

    target = folder / f"store-{rows}"
    store.publish(target, build, partial=True)
    return target


def open_store(folder: Path) -> object:
    return loading.assemble(registry.get("utkface-gender"), store.Store(folder), "paper")


def opening(folder: Path, rounds: int) -> None:
    stores = {f"{rows:,} rows": fabricate_store(folder, rows, (1, 4, 4)) for rows in (1_000, 1_331_167)}
    candidates = {name: partial(open_store, store) for name, store in stores.items()}
    times = bench.interleaved(candidates, rounds=rounds, seconds=0.02)
    for name in stores:
        print(f"opening {name}: {1e3 * median(times[name]):.2f} ms (wanted: under 50 ms)")
    print()


def read_epoch(store: Path, size: int, rank: int) -> tuple[int, int]:
    """Resident KB before and at the peak of one epoch over this rank's half."""
    train = open_store(store).train  # type: ignore[attr-defined]
    next(train.batches(size, shuffle=True, rank=rank, world=2).epoch(0))
    before = resident("VmRSS")
    for _ in train.batches(size, shuffle=True, rank=rank, world=2).epoch(1):
        pass
    return before, resident("VmHWM")


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def memory(folder: Path, quick: bool) -> None:
    rows = (1_000, 4_000) if quick else (5_000, 20_000)
    for n in rows:
        store = fabricate_store(folder / "memory", n, (3, 200, 200))
        for size in (32, 256):
            with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
                peaks = pool.starmap(read_epoch, [(store, size, rank) for rank in range(2)], chunksize=1)
            grown = max(peak - before for before, peak in peaks) / 1024
            print(f"memory: data {n * 0.12:,.0f} MB, batch {size}: a worker of 2 grows by {grown:,.0f} MB in an epoch")
        shutil.rmtree(store)
    print("(wanted: growth with the batch, not with the data)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and images")
    quick = parser.parse_args().quick
    facts = env.facts()
    print(f"{facts['processor']}, torch {facts['torch']}\n")
    batches_of_64(3 if quick else 15)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        preparing(folder, 2 if quick else 5, 50 if quick else 250)
        opening(folder, 5 if quick else 15)
        memory(folder, quick)


if __name__ == "__main__":
    main()
