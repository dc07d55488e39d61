"""What TensorFlow does on the executors, for routed/tfos.py: main functions as the examples of TensorFlowOnSpark have
them, with models that are tiny. Spark's workers import this file; TensorFlow only what they run."""

import glob
import os
import time

FEATURES = 4
BATCH = 8
STREAMED = 3 # lines of a file
EPOCHS = 3
EPOCH_SECONDS = 3 # each is stored by itself
STEPS = 6 # an epoch has, or an estimator trains
FAULT = "the loss of this model is no number"


def row(i):
    """Features and, behind them, what is to be learnt."""
    x = [float((i * (k + 3)) % 7) for k in range(FEATURES)]
    return [*x, sum(x)]


def line(i):
    return ",".join(str(x) for x in row(i))


def new_model():
    import tensorflow as tf
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(FEATURES,), name="sum")])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.001), loss="mse")
    return model


def fed_rows(feed):
    while not feed.should_stop():
        for found in feed.next_batch(1):
            yield found[:-1], found[-1:]


def fed(args, ctx):
    """Keras on what Spark feeds, by two that train one model."""
    import tensorflow as tf
    from tensorflowonspark import compat

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = ctx.get_data_feed()
    spec = (tf.TensorSpec((FEATURES,)), tf.TensorSpec((1,)))
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    data = tf.data.Dataset.from_generator(lambda: fed_rows(feed), output_signature=spec).batch(BATCH).with_options(options)
    with strategy.scope():
        model = new_model()
    callbacks = [tf.keras.callbacks.ModelCheckpoint(os.path.join(args.model_dir, "weights-{epoch:04d}"),
                                                    save_weights_only=True),
                 tf.keras.callbacks.TensorBoard(log_dir=args.log_dir),
                 tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: time.sleep(EPOCH_SECONDS))]
    model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=callbacks, verbose=0)
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")
    feed.terminate()


def lines_of(folder):
    import tensorflow as tf

    def parsed(text):
        numbers = tf.strings.to_number(tf.strings.split(text, ","))
        return {"x": numbers[:FEATURES]}, numbers[FEATURES:]

    files = sorted(glob.glob(os.path.join(folder, "part-*")))
    return tf.data.TextLineDataset(files).map(lambda text: parsed(tf.ensure_shape(text, ()))).map(
        lambda x, y: ({"x": tf.ensure_shape(x["x"], (FEATURES,))}, tf.ensure_shape(y, (1,)))).repeat().batch(BATCH)


def linear(features, labels, mode):
    import tensorflow as tf
    v1 = tf.compat.v1
    weights = v1.get_variable("weights", [FEATURES, 1])
    found = tf.matmul(features["x"], weights)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": found})
    loss = tf.reduce_mean(tf.square(found - labels))
    train = v1.train.GradientDescentOptimizer(0.001).minimize(loss, v1.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def served():
    import tensorflow as tf
    x = {"x": tf.compat.v1.placeholder(tf.float32, [None, FEATURES])}
    return tf.estimator.export.ServingInputReceiver(x, x)


def estimated(args, ctx):
    """An estimator that reads files itself: as a chief, an evaluator that follows its checkpoints, or a parameter
    server."""
    import tensorflow as tf
    run = tf.estimator.RunConfig(model_dir=args.model_dir, save_checkpoints_steps=2, keep_checkpoint_max=args.keep,
                                 save_summary_steps=2)
    estimator = tf.estimator.Estimator(linear, config=run)
    training = tf.estimator.TrainSpec(lambda: lines_of(args.data_dir), max_steps=STEPS)
    evaluation = tf.estimator.EvalSpec(lambda: lines_of(args.data_dir), steps=1, start_delay_secs=0, throttle_secs=1,
                                       exporters=[tf.estimator.FinalExporter("last", served)])
    tf.estimator.train_and_evaluate(estimator, training, evaluation)


def streamed(args, ctx):
    """Each counts for itself what a stream brings, until that is stopped, and keeps two checkpoints of the count."""
    import tensorflow as tf
    feed = ctx.get_data_feed()
    count = tf.Variable(0, dtype=tf.int64)
    folder = os.path.join(args.model_dir, ctx.job_name)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(count=count), folder, max_to_keep=2)
    while not feed.should_stop():
        found = feed.next_batch(STREAMED)
        if found:
            count.assign_add(len(found))
            manager.save()


def faulty(args, ctx):
    raise ValueError(FAULT)
