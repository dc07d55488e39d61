"""TensorFlow's CheckpointManager with max_to_keep=1. Its file `checkpoint` names the newest; it is written behind each, and
before the one that it leaves out is removed."""

import multiprocessing
import os

import tensorflow as tf

from harness import check
from polled import poll

ENVIRONMENT = "spark"
SAVES, COPIES = 60, 400
SIZE = 50_000


def parts(number):
    """One of each kind of what a checkpoint has: numbers, and an array."""
    return {"number": tf.Variable(number, dtype=tf.int64),
            "weights": tf.Variable(tf.random.stateless_uniform([SIZE], [number, 1]))}


def work(folder, saves, count):
    state = tf.train.Checkpoint(**parts(0))
    manager = tf.train.CheckpointManager(state, folder, max_to_keep=1)
    for number in range(1, count + 1):
        for name, value in parts(number).items():
            getattr(state, name).assign(value)
        saves.begin(number)
        manager.save(checkpoint_number=number)
        saves.end(number)


def save(mountpoint, saves, count):
    process = multiprocessing.get_context("spawn").Process(target=work, args=(os.path.join(mountpoint, "model"), saves, count))
    process.start()
    process.join()
    check(process.exitcode == 0, f"TensorFlow ended with {process.exitcode}")


def load(copy):
    folder = os.path.join(copy, "model")
    newest = tf.train.latest_checkpoint(folder)
    if not newest:
        check(not os.path.exists(os.path.join(folder, "checkpoint")), "the file `checkpoint` names what is not there")
        return 0
    state = tf.train.Checkpoint(**parts(0))
    state.restore(newest).assert_existing_objects_matched()
    number = int(state.number.numpy())
    check(newest.endswith(f"ckpt-{number}"), f"{newest} has {number}")
    check(bool(tf.reduce_all(state.weights == parts(number)["weights"])), f"{newest}: other weights")
    return number


def story(stores):
    poll("CheckpointManager", stores, "tfos", save, load, SAVES, COPIES)
