#!/usr/bin/env python3
"""What a launch adds over a bare cuLaunchKernel: jitune's beside Triton's, on one machine.

Usage: tests/bench/launch_against_triton.py BIN   (BIN: a build's bin folder with bench_launch)
Needs a GPU, PyTorch and Triton. The same kernel (c = a + b over up to 1,000 elements) is launched in batches of 500 on a
stream of its own with changing arguments, and waited for between batches, as bench_launch does.
"""
import re
import statistics
import subprocess
import sys
import time

import torch
import triton
import triton.language as tl

BATCH, ROUNDS = 500, 60


@triton.jit
def add(c, a, b, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)


def triton_ns(problems):
    """Median ns of a launch, over batches, with so many problem sizes in turn."""
    buffers = [torch.zeros(2048, device="cuda") for _ in range(8)]
    samples = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for n in range(1, problems + 1):
            add[(triton.cdiv(n, 64),)](buffers[0], buffers[1], buffers[2], n, BLOCK=64)
        for round_ in range(ROUNDS + 2):
            torch.cuda.current_stream().synchronize()
            start = time.perf_counter_ns()
            for i in range(BATCH):
                x, n = buffers[i & 7], i % problems + 1
                add[(triton.cdiv(n, 64),)](x, x, x, n, BLOCK=64)
            took = (time.perf_counter_ns() - start) / BATCH
            if round_ >= 2:
                samples.append(took)
    return statistics.median(samples)


def main():
    out = subprocess.run([sys.argv[1] + "/bench_launch", "--count", "100000"], check=True, capture_output=True, text=True)
    print(out.stdout)
    path = {}
    bare = {}
    for threads, problems, adds in re.findall(r"(\d+) threads, +(\d+) problems: empty call .* adds +(-?[\d.]+) ns", out.stdout):
        path[int(threads), int(problems)] = float(adds)
    for threads, problems, ns in re.findall(r"(\d+) threads, +(\d+) problems: bare +([\d.]+) ns", out.stdout):
        bare[int(threads), int(problems)] = float(ns)
    print(f"{'one thread':24} {'bare launch ns':>15} {'jitune adds ns':>15} {'Triton adds ns':>15}")
    for problems in (1, 1000):
        launch = bare[1, problems]
        print(f"{problems:5} problems          {launch:15.0f} {path[1, problems]:15.1f} {triton_ns(problems) - launch:15.0f}")
    print(f"Triton {triton.__version__}; jitune's: the path with an empty function for cuLaunchKernel, less that function")


main()
