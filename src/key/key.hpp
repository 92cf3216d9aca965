#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "space/instance.hpp"

namespace jitune::key {

/// Enters every key: raised when the meaning of what is hashed changes.
inline constexpr int kKeySchema = 1;

/// One header that a source reaches by #include.
struct Header {
  std::string path;    ///< where it was found; never hashed
  std::string sha256;  ///< of its bytes
};

/// The content of a source and of every header it reaches, without the toolkit's own (their version stands for them).
struct SourceHash {
  std::string sha256;
  std::vector<Header> headers;          ///< in order of first inclusion
  std::vector<std::string> unresolved;  ///< names found nowhere: the toolkit's, or under an #if that is not taken
};

/// Scans `text` for #include as NVRTC would resolve them: quoted ones beside the includer first, then `include_dirs` in
/// order; angled ones in `include_dirs`. Comments and string literals are respected; conditionals are not evaluated, so
/// both branches count. A name that resolves nowhere is no error and never resolves to the host's /usr/include.
/// The same tree at another path gives the same hash. Reads files; fails when a found header cannot be read.
/// `header_texts` are found first, by exactly their name.
Result<SourceHash> hash_source(const std::string& text, const std::string& source_directory,
                               const std::vector<std::string>& include_dirs,
                               const std::vector<HeaderText>& header_texts = {});

/// What a cubin depends on. `sha256` is the build key.
struct BuildKey {
  std::string source_sha256;
  std::string entry;         ///< the name expression with its values
  std::string config;        ///< canonical JSON
  std::string defines;       ///< canonical JSON array of [name, value]
  std::string headers;       ///< canonical JSON array: the CUDA headers that type words need
  std::string options;       ///< canonical JSON array, in order
  std::string nvrtc;         ///< 13.0.88
  std::string arch;          ///< sm_90a
  bool is_template = false;  ///< entry is a name expression
  bool defines_before_includes = false;
  std::string sha256;
};

BuildKey make_build_key(const SourceHash& source, const space::BuildSpec& spec, const space::Config& config,
                        const std::string& nvrtc_build);

/// What an answer depends on: each field is a readable column of the table `keys`; `sha256` is over all of them.
struct TuningKey {
  std::string kernel;
  std::string variant;  ///< "" for the kernel itself
  std::string source_sha256;
  std::string entry;          ///< with its `{NAME}`s
  std::string options;        ///< canonical JSON: options and macros with their expressions
  std::string launch_sha256;  ///< of args, geometry and derived values
  std::string problem;        ///< canonical JSON, buckets applied, ignored values left out
  std::string arch;           ///< sm_90a
  int cc = 0;
  int sm_count = 0;
  int64_t memory_gib = 0;
  int64_t l2_bytes = 0;
  int max_clock_mhz = 0;
  int max_memory_clock_mhz = 0;
  std::string nvrtc;        ///< 13.0.88; "" when none is installed here
  std::string policy;       ///< measure::Policy::text()
  std::string environment;  ///< variables that change code, canonical JSON; {} for none
  std::string callables;    ///< versions of host callables, canonical JSON; {} for none
  int schema = kKeySchema;
  std::string sha256;
  std::string hashed_text;  ///< what FieldHasher::text() said, for JITUNE_LOG=key
};

TuningKey make_tuning_key(const space::Instance& instance, const SourceHash& source, const std::string& nvrtc_build,
                          const std::string& policy, const std::string& environment = "{}",
                          const std::string& callables = "{}");

/// What `callables` holds of the definition's reference: results that another one has judged do not serve. A reference
/// kernel stands there by the hash of its sources (`source`) and of how it is launched, a host's function by its
/// version. {} without one.
std::string reference_callables(const space::Instance& instance, const SourceHash& source);

/// Fills in sha256 and hashed_text from the other fields: of a key that was read from a row or a file.
void seal(TuningKey& key);

/// Names of the fields in which two keys differ, with both values: `nvrtc: 13.0.88 / 12.9.86`.
std::vector<std::string> differences(const TuningKey& a, const TuningKey& b);

}  // namespace jitune::key
