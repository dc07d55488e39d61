"""One step of one framework in a process of its own:

    one.py FRAMEWORK save FOLDER EXPECTED     saves below FOLDER, keeps in EXPECTED what must load
    one.py FRAMEWORK load FOLDER EXPECTED     loads it from FOLDER and compares

FRAMEWORK is a module suite/FRAMEWORK.py with save(folder), which returns anything that
pickles, and load(folder, expected), which raises when it differs.
"""

import importlib
import logging
import os
import pickle
import sys
import warnings


def main():
    name, step, folder, expected = sys.argv[1:]
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "suite"))
    module = importlib.import_module(name)
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
