#include "store/store.hpp"

#include <filesystem>

#include "store/files_at.hpp"
#include "store/sqlite_store.hpp"

namespace jitune::store {

Result<std::unique_ptr<Store>> Store::open(const OpenOptions& options) {
  const bool memory = options.path.empty() || options.path == "off";
  auto store = std::make_unique<SqliteStore>(options, memory ? std::string() : resolved_path(options.path));
  try {
    if (Result<void> started = store->start(); !started) return started.failure();
  } catch (const SqliteError& error) {
    return Failure{std::string("SQLite can't make a database in memory: ") + error.what()};
  }
  return std::unique_ptr<Store>(std::move(store));
}

std::string default_path(const char* xdg_cache_home, const char* home) {
  const auto below = [](std::string directory) {
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
    return directory + "/jitune/jitune.db";
  };
  // The XDG rules: a relative path in the variable is not to be used.
  if (xdg_cache_home != nullptr && xdg_cache_home[0] == '/') return below(xdg_cache_home);
  if (home != nullptr && home[0] == '/') return below((std::filesystem::path(home) / ".cache").string());
  return "";
}

}  // namespace jitune::store
