"""writer.py DATABASE JOURNAL_MODE LEDGER: adds rows to a database until it is killed. A row's number
is in the ledger (elsewhere) once its transaction is committed.
writer.py DATABASE: says how it is, the highest row and how many there are."""

import sqlite3
import sys

if len(sys.argv) == 2:
    connection = sqlite3.connect(sys.argv[1], timeout=30)
    print(connection.execute("PRAGMA integrity_check").fetchone()[0],
          *connection.execute("SELECT coalesce(max(n), 0), count(*) FROM t").fetchone())
    sys.exit()
database, mode, ledger = sys.argv[1:]
connection = sqlite3.connect(database, isolation_level=None, timeout=30)
connection.execute(f"PRAGMA journal_mode={mode}")
connection.execute("PRAGMA synchronous=FULL")
connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, of INTEGER, filler BLOB)")
n = connection.execute("SELECT coalesce(max(n), 0) FROM t").fetchone()[0]
with open(ledger, "a") as written:
    while True:
        # Three rows or none: a torn transaction shows.
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO t VALUES (?, ?, randomblob(2000))",
                               [(n + i, n) for i in (1, 2, 3)])
        connection.execute("COMMIT")
        n += 3
        written.write(f"{n}\n")
        written.flush()
