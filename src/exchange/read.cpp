#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/files.hpp"
#include "exchange/fields.hpp"
#include "store/files_at.hpp"

namespace jitune::exchange {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{256} << 20;

Result<std::string> read_text(const std::string& path) {
  std::error_code ignored;
  if (const auto size = fs::file_size(path, ignored); !ignored && size > kMostBytes)
    return Failure{path + ": larger than 256 MiB"};
  return read_file(path);
}

Result<void> read_tree(const std::string& directory, Winners& into) {
  std::vector<std::string> paths;
  std::error_code wrong;
  for (fs::recursive_directory_iterator at(directory, wrong), end; !wrong && at != end; at.increment(wrong))
    if (at->is_regular_file(wrong) && at->path().extension() == ".json") paths.push_back(at->path().string());
  if (wrong) return Failure{directory + ": " + wrong.message()};
  if (paths.empty()) return Failure{directory + ": there is no .json file in it"};
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    const auto text = read_text(path);
    if (!text) return text.failure();
    if (auto read = read_json(*text, path, into); !read) return read;
  }
  return {};
}

/// Whether a file, or a folder and those in it, are ours alone to write: what is read decides which code runs.
Result<void> check_owners(const std::string& path) {
  std::error_code wrong;
  const std::string resolved = store::resolved_path(fs::absolute(path, wrong).lexically_normal().string());
  if (!fs::is_directory(path, wrong)) return store::check_owners(resolved);
  const std::string any = "/any.json";  // of a path that is not there the folder is looked at
  if (auto owned = store::check_owners(resolved + any); !owned) return owned;
  for (fs::recursive_directory_iterator at(resolved, wrong), end; !wrong && at != end; at.increment(wrong))
    if (at->is_directory(wrong))
      if (auto owned = store::check_owners(at->path().string() + any); !owned) return owned;
  return {};
}

Result<std::unique_ptr<store::Store>> open_database(const std::string& path, Log* log) {
  store::Store::OpenOptions options;
  std::error_code ignored;
  options.path = fs::absolute(path, ignored).lexically_normal().string();
  options.create = false;
  options.read_only = true;
  options.must_be_file = true;
  options.log = log;
  return store::Store::open(options);
}

Result<void> read_database(const std::string& path, Log* log, Winners& into) {
  auto store = open_database(path, log);
  if (!store) return store.failure();
  auto records = (*store)->records(true);
  if (!records) return records.failure();
  for (store::WinnerRecord& record : *records) {
    const std::string sha256 = record.key.sha256, where = path + " " + sha256.substr(0, 12);
    if (record.cubin_damaged) into.refused["its cubin is damaged; the winner is taken without"].push_back(where);
    if (const std::string wrong = complete(record, sha256); !wrong.empty())
      into.refused[wrong].push_back(where);
    else
      into.items.push_back({std::move(record), where});
  }
  return {};
}

}  // namespace

const char* to_string(Winners::Format format) {
  switch (format) {
    case Winners::Format::database:
      return "database";
    case Winners::Format::json:
      return "JSON";
    case Winners::Format::csv:
      return "CSV";
  }
  return "unknown";
}

Winners::Format format_of(const std::string& path) {
  std::error_code ignored;
  if (path.ends_with(".csv")) return Winners::Format::csv;
  if (path.ends_with(".json") || path.ends_with("/") || fs::is_directory(path, ignored)) return Winners::Format::json;
  return Winners::Format::database;
}

Result<Winners> read_winners(const std::string& path, Log* log) {
  Winners winners;
  winners.format = format_of(path);
  std::error_code ignored;
  Result<void> read;
  if (winners.format == Winners::Format::database) {
    read = read_database(path, log, winners);
  } else if (fs::is_directory(path, ignored)) {
    read = read_tree(path, winners);
  } else {
    const auto text = read_text(path);
    if (!text) return text.failure();
    read = winners.format == Winners::Format::csv ? read_csv(*text, path, winners) : read_json(*text, path, winners);
  }
  if (!read) return read.failure();
  return winners;
}

Result<std::unique_ptr<store::Store>> open_source(const std::string& path, Log* log, std::string* note) {
  if (format_of(path) == Winners::Format::database) return open_database(path, log);
  if (auto owned = check_owners(path); !owned) return owned.failure();
  auto winners = read_winners(path, log);
  if (!winners) return winners.failure();
  if (note != nullptr) *note = refused_text(winners->refused);
  auto memory = store::Store::open({});
  if (!memory) return memory;
  std::vector<store::WinnerRecord> records;
  for (Item& item : winners->items) records.push_back(std::move(item.record));
  if (auto taken = (*memory)->take_in(records); !taken) return taken.failure();
  return memory;
}

std::string refused_text(const std::map<std::string, std::vector<std::string>>& refused) {
  std::string text;
  size_t count = 0;
  for (const auto& [reason, places] : refused) {
    count += places.size();
    text += (text.empty() ? "" : "; ") + std::to_string(places.size()) + " (" + places.front() + "): " + reason;
  }
  return text.empty() ? "" : std::to_string(count) + " refused: " + text;
}

}  // namespace jitune::exchange
