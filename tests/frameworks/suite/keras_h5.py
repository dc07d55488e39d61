"""Keras to .h5 (HDF5 writes at random offsets), overwritten each epoch, and h5py in place."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import h5py
import keras
import numpy as np

SAME_BYTES = ["table.h5"]


def fit(folder):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(256, activation="relu"),
                              keras.layers.Dense(4)])
    model.compile("adam", keras.losses.MeanSquaredError())
    rows = np.random.default_rng(0).normal(size=(64, 16)).astype("float32")
    each = keras.callbacks.ModelCheckpoint(os.path.join(folder, "checkpoint.h5"))
    weights = keras.callbacks.ModelCheckpoint(os.path.join(folder, "epoch-{epoch}.weights.h5"),
                                              save_weights_only=True)
    model.fit(rows, rows[:, :4], epochs=3, verbose=0, callbacks=[each, weights])
    return model, rows


def table(step):
    return np.random.default_rng(step).integers(0, 1 << 30, size=(200, 1000))


def save(folder):
    model, rows = fit(folder)
    path = os.path.join(folder, "table.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("t", data=table(0), chunks=(16, 128), compression="gzip")
    for step in (1, 2):
        with h5py.File(path, "r+") as f:
            f["t"][step * 20:step * 20 + 5] = table(step)[:5]
            f.attrs["step"] = step
    return {"prediction": model.predict(rows, verbose=0), "rows": rows}


def load(folder, expected):
    model = keras.models.load_model(os.path.join(folder, "checkpoint.h5"))
    assert np.array_equal(model.predict(expected["rows"], verbose=0), expected["prediction"])
    model.load_weights(os.path.join(folder, "epoch-3.weights.h5"))
    assert np.array_equal(model.predict(expected["rows"], verbose=0), expected["prediction"])
    with h5py.File(os.path.join(folder, "table.h5"), "r") as f:
        wanted = table(0)
        for step in (1, 2):
            wanted[step * 20:step * 20 + 5] = table(step)[:5]
        assert np.array_equal(f["t"][:], wanted) and f.attrs["step"] == 2
