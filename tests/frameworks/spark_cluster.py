"""A cluster of Spark's own on this machine, for the stories of routed/: a driver here and two executors."""

import contextlib
import glob
import os
import sys

import pyspark
from pyspark.sql import SparkSession
from tensorflowonspark import TFCluster

HERE = os.path.dirname(os.path.abspath(__file__))


def home(place):
    """Spark with a place of its own for what its workers leave: they write where its programs are."""
    folder = place.make("spark")
    for part in ("bin", "jars"):
        link = os.path.join(folder, part)
        if not os.path.islink(link):
            os.symlink(os.path.join(os.path.dirname(pyspark.__file__), part), link)
    return folder


def tell(place):
    """What the executors said last."""
    for path in sorted(glob.glob(place.path("spark", "work", "*", "*", "stderr"))):
        with open(path, errors="replace") as f:
            print(f"{os.path.relpath(path, place.folder)}: {f.read()[-1500:]}", flush=True)


@contextlib.contextmanager
def session(place):
    os.environ.update(SPARK_HOME=home(place), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable,
                      TF_CPP_MIN_LOG_LEVEL="2")
    config = {"spark.executorEnv.PYTHONPATH": HERE, "spark.local.dir": place.make("spark", "local"),
              "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
              "spark.sql.warehouse.dir": place.path("spark", "warehouse"), "spark.task.maxFailures": "1"}
    TFCluster.tf_status.clear() # TensorFlowOnSpark never forgets the failure of an earlier one
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("runfs")
    for key, value in config.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    except BaseException:
        tell(place)
        raise
    finally:
        spark.stop()
