#!/usr/bin/env python3
"""scripts/owners.py: each state of cache/ is assigned in one file (docs/architecture.md, "Who assigns what").

Looks for assignments, and for calls that set, clear, move or exchange, by the names under which the sources hold such a thing
(`f->state = `, `e->dirty |= `, `etag_set(&e->etag, `): it knows no types, so that one through a pointer of another name is not seen.
Prints each that stands elsewhere."""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent

FILE = r"(?:\b(?:f|self)|\bfile)->"
ENTRY = r"(?:\b(?:e|e2|a|b|over)|\b(?:links|from|to)|\bboth\[\w\])->"
DEBT = r"\bdebt[.]"
# What changes an argument: both of two, or the first.
CHANGERS = r"\b(?:SWAP|etag_move)\([^;]*?|\betag_(?:set|clear)\(&"

OWNERS = [
    ("cache/types/debt.c", DEBT, """in seq due_ns failing_ns failed_ns refused_ns readers_ns why error attempts running wanted"""),
    ("cache/tree/version.c", ENTRY, """verified_ns changed_ns modified_ns stored_generation stable was_put unseen dirty may_exist tried
        tried_before brought failed refused brought_here compared etag"""),
    ("cache/content/state.c", FILE, """state generation stored_generation present verify busy gone writing_stamp past direct suspect
        clean_mtime_ns clean_size synced_mtime_ns synced_size etag copied_etag"""),
    ("cache/content/half.c", FILE, "beginners whole_mtime_ns whole_size time_moves"),
    ("cache/content/damage.c", FILE, "short_write short_at disk_lost"),
    ("cache/content/stamps.c", FILE, "keys_cut keys_behind"),
    ("cache/content/unlinked.c", FILE, "orphan_id unnamed"),
    ("cache/queue/file_queue.c", FILE, "made_at staged staged_ns unclosed after_seq after_want"),
]


def main():
    bad = 0
    texts = {p.relative_to(TOP).as_posix(): p.read_text() for p in sorted((TOP / "cache").rglob("*.[ch]"))}
    for owner, holder, fields in OWNERS:
        if owner not in texts:
            print(f"{owner}: does not exist, and is to own: {' '.join(fields.split())}")
            bad += 1
        field = rf"(?:{holder})({'|'.join(fields.split())})\b"
        assigned = re.compile(rf"{field}\s*(?:[-+|&]?=(?!=)|\+\+|--)|(?:{CHANGERS}){field}")
        for path, text in texts.items():
            for m in assigned.finditer(text) if path != owner and not path.startswith("cache/types/") else ():
                line = text.count("\n", 0, m.start()) + 1
                print(f"{path}:{line}: assigns {m.group(1) or m.group(2)}, which {owner} owns")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
