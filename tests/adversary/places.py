"""Where a scenario is played: each of its stores, and with or without passthrough where that differs."""


def _played(stores, modes):
    def mark(case):
        case.stores, case.modes = stores, modes
        return case
    return mark


everywhere = _played(("s3", "file"), ("auto", "off"))
on_s3 = _played(("s3",), ("auto", "off"))
once = _played(("s3",), ("auto",))
