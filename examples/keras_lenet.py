"""LeNet of pyramidal neurons in Keras. Run: python examples/keras_lenet.py [fashion-mnist|digits] [epochs]"""

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "torch")  # or jax, or tensorflow

import keras
from keras import layers
from sklearn.datasets import load_digits

import apical
from apical.keras import PyramidalConv2D, PyramidalDense

name, epochs = (*sys.argv[1:], *["fashion-mnist", "10"][len(sys.argv) - 1 :])
if name == "digits":  # 1,797 small images that come with scikit-learn
    images, labels = load_digits().images[..., None] / 16 - 0.3, load_digits().target
else:
    (batch,) = apical.data.load(name).train.batches(50_000).epoch()
    images, labels = batch.inputs.movedim(1, -1).numpy(), batch.labels.numpy()  # Keras has the channels last
neurons = {"basal": "relu", "apical": "ada(alpha=0.7)"}
model = keras.Sequential([
    layers.Resizing(32, 32),
    PyramidalConv2D(6, 5, **neurons), layers.MaxPooling2D(),
    PyramidalConv2D(16, 5, **neurons), layers.MaxPooling2D(), layers.Flatten(),
    PyramidalDense(120, **neurons), PyramidalDense(84, **neurons), layers.Dense(10),
])  # fmt: skip
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, metrics=["accuracy"])
model.fit(images, labels, batch_size=64, epochs=int(epochs), validation_split=0.15, verbose=2)
