#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_memory.hpp"
#include "measure/protocol.hpp"
#include "space/instance.hpp"

namespace jitune::prewarm {

struct Options;
struct Work;

/// What a captured launch was given: scalars, and inputs in shared memory, which goes with this object.
class CapturedData {
 public:
  /// Puts the file's bytes into shared memory. The failure names the file.
  Result<void> add_input(const std::string& arg, const std::string& path, int64_t bytes);
  void add_scalar(const std::string& arg, std::vector<uint8_t> bytes) { scalars_[arg] = std::move(bytes); }

  std::vector<measure::DataSource> sources(const std::vector<space::ArgSpec>& args) const;
  std::vector<std::pair<size_t, std::vector<uint8_t>>> scalars(const std::vector<space::ArgSpec>& args) const;

 private:
  std::map<std::string, std::vector<uint8_t>> scalars_;
  std::map<std::string, SharedMemory> inputs_;  // by arg
};

/// The launches in `options.captures`, files that JITUNE_CAPTURE made. Throws Stop for one that can't be used, naming
/// it and what is wrong.
std::vector<Work> load_captures(const Options& options);

}  // namespace jitune::prewarm
