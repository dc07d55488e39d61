"""One step of one framework in a process of its own:

    one.py FRAMEWORK save FOLDER EXPECTED     saves below FOLDER, keeps in EXPECTED what must load
    one.py FRAMEWORK load FOLDER EXPECTED     loads it from FOLDER and compares
    one.py routed/STORY s3|file               tells a story of several stores; of pollers/ likewise

FRAMEWORK is a module suite/FRAMEWORK.py with save(folder), which returns anything that
pickles, and load(folder, expected), which raises when it differs. A STORY is a module
routed/STORY.py or pollers/STORY.py with story(stores), which makes its mounts itself; see stores.py.
"""

import importlib
import logging
import os
import pickle
import sys
import warnings


HERE = os.path.dirname(os.path.abspath(__file__))


def module_of(name):
    folder, _, module = name.rpartition("/")
    sys.path.insert(0, os.path.join(HERE, folder or "suite"))
    return importlib.import_module(module)


def tell(name, kind):
    sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "lib")]
    stores = importlib.import_module("stores")
    stores.run(module_of(name).story, kind)


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    if len(sys.argv) == 3:
        tell(*sys.argv[1:])
        return
    name, step, folder, expected = sys.argv[1:]
    module = module_of(name)
    if step == "save":
        result = module.save(folder)
        with open(expected, "wb") as f:
            pickle.dump(result, f)
    else:
        with open(expected, "rb") as f:
            result = pickle.load(f)
        module.load(folder, result)


if __name__ == "__main__":
    main()
