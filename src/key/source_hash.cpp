#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "key/include_scan.hpp"
#include "key/key.hpp"

namespace jitune::key {
namespace {

namespace fs = std::filesystem;

// Far above any real source; stops what a generated or looping tree could do to us.
constexpr size_t kMostHeaders = 20'000;
constexpr int kDeepest = 200;

/// A file in the directory through which it was reached: what decides both its text and what its own quoted includes
/// mean. Links to one header from two directories are two places; two spellings of one directory are one.
using Place = std::tuple<dev_t, ino_t, dev_t, ino_t>;

struct Found {
  fs::path path;
  int directory = -1;  ///< index in include_dirs, -1: beside the includer
  Place place;
};

class SourceHasher {
 public:
  SourceHasher(const std::vector<std::string>& include_dirs, const std::vector<HeaderText>& header_texts)
      : include_dirs_(include_dirs) {
    for (const HeaderText& header : header_texts) given_.emplace(header.name, Given{&header.text, -1});
  }

  Result<SourceHash> run(const std::string& text, const std::string& directory) {
    hasher_.field("source", text);
    if (Result<void> done = walk(text, directory, -1, 0); !done) return done.failure();
    hash_.sha256 = hasher_.finish();
    return std::move(hash_);
  }

 private:
  /// Hashes what each include of `text` leads to, in order and depth first. `found_in`: where the includer was found.
  Result<void> walk(const std::string& text, const fs::path& directory, int found_in, int depth) {
    for (const Include& include : scan_includes(text)) {
      if (const auto given = given_.find(include.name); include.form != Include::Form::macro && given != given_.end()) {
        if (Result<void> done = enter_given(given->first, given->second, directory, depth); !done) return done;
        continue;
      }
      std::optional<Found> found;
      if (include.form != Include::Form::macro) found = resolve(include, directory, found_in);
      if (!found) {
        hasher_.field("unresolved", include.name);
        if (std::find(hash_.unresolved.begin(), hash_.unresolved.end(), include.name) == hash_.unresolved.end())
          hash_.unresolved.push_back(include.name);
        continue;
      }
      if (Result<void> done = enter(*found, depth); !done) return done;
    }
    return {};
  }

  /// A header given as text.
  struct Given {
    const std::string* text;
    long long number;  ///< in order of inclusion, with the files; -1: not reached yet
  };

  /// NVRTC looks for what it includes in turn beside the source.
  Result<void> enter_given(const std::string& name, Given& given, const fs::path& directory, int depth) {
    if (given.number >= 0) {
      hasher_.field("again", given.number);
      return {};
    }
    given.number = next_++;
    if (depth > kDeepest) return Failure{"'" + name + "': includes " + std::to_string(kDeepest) + " deep"};
    hash_.headers.push_back({name, sha256_hex(*given.text)});
    hasher_.field("header", hash_.headers.back().sha256);
    Result<void> done = walk(*given.text, directory, -1, depth + 1);
    hasher_.field("end", "");
    return done;
  }

  Result<void> enter(const Found& found, int depth) {
    const auto [seen, fresh] = numbers_.emplace(found.place, next_);
    if (!fresh) {
      hasher_.field("again", seen->second);
      return {};
    }
    ++next_;
    if (numbers_.size() > kMostHeaders || depth > kDeepest)
      return Failure{"'" + found.path.string() + "': more than " + std::to_string(kMostHeaders) +
                     " headers, or includes " + std::to_string(kDeepest) + " deep; check the include directories"};
    const Result<std::string> text = read_file(found.path.string());
    if (!text) return Failure{"a header of the kernel cannot be read: " + text.error()};
    hash_.headers.push_back({found.path.string(), sha256_hex(*text)});
    hasher_.field("header", hash_.headers.back().sha256);
    Result<void> done = walk(*text, found.path.parent_path(), found.directory, depth + 1);
    hasher_.field("end", "");
    return done;
  }

  std::optional<Found> resolve(const Include& include, const fs::path& directory, int found_in) const {
    const fs::path name = include.name;
    if (name.is_absolute()) return look(name, -1);
    if (include.form == Include::Form::quoted && !include.next)
      if (std::optional<Found> found = look(directory / name, found_in)) return found;
    for (int i = include.next ? found_in + 1 : 0; i < static_cast<int>(include_dirs_.size()); ++i)
      if (std::optional<Found> found = look(fs::path(include_dirs_[static_cast<size_t>(i)]) / name, i)) return found;
    return {};
  }

  static std::optional<Found> look(const fs::path& path, int directory) {
    struct stat file {};
    struct stat parent {};
    const fs::path above = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode) || ::stat(above.c_str(), &parent) != 0) return {};
    return Found{path, directory, {file.st_dev, file.st_ino, parent.st_dev, parent.st_ino}};
  }

  const std::vector<std::string>& include_dirs_;
  FieldHasher hasher_;
  SourceHash hash_;
  std::map<Place, long long> numbers_;
  std::map<std::string, Given> given_;
  long long next_ = 0;
};

}  // namespace

Result<SourceHash> hash_source(const std::string& text, const std::string& source_directory,
                               const std::vector<std::string>& include_dirs,
                               const std::vector<HeaderText>& header_texts) {
  return SourceHasher(include_dirs, header_texts).run(text, source_directory);
}

}  // namespace jitune::key
