"""LeNet on Fashion-MNIST with three kinds of neurons. Run: python examples/fashion_mnist.py [data] [epochs]

The first run downloads Fashion-MNIST (30 MB). `digits` needs no download.
"""

import sys
import tempfile
from pathlib import Path

from apical.train import Event, Execution, TrialSpec, evaluate, run

DATA, EPOCHS = (*sys.argv[1:], *("fashion-mnist", "30")[len(sys.argv) - 1 :])
SIZE = {"fashion-mnist": {}, "digits": {"dims": {"image_size": 32}, "pad": 12}}  # digits are 8 x 8


def show(event: Event) -> None:
    """A line for each epoch."""
    if event.record is not None:
        accuracy = event.record["validation"]["accuracy"]
        print(f"  epoch {event.epoch}: loss {event.record['loss']:.3f}, validation accuracy {100 * accuracy:.2f} %")


with tempfile.TemporaryDirectory() as folder:
    for unit in ("relu", "ada(alpha=0.3)", "pynada(alpha=learn)"):
        print(unit)
        spec = TrialSpec.paper(DATA, "lenet", unit=unit, epochs=int(EPOCHS), seed=0, **SIZE[DATA])
        result = run(spec, Execution(), Path(folder) / unit, [show])
        test = evaluate(result)  # opens the test images, once
        print(f"  test accuracy {100 * test.scores['accuracy']:.2f} %, weights of epoch {result.best_epoch}\n")
