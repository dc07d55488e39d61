"""What scenarios are made of. Where one is played: over each of its stores, and with or without passthrough
where that differs; and how a cache directory is copied."""

import os
import shutil
import subprocess


def _played(stores, modes):
    def mark(case):
        case.stores, case.modes = stores, modes
        return case
    return mark


everywhere = _played(("s3", "file"), ("auto", "off"))
on_s3 = _played(("s3",), ("auto", "off"))
on_plain = _played(("plain",), ("auto", "off"))
on_routed = _played(("routed",), ("auto", "off"))
once = _played(("s3",), ("auto",))


def run(*words):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def cp_a(old, new):
    run("cp", "-a", old, new)


def replace_cache(node, copy):
    """The copy takes the place of the node's cache."""
    shutil.rmtree(node.cache)
    os.rename(copy, node.cache)
