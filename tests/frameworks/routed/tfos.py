"""TensorFlowOnSpark on a cluster of Spark's own, in a mount of its layout: what Spark and TensorFlow write there botocore
finds in the store; copies of it of any moment load; what others have stored Spark and TensorFlow read in the mount."""

import argparse
import glob
import os
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from pyspark.streaming import StreamingContext
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorflowonspark import TFCluster, reservation

import spark_cluster
import tfos_mains as mains
import trees
from harness import check, wait_for
from moments import Moments
from stores import seen

ENVIRONMENT = "spark"
KINDS = ["s3"]
ROWS = 400
STORE = "jobs"
NODE_SECONDS = 300 # TensorFlow alone takes 10 s to be imported where much else computes


class Job:
    def __init__(self, stores, mount, spark):
        self.stores, self.place, self.top, self.spark = stores, stores.place, mount.mountpoint, spark
        self.context = spark.sparkContext

    def at(self, *names):
        return os.path.join(self.top, *names)

    def run(self, main, name, mode, **options):
        """A cluster of two nodes; what they write is below `name`."""
        arguments = argparse.Namespace(model_dir=self.at(name, "model"), export_dir=self.at(name, "export"),
                                       log_dir=self.at(name, "logs"), data_dir=self.at("data", "text"),
                                       keep=5 if options.get("eval_node") else 2)
        return TFCluster.run(self.context, main, arguments, 2, options.pop("num_ps", 0), input_mode=mode,
                             master_node="chief", reservation_timeout=NODE_SECONDS, **options)

    def rows(self):
        return self.context.parallelize(range(ROWS), 4)


def table(spark, count, parts):
    return spark.range(0, count, 1, parts).selectExpr("id", "id * 0.5 as half")


def write_data(job):
    """With Spark's own _temporary/ and _SUCCESS, and once in place of what was there."""
    job.rows().map(mains.line).saveAsTextFile(f"file://{job.at('data', 'text')}")
    for count, parts in ((300, 3), (ROWS, 2)):
        table(job.spark, count, parts).write.mode("overwrite").parquet(f"file://{job.at('data', 'rows')}")


def end(cluster, streaming=None):
    """What hangs ends Spark, and so this process."""
    cluster.shutdown(streaming, timeout=NODE_SECONDS)


