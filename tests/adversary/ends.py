"""How mounts end: killed, asked to, with the machine; and what the next one makes of it."""

from harness import check
from scenario import everywhere, on_s3


@everywhere
def killed_after_closes(w):
    """SIGKILL right behind closes, renames and removals, three times."""
    a = w.node()
    a.write("kept", b"from before")
    a.write("removed", b"from before")
    check(a.flush() == 0, "flush")
    for i in range(3):
        a.write("kept", b"version %d" % i)
        a.write("ckpt.tmp", b"checkpoint %d" % i)
        a.rename("ckpt.tmp", "ckpt")
        if i == 1:
            a.unlink("removed")
        a.kill()
        a.up()


@on_s3
def umount_without_store(w):
    """The store is away: neither flush nor umount says 0; the next mount publishes."""
    a = w.node()
    a.write("f", b"one")
    check(a.flush() == 0, "flush")
    w.store.cut_off()
    a.write("f", b"two")
    a.write("g", b"new")
    check(a.flush(1) != 0, "lied: runfs flush, exit code 0 without a store")
    check(a.umount(1) != 0, "lied: runfs umount, exit code 0 without a store")
    a.kill()
    w.store.connect()


@on_s3
def rebooted_without_store(w):
    """What was synced is published; what was only closed is set aside, and its name shows the version of before."""
    a = w.node()
    for key in ("closed", "synced", "removed"):
        a.write(key, b"one")
    check(a.flush() == 0, "flush")
    w.store.cut_off()
    a.write("closed", b"two")
    a.write("synced", b"two", sync=True)
    a.unlink("removed")
    a.write("new", b"new")
    a.reboot()
    w.store.connect()
    a.up()
    check(a.read("synced") == b"two", "lost: what was synced")


@on_s3
def ended_cleanly_then_rebooted(w):
    """The daemon gives up on a store that is away, and ends by itself; then the machine restarts. What was
    closed is published, and what was removed is gone."""
    a = w.node("a", ("drain_timeout=1s",))
    for key in ("f", "g"):
        a.write(key, b"one")
    check(a.flush() == 0, "flush")
    w.store.cut_off()
    a.write("f", b"two")
    a.unlink("g")
    check(a.terminate() != 0, "lied: the daemon ended with 0 without a store")
    w.oracle.synced("a")
    a.reboot()
    w.store.connect()
    a.up()
    check(a.read("f") == b"two", "lost: what was closed before a clean end")


CASES = [killed_after_closes, umount_without_store, rebooted_without_store, ended_cleanly_then_rebooted]
