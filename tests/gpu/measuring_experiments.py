#!/usr/bin/env python3
"""Whole studies on a GPU: order independence, stability, cost beside a fixed protocol, two processes at once.

    tests/gpu/measuring_experiments.py BIN [--only order,stability,cost,together,devices] [--quick]

BIN holds jit-prewarm and jitune-worker. Prints a line for each check with bar and value; exit code 1 when one fails.
Winners that differ count as equal when each, made the default config of a space of the two alone, is kept: the other one
does not beat it by more than a tie (1 %) when both are timed interleaved. Times of two studies are not compared: a gemm
that runs for long pulls the GPU's clock down, by how much the line on its cost says.
"""
import argparse
import collections
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPACE = os.path.join(ROOT, "tests/gpu/spaces/softmax_slow_default.toml")
GEMM = os.path.join(ROOT, "kernels_src/gemm.toml")
WIDE = os.path.join(ROOT, "tests/gpu/search/softmax_wide.toml")  # many configs: setup and rematch weigh little
PROBLEMS = {  # about so long on an H200
    "3 us": "T=float,rows=132,cols=1024",
    "50 us": "T=float,rows=4096,cols=8192",
    "5 ms": "T=float,rows=262144,cols=8192",
}
failures = 0


def say(name, bar, value, good):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'}  {name}: bar {bar}, value {value}", flush=True)


def command(binaries, database, file, problem, *more):
    return [os.path.join(binaries, "jit-prewarm"), "tune", file, "--problem", problem, "--database", database, "--json",
            *more]


def read(text):
    return json.loads(text)["results"][0]


def tune(binaries, database, file, problem, *more):
    done = subprocess.run(command(binaries, database, file, problem, *more), capture_output=True, text=True)
    if not done.stdout:
        sys.exit(f"jit-prewarm failed: {done.stderr}")
    return read(done.stdout)


def config_of(result):
    return json.dumps(result["winner"]["config"], sort_keys=True)


def pair_space(directory, first, second, space=SPACE):
    """The space with nothing but these two configs, the first one the default. Of gemm, its Hopper form."""
    text = open(space).read().replace('"../../../kernels_src"', json.dumps(os.path.join(ROOT, "kernels_src")))
    text = re.sub(r'(?m)^source( +)= "', lambda match: match.group(0) + os.path.join(os.path.dirname(space), ""), text)
    values = [sorted(json.loads(config).items()) for config in (first, second)]
    allowed = " || ".join("(" + " && ".join(f"{k} == {v}" for k, v in config) + ")" for config in values)
    at = text.rindex("require = [") + len("require = [")
    text = text[:at] + json.dumps(allowed) + ", " + text[at:]
    table = "variants.defaults" if "[[variants.defaults]]" in text else "defaults"
    end = text.index(f"[[{table}]]")
    text = text[:end] + f"[[{table}]]\nconfig = {{ " + ", ".join(f"{k} = {v}" for k, v in values[0]) + " }\n"
    path = os.path.join(directory, "pair.toml")
    with open(path, "w") as file:
        file.write(text)
    return path


def is_tie(binaries, directory, problem, first, second, space=SPACE):
    return not (is_faster(binaries, directory, problem, first, second, space) or
                is_faster(binaries, directory, problem, second, first, space))


def is_faster(binaries, directory, problem, first, second, space=SPACE):
    """Whether the first config beats the second by more than a tie, in two of three interleaved measurements."""
    if first == second:
        return False
    path = pair_space(directory, second, first, space)
    # The answer of one study near the limit is chance; two configs also differ a little from process to process.
    outcomes = [tune(binaries, os.path.join(directory, "pair.db"), path, problem, "--force")["outcome"] for _ in range(3)]
    return outcomes.count("won") >= 2