def runs_of_tensorboard(url):
    """It listens on the loopback only, whatever TensorFlowOnSpark calls it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{url.rsplit(':', 1)[1]}/data/runs", timeout=10) as answer:
        return answer.read()


def train_fed(job):
    cluster = job.run(mains.fed, "fed", TFCluster.InputMode.SPARK, tensorboard=True, log_dir=job.at("fed", "logs"))
    cluster.train(job.rows().map(mains.row), 2)
    seen("TensorBoard with the run", lambda: b"train" in runs_of_tensorboard(cluster.tensorboard_url()))
    end(cluster)


def train_served(job):
    end(job.run(mains.estimated, "served", TFCluster.InputMode.TENSORFLOW, num_ps=1))


def train_evaluated(job):
    """TensorFlowOnSpark ends evaluators once nobody else is at work, whatever they do."""
    cluster = job.run(mains.estimated, "evaluated", TFCluster.InputMode.TENSORFLOW, eval_node=True)
    wait_for("the evaluator's export", lambda: exports(job.top), NODE_SECONDS)
    end(cluster)


def exports(top):
    return glob.glob(os.path.join(top, "evaluated", "model", "export", "last", "[0-9]*", "saved_model.pb"))


def streamed_lines(top):
    """All that the nodes have counted, by their newest checkpoints."""
    count = 0
    for node in ("chief", "worker"):
        newest = tf.train.latest_checkpoint(os.path.join(top, "streamed", "model", node))
        if newest:
            count += int(tf.train.load_variable(newest, "count/.ATTRIBUTES/VARIABLE_VALUE"))
    return count


def bring(job, cluster):
    """A file by the mount, one by the store; then the stream is stopped. Spark ignores what is older than the stream,
    and the store tells only whole seconds."""
    text = "a\nb\nc\n"
    time.sleep(2)
    try:
        job.stores.put(STORE, "incoming/second", text.encode())
        with open(job.at("incoming", ".first"), "w") as f:
            f.write(text)
        os.rename(job.at("incoming", ".first"), job.at("incoming", "first"))
        wait_for("what the stream brings", lambda: streamed_lines(job.top) == 2 * mains.STREAMED, NODE_SECONDS)
    finally:
        reservation.Client(cluster.cluster_meta["server_addr"]).request_stop()


def train_streamed(job):
    os.mkdir(job.at("incoming"))
    streaming = StreamingContext(job.context, 2)
    cluster = job.run(mains.streamed, "streamed", TFCluster.InputMode.SPARK)
    cluster.train(streaming.textFileStream(f"file://{job.at('incoming')}"))
    streaming.start()
    with ThreadPoolExecutor(1) as pool:
        brought = pool.submit(bring, job, cluster)
        end(cluster, streaming)
        brought.result()


def train_faulty_fed(job):
    """Of what Spark feeds the error comes out where it is fed."""
    told = None
    try:
        job.run(mains.faulty, "faulty", TFCluster.InputMode.SPARK).train(job.rows().map(mains.row), 1)
    except Exception as e:
        told = str(e)
    check(told and mains.FAULT in told, f"of an error in map_fun Spark tells: {told}")
    check(not os.path.exists(job.at("faulty")), "who failed wrote nothing")


def train_faulty(job):
    """Else it comes out where the cluster ends, which ends Spark."""
    told = None
    try:
        end(job.run(mains.faulty, "faulty", TFCluster.InputMode.TENSORFLOW))
    except SystemExit as e:
        told = TFCluster.tf_status.get("error", "") if e.code == 1 else f"exit code {e.code}"
    check(mains.FAULT in told, f"of an error in map_fun TensorFlowOnSpark tells: {told}")
    check(not os.path.exists(job.at("faulty")), "who failed wrote nothing")


def check_newest(folder):
    """The newest checkpoint of a folder loads, all of it."""
    newest = tf.train.latest_checkpoint(folder)
    check(newest, f"{folder}: its file `checkpoint` names what is not there: {os.listdir(folder)}")
    reader = tf.train.load_checkpoint(newest)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)
    return newest


def check_moments(folders):
    """Where there is a file `checkpoint`, all that it names is there, too."""
    found = {os.path.relpath(check_newest(os.path.dirname(path)), folder) for folder in folders
             for path in glob.glob(os.path.join(folder, "**", "checkpoint"), recursive=True)}
    epochs = [name for name in found if name.startswith("fed/")]
    check(len(epochs) > 1, f"{len(folders)} moments had only {sorted(found)}")
    print(f"{len(folders)} moments had {sorted(found)}", flush=True)


def weights_of(checkpoint):
    return [tf.train.load_variable(checkpoint, f"layer_with_weights-0/{name}/.ATTRIBUTES/VARIABLE_VALUE")
            for name in ("kernel", "bias")]


def losses(folder):
    reader = EventAccumulator(folder)
    reader.Reload()
    return len(reader.Tensors("epoch_loss"))


def check_keras(top, name):
    """What Keras saved there: the newest weights, the exported model, and the logs."""
    model, export = os.path.join(top, name, "model"), os.path.join(top, name, "export")
    newest = check_newest(model)
    check(os.path.basename(newest) == f"weights-{mains.EPOCHS:04d}", f"the newest of {model} is {newest}")
    weights = weights_of(newest)
    exported = weights_of(os.path.join(export, "variables", "variables"))
    check(all(map(np.array_equal, weights, exported)), f"{export} has {exported}, the checkpoint {weights}")
    told = tf.keras.models.load_model(export).predict(np.ones((1, mains.FEATURES), np.float32), verbose=0)
    wanted = sum(w.sum() for w in weights)
    check(np.isclose(told[0, 0], wanted, rtol=1e-3), f"{export} predicts {told[0, 0]}, its weights {wanted}")
    check(losses(os.path.join(top, name, "logs", "train")) == mains.EPOCHS, f"{name}: the epochs in the logs")


def check_data(spark, top):
    text = sorted(row.value for row in spark.read.text(f"file://{top}/data/text").collect())
    check(text == sorted(mains.line(i) for i in range(ROWS)), f"{top}: {len(text)} lines of text")
    found = sorted(tuple(row) for row in spark.read.parquet(f"file://{top}/data/rows").collect())
    check(found == [(i, i * 0.5) for i in range(ROWS)], f"{top}: {len(found)} rows of Parquet")


def check_all(spark, top):
    check_data(spark, top)
    check_keras(top, "fed")
    for name in ("evaluated", "served"):
        newest = check_newest(os.path.join(top, name, "model"))
        check(os.path.basename(newest) == f"model.ckpt-{mains.STEPS}", f"the newest of {name} is {newest}")
    check(len(exports(top)) == 1, f"the evaluator's exports are {exports(top)}")
    loaded = tf.saved_model.load(os.path.dirname(exports(top)[0])).signatures["serving_default"]
    told = loaded(x=tf.ones((1, mains.FEATURES)))
    check(np.isfinite(told["y"].numpy()).all(), f"the evaluator's export predicts {told}")
    check(streamed_lines(top) == 2 * mains.STREAMED, f"the stream brought {streamed_lines(top)} lines")


def check_names(found):
    """Nothing that is only for a while."""
    left = [key for key in found if "_temporary" in key or "workertemp" in key or "/temp-" in key]
    check(not left, f"left over: {left}")
    for folder, parts in (("data/text", 4), ("data/rows", 2)):
        names = [key for key in found if key.startswith(f"{folder}/part-")]
        check(len(names) == parts and f"{folder}/_SUCCESS" in found, f"{folder} has {names}")
    kept = {key for key in found if key.startswith("served/model/model.ckpt-")}
    check({key.split(".")[1] for key in kept} == {"ckpt-4", "ckpt-6"}, f"the estimator keeps {sorted(kept)}")


def put_all(stores, folder):
    s3 = trees.client(stores.place)
    for key in trees.tree(folder):
        s3.upload_file(os.path.join(folder, key), stores.place.gateway.bucket, f"{STORE}/{key}")


def write_elsewhere(job, folder):
    """What is stored by others: in a plain folder first."""
    job.rows().map(mains.line).saveAsTextFile(f"file://{folder}/stored/data/text")
    table(job.spark, ROWS, 2).write.parquet(f"file://{folder}/stored/data/rows")
    model = mains.new_model()
    x = np.array([mains.row(i)[:-1] for i in range(32)], np.float32)
    names = os.path.join(folder, "stored", "keras", "model", "weights-{epoch:04d}")
    model.fit(x, x.sum(1), epochs=mains.EPOCHS, verbose=0, callbacks=[
        tf.keras.callbacks.ModelCheckpoint(names, save_weights_only=True),
        tf.keras.callbacks.TensorBoard(os.path.join(folder, "stored", "keras", "logs"))])
    model.save(os.path.join(folder, "stored", "keras", "export"), save_format="tf")


def read_stored(job):
    elsewhere = job.place.make("elsewhere")
    write_elsewhere(job, elsewhere)
    put_all(job.stores, elsewhere)
    wanted = trees.tree(os.path.join(elsewhere, "stored"))
    seen("what others have stored", lambda: trees.tree(job.at("stored")) == wanted)
    check_data(job.spark, job.at("stored"))
    check_keras(job.at("stored"), "keras")


def same_as_stored(stores, mount):
    here, there = trees.tree(mount.mountpoint), trees.stored(stores.place, STORE)
    check(here == there, f"botocore and the mount differ: {trees.differences(there, here)}")
    return there


def carry_out(job, *parts):
    for part in parts:
        began = time.monotonic()
        part(job)
        print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)


def story(stores):
    """TensorFlowOnSpark forks nodes from a worker of Spark, and in other modes runs them in it. What is forked where
    TensorFlow ran before may hang, so nothing runs in the first Spark after what does that. Nor does anything in one
    that has cancelled tasks: it may kill a worker that has a task of the next job (SPARK-54217)."""
    m = stores.mount([STORE], settle="1s", layout="tfos")
    with Moments(stores, STORE) as moments:
        with spark_cluster.session(stores.place) as spark:
            carry_out(Job(stores, m, spark), write_data, train_fed, train_streamed, train_served)
        for part in (train_evaluated, train_faulty_fed, train_faulty):
            with spark_cluster.session(stores.place) as spark:
                carry_out(Job(stores, m, spark), part)
        m.flush()
    check_moments(moments.folders)
    check_names(same_as_stored(stores, m))
    with spark_cluster.session(stores.place) as spark:
        check_all(spark, stores.copy_of(STORE))
        read_stored(Job(stores, m, spark))
    same_as_stored(stores, m)
    m.umount()
