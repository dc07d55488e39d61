"""confine.py UNIT COMMAND...: executes the command in the confines of a unit, as systemd would: with
its capabilities, no new privileges, and, where systemd-analyze knows the sets, its system calls."""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOWED, REFUSED = 0x7fff0000, 0x00050000 | 1 # 1: EPERM
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def output(*command, text=None):
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def calls_of(names):
    """The system calls of a list in which @name is a set of systemd's."""
    calls = set()
    for name in names:
        if name.startswith("@"):
            lines = output("systemd-analyze", "syscall-filter", "--no-pager", name).splitlines()[1:]
            calls |= calls_of(line.split()[0] for line in lines if line.strip() and not line.lstrip().startswith("#"))
        else:
            calls.add(name)
    return calls


def numbers_of(calls):
    """Those that this processor has, by number."""
    lines = "".join(f"is __NR_{call}\n" for call in sorted(calls))
    return re.findall(r"^is \(?(\d+)\)?$", output("cc", "-E", "-P", "-x", "c", "-",
                                                  text=f"#include <asm/unistd.h>\n{lines}"), re.M)


def step(code, if_so, if_not, value):
    return struct.pack("HBBI", code, if_so, if_not, value)


def install_filter(calls):
    code = step(LOAD, 0, 0, 0) # the number of the call
    for number in numbers_of(calls):
        code += step(JUMP_IF_EQUAL, 0, 1, int(number)) + step(RETURN, 0, 0, ALLOWED)
    code += step(RETURN, 0, 0, REFUSED)
    held = ctypes.create_string_buffer(code, len(code))
    program = Filter(len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


def main(unit, *command):
    with open(unit, encoding="ascii") as f:
        settings = dict(re.findall(r"^(\w+)=(.*)$", f.read(), re.M))
    kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in settings["CapabilityBoundingSet"].split())
    privileges = ["--no-new-privs"] if settings["NoNewPrivileges"] == "yes" else []
    if shutil.which("systemd-analyze"):
        namespaces = {"unshare", "setns"} if settings["RestrictNamespaces"] == "yes" else set()
        sanitizers = {"ptrace"} if "ASAN_OPTIONS" in os.environ else set() # LSan stops threads by it
        install_filter(calls_of(settings["SystemCallFilter"].split()) - namespaces | sanitizers)
    os.execvp("setpriv", ["setpriv", f"--bounding-set=-all,{kept}", *privileges, *command])


if __name__ == "__main__":
    main(*sys.argv[1:])
