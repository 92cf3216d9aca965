#!/usr/bin/env python3
"""A search strategy outside jitune: hill climbing with random restarts. JSON lines on stdin and stdout."""
import json
import random
import sys

params, best, best_us = {}, None, float("inf")


def propose():
    """A neighbour of the best, or anything; jitune passes over what is not valid or not new."""
    config = {name: random.choice(values) for name, values in params.items()}
    if best and random.random() < 0.7:
        changed = random.choice(list(params))
        config = {**best, changed: config[changed]}
    return config


for line in sys.stdin:
    message = json.loads(line)
    if "space" in message:
        params = message["space"]["params"]
        random.seed(message["space"]["seed"])
    elif "ask" in message:
        configs = [propose() for _ in range(message["ask"])]
        print(json.dumps({"configs": configs}), flush=True)
    elif "tell" in message and message["tell"]["fate"] == "ok" and message["tell"]["time_us"] < best_us:
        best, best_us = message["tell"]["config"], message["tell"]["time_us"]