def agreement(binaries, directory, problem, results):
    """How many winners are the most frequent one or tie with it, and what there was to say of them."""
    winners = collections.Counter(config_of(result) for result in results)
    common, same = winners.most_common(1)[0]
    tied = sum(count for config, count in winners.items()
               if config != common and is_tie(binaries, directory, problem, common, config))
    gains = [result["winner"]["default_us"] / result["winner"]["median_us"] for result in results]
    time_us = sorted(result["winner"]["median_us"] for result in results)[len(results) // 2]
    text = (f"{same} the same and {tied} within 1 % of {len(results)}; winner {time_us:.2f} us, default slower by "
            f"{100 * (min(gains) - 1):.0f} % at least; samples by {results[-1]['costs']['method']}")
    return same + tied, min(gains), text


def order(binaries, directory, orders):
    for name, problem in PROBLEMS.items():
        database = os.path.join(directory, f"order-{name[0]}.db")
        results = [tune(binaries, database, SPACE, problem, "--force", "--seed", str(seed + 1)) for seed in range(orders)]
        good, gain, text = agreement(binaries, directory, problem, results)
        say(f"order independence, {name}", f"all {orders}, default 10 % slower", text, good == orders and gain >= 1.10)


def stability(binaries, directory, studies):
    for name in ("3 us", "50 us"):
        database = os.path.join(directory, f"order-{name[0]}.db")
        results = [tune(binaries, database, SPACE, PROBLEMS[name], "--force") for _ in range(studies)]
        good, _, text = agreement(binaries, directory, PROBLEMS[name], results)
        say(f"stability, {name}", f"{studies - 1} of {studies}", text, good >= studies - 1)


def cost(binaries, directory):
    problem = "T=bfloat16,M=4096,N=4096,K=4096"
    database = os.path.join(directory, "cost.db")
    tune(binaries, database, GEMM, problem)  # fills the cache of cubins
    ours = tune(binaries, database, GEMM, problem, "--force")
    # Triton's do_bench: 25 ms of warm-up and 100 ms of launches a config, L2 flushed before each, no early stop.
    fixed_db = os.path.join(directory, "fixed.db")
    tune(binaries, fixed_db, GEMM, problem, "--fixed-time", "1ms")
    fixed = tune(binaries, fixed_db, GEMM, problem, "--fixed-time", "125ms", "--force")
    ratio = fixed["measure_ms"] / ours["measure_ms"]
    kernel = ours["costs"]["run_ms"] + ours["costs"]["rematch_ms"]
    say("cost, gemm", ">= 10 times less than 25 ms + 100 ms a config",
        f"{ours['measure_ms']:.0f} ms against {fixed['measure_ms']:.0f} ms for {fixed['trials']['total']} trials: "
        f"{ratio:.1f} times; wall {ours['wall_ms']:.0f} ms; sampling is {100 * kernel / ours['measure_ms']:.0f} % of it",
        ratio >= 10)
    mine, theirs = config_of(ours), config_of(fixed)
    good = not is_faster(binaries, directory, problem, theirs, mine, GEMM)
    better = is_faster(binaries, directory, problem, mine, theirs, GEMM)
    say("cost, winner", "within 1 % of the fixed protocol's, both timed interleaved",
        f"{'the same config' if mine == theirs else f'{mine} against {theirs}' + (', and faster' if better else '')}; in its own study {ours['winner']['median_us']:.1f} us "
        f"at {clock_mhz(database, mine)} MHz, and {fixed['winner']['median_us']:.1f} us at {clock_mhz(fixed_db, theirs)} MHz", good)


def clock_mhz(database, config):
    """The SM clock during the latest trial of a config."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select params, clock_mhz from trials join configs using (config_id) order by trial_id")
        return {json.dumps(json.loads(params), sort_keys=True): mhz for params, mhz in rows}.get(config)


def together(binaries, directory):
    problems = [PROBLEMS["50 us"], "T=float,rows=8192,cols=4096"]
    alone = [tune(binaries, os.path.join(directory, f"alone{i}.db"), SPACE, p) for i, p in enumerate(problems)]
    # The cubins are there already, so that the two really meet on the GPU.
    running = [subprocess.Popen(command(binaries, os.path.join(directory, f"alone{i}.db"), SPACE, p, "--force"),
                                stdout=subprocess.PIPE, text=True) for i, p in enumerate(problems)]
    both = [read(process.communicate()[0]) for process in running]
    for problem, solo, result in zip(problems, alone, both):
        same = is_tie(binaries, directory, problem, config_of(solo), config_of(result))
        say(f"two processes, {problem}", "winner within 1 % of its solo run's",
            f"{result['winner']['median_us']:.2f} us, solo {solo['winner']['median_us']:.2f} us"
            f"{'' if config_of(solo) == config_of(result) else ', another config'}", same)


def devices(binaries, directory, rounds):
    """One space on one GPU and on two of its class, all cubins there already; medians of a few studies each."""
    problem = "T=half,rows=131072,cols=4096"
    database = os.path.join(directory, "devices.db")
    tune(binaries, database, WIDE, problem, "--strategy", "exhaustive")  # fills the cache of cubins
    runs = {"0": [], "0,1": []}
    for _ in range(rounds):
        for which, results in runs.items():
            results.append(tune(binaries, database, WIDE, problem, "--force", "--strategy", "exhaustive", "--device", which))
    middle = {which: sorted(results, key=lambda result: result["measure_ms"])[len(results) // 2]
              for which, results in runs.items()}
    one, two = middle["0"], middle["0,1"]
    for which, results in runs.items():
        for result in results:
            print(f"      --device {which}: {result['devices']} GPUs, measuring {result['measure_ms']:.0f} ms (rematch "
                  f"{result['costs']['rematch_ms']:.0f}, wait {result['costs']['wait_ms']:.0f}), wall {result['wall_ms']:.0f} ms, "
                  f"{result['trials']['total']} trials, {config_of(result)} {result['winner']['median_us']:.1f} us", flush=True)
    ratio = two["measure_ms"] / one["measure_ms"]
    say("two GPUs, measuring time", "<= 0.6 of one GPU's, two took part",
        f"{two['measure_ms']:.0f} ms against {one['measure_ms']:.0f} ms: {ratio:.2f}; {two['trials']['total']} and "
        f"{one['trials']['total']} trials", ratio <= 0.6 and all(result["devices"] == 2 for result in runs["0,1"]))
    slower = [config_of(result) for result in runs["0,1"]
              if is_faster(binaries, directory, problem, config_of(one), config_of(result), WIDE)]
    say("two GPUs, winner", "within 1 % of one GPU's, both timed interleaved",
        f"{config_of(one)}; {'none of the others loses to it' if not slower else 'slower: ' + ', '.join(slower)}", not slower)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("--only", default="order,stability,cost,together")
    parser.add_argument("--quick", action="store_true", help="fewer orders and studies")
    options = parser.parse_args()
    only = options.only.split(",")
    with tempfile.TemporaryDirectory() as directory:
        for name, run in (("order", lambda: order(options.binaries, directory, 4 if options.quick else 10)),
                          ("stability", lambda: stability(options.binaries, directory, 6 if options.quick else 20)),
                          ("cost", lambda: cost(options.binaries, directory)),
                          ("together", lambda: together(options.binaries, directory)),
                          ("devices", lambda: devices(options.binaries, directory, 1 if options.quick else 3))):
            if name in only:
                start = time.time()
                run()
                print(f"      {name} took {time.time() - start:.1f} s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
