#pragma once

#include <string>
#include <vector>

#include "store/sqlite.hpp"
#include "store/store.hpp"

/// What makes room: each function does a bounded piece in one transaction of its own, so that others are never kept
/// waiting for long. Pinned winners, leased keys and what they need are never touched.
namespace jitune::store {

inline constexpr int kEvictionBatch = 200;

int64_t cubin_bytes(Database& database);

/// Cubins that no winner names, least recently used first; none that was compiled ahead or that a study is using.
std::vector<std::string> loser_cubins(Database& database);
/// Drops up to kEvictionBatch of `cubins` from `at` on, while more than `excess_bytes` > 0 are to go. Returns the bytes
/// that went; `at` moves on.
int64_t drop_loser_cubins(Database& database, const std::vector<std::string>& cubins, size_t& at, int64_t excess_bytes,
                          Store::Evicted& counts);

/// Keys whose winners have cubins, least recently used first.
std::vector<int64_t> evictable_keys(Database& database);
int64_t drop_keys(Database& database, const std::vector<int64_t>& keys, size_t& at, int64_t excess_bytes,
                  Store::Evicted& counts);

/// Studies older than 90 days beyond a key's last three and its winner's own, failures not seen for 90 days, and
/// artifacts, configs, sources and definitions that nothing refers to. False: there was nothing left to drop.
bool drop_aged(Database& database, int64_t now, Store::Evicted& counts);

}  // namespace jitune::store
