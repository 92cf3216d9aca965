#!/usr/bin/env python3
"""Starts several cold `jit-prewarm compile` at the same moment and counts, from outside, the compilers at work.

    tests/bench/cold_compilers.py BIN_DIR [--processes 8] [--kernel FILE.toml] [--problem TEXT] [--limit N]

Each process has a database of its own, so all of them compile all configs. Every 2 ms the jitune-worker processes of
/proc that are running (state R or D) are counted: that is what the machine's compile slots bound. A worker that has
answered runs, or waits for a core, for a moment after its slot has gone on to another. So what counts is for how long
together more than the slots were seen: a compilation takes 75 ms and more, and above 40 ms the program fails.
"""
import argparse
import collections
import os
import subprocess
import sys
import tempfile
import time


def is_running(pid):
    """Whether a process runs and is not ending (PF_EXITING), which frees its memory for some milliseconds."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0] in "RD" and not int(fields[6]) & 4


def running_workers(worker):
    """How many processes of that program run at one moment, and how many there are.

    Reading /proc takes milliseconds, in which one may stop and another start; only those count that ran before and
    after all were looked at.
    """
    there = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == worker:
                there.append(pid)
        except OSError:
            pass
    first = [pid for pid in there if is_running(pid)]
    return sum(map(is_running, first)), len(there)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin_dir")
parser.add_argument("--processes", type=int, default=8)
parser.add_argument("--kernel", default="kernels_src/rmsnorm.toml")
parser.add_argument("--problem", default="T=half,rows=4096,hidden=4096")
parser.add_argument("--arch", default="sm_90")
parser.add_argument("--limit", type=int, default=24)
arguments = parser.parse_args()
worker_path = os.path.realpath(os.path.join(arguments.bin_dir, "jitune-worker"))

cores = len(os.sched_getaffinity(0))
slots = max(1, int(0.9 * cores + 1e-9))
with tempfile.TemporaryDirectory() as folder:
    environment = dict(os.environ, JITUNE_RUNTIME_DIR=os.path.join(folder, "run"))
    environment.pop("JITUNE_COMPILE_WORKERS", None)
    command = [os.path.join(arguments.bin_dir, "jit-prewarm"), "compile", arguments.kernel, "--problem",
               arguments.problem, "--arch", arguments.arch, "--limit", str(arguments.limit)]
    start = time.monotonic()
    processes = []
    for i in range(arguments.processes):
        log = open(os.path.join(folder, f"{i}.log"), "w", encoding="utf-8")
        processes.append(subprocess.Popen(command + ["--database", os.path.join(folder, f"{i}.db")], env=environment,
                                          stdout=log, stderr=subprocess.STDOUT))
    looks, most_there = collections.Counter(), 0
    since = None  # when the looks that show too many began
    longest = 0.0
    while any(process.poll() is None for process in processes):
        running, there = running_workers(worker_path)
        looks[running] += 1
        most_there = max(most_there, there)
        now = time.monotonic()
        since = (since or now) if running > slots else None
        longest = max(longest, now - since if since else 0.0)
        time.sleep(0.002)
    seconds = time.monotonic() - start
    failed = [i for i, process in enumerate(processes) if process.returncode != 0]
    for i in failed:
        sys.stderr.write(open(os.path.join(folder, f"{i}.log"), encoding="utf-8").read())

total = sum(looks.values())
above = sum(count for running, count in looks.items() if running > slots)
print(f"{arguments.processes} cold processes, {cores} cores, {slots} slots, {seconds:.1f} s")
print("compilers running: " + ", ".join(f"{running} in {looks[running]} looks" for running in sorted(looks)))
print(f"more than the slots in {above} of {total} looks, for {longest * 1000:.1f} ms together at most; "
      f"at most {most_there} worker processes at a time")
sys.exit(1 if failed or longest > 0.04 else 0)
