#!/usr/bin/env python3
"""The time to tune a bf16 gemm of 4096 x 4096 x 4096 from nothing, beside Triton's autotuner, and both winners' speed.

Usage: tests/bench/gemm_against_triton.py BIN   (BIN: a build's bin folder with jit-prewarm and gemm_retime)
Needs a GPU, PyTorch and Triton. Both start with empty caches. Triton gets its 72 tile, warp and stage settings; jitune its
whole space for this problem. Triton's winner and cuBLAS are timed by triton.testing.do_bench, jitune's by gemm_retime,
which uses the same method.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

SIZE = 4096
TRITON = """
import sys, time, torch, triton, triton.language as tl
configs = [triton.Config({'BM': bm, 'BN': bn, 'BK': bk}, num_stages=s, num_warps=w)
           for bm in (64, 128, 256) for bn in (64, 128, 256) for bk in (32, 64) for s in (3, 4) for w in (4, 8)]

@triton.autotune(configs=configs, key=['M', 'N', 'K'])
@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + depth[:, None] * N + cols[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        sums = tl.dot(tl.load(pa), tl.load(pb), sums)
        pa += BK
        pb += BK * N
    tl.store(c + rows[:, None] * N + cols[None, :], sums.to(tl.bfloat16))

n = SIZE
a = torch.randn(n, n, device='cuda', dtype=torch.bfloat16)
b = torch.randn(n, n, device='cuda', dtype=torch.bfloat16)
c = torch.empty_like(a)
run = lambda: matmul[lambda m: (triton.cdiv(n, m['BM']), triton.cdiv(n, m['BN']))](a, b, c, n, n, n)
torch.cuda.synchronize()
start = time.perf_counter()
run()
torch.cuda.synchronize()
seconds = time.perf_counter() - start
ms = triton.testing.do_bench(run, return_mode='median') if len(sys.argv) > 1 else 0
print('%.2f %.5f %s' % (seconds, ms, matmul.best_config))
"""


def tflops(ms):
    return 2 * SIZE**3 / ms / 1e9


def triton_run(cache, *extra):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # Triton reads a kernel's source from its file
        file.write(TRITON.replace("SIZE", str(SIZE)))
        file.flush()
        out = subprocess.run([sys.executable, file.name, *extra], env={**os.environ, "TRITON_CACHE_DIR": cache},
                             check=True, capture_output=True, text=True).stdout
    seconds, ms, config = out.split(maxsplit=2)
    return float(seconds), float(ms), config.strip()


def main():
    bin_dir = sys.argv[1]
    work = tempfile.mkdtemp()
    database = work + "/gemm.db"
    problem = f"T=bfloat16,M={SIZE},N={SIZE},K={SIZE}"
    start = time.perf_counter()
    tuned = subprocess.run([bin_dir + "/jit-prewarm", "tune", "kernels_src/gemm.toml", "--problem", problem, "--database",
                            database], capture_output=True, text=True)
    jitune_seconds = time.perf_counter() - start
    print(tuned.stdout, tuned.stderr)
    if "--only-jitune" not in sys.argv:
        total, _, _ = triton_run(work + "/triton")
        warm, triton_ms, config = triton_run(work + "/triton", "time")
        print(f"Triton's autotuner, 72 configs, caches empty: {total:.2f} s; compiled already: {warm:.2f} s; "
              f"so compiling {total - warm:.2f} s, measuring {warm:.2f} s")
        print(f"Triton's winner: {triton_ms * 1e3:.1f} us, {tflops(triton_ms):.0f} TFLOP/s: {config}")
    print(f"jitune, the whole process, caches empty: {jitune_seconds:.2f} s", flush=True)

    subprocess.run([bin_dir + "/gemm_retime", "kernels_src/gemm.toml", database, str(SIZE)], check=True)
    import torch
    import triton
    a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    c = torch.empty_like(a)
    cublas = triton.testing.do_bench(lambda: torch.matmul(a, b, out=c), return_mode="median")
    print(f"cuBLAS: {cublas * 1e3:.1f} us, {tflops(cublas):.0f} TFLOP/s")
    shutil.rmtree(work, ignore_errors=True)


main()
