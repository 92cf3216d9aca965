#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pool/pool.hpp"

namespace jitune::test {

/// Options for a pool of scripted workers that start in the given modes.
pool::PoolOptions fake_pool(int width = 1, std::vector<std::string> modes = {});

/// A request for a behaviour of the scripted worker.
Json fake(const std::string& word, int64_t number = -1);

/// Polls until `done` holds; false after `limit_ms`.
bool wait_until(const std::function<bool()>& done, int limit_ms = 5000);

/// True while a process that is not a zombie has this pid.
bool exists(int64_t pid);

/// Zombies among the children of this process.
int zombies();

/// Living processes one of whose arguments is `tag=`TAG.
int processes_tagged(const std::string& tag);

/// Open descriptors of this process.
int open_descriptors();

using namespace std::chrono_literals;

}  // namespace jitune::test
