#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "space/model.hpp"
#include "space/space.hpp"

namespace jitune::space {

/// What is known of a compiled config: `kernel.regs` and so on in expressions.
struct KernelFacts {
  int regs = 0;
  int64_t static_smem_bytes = 0;
  int64_t local_bytes = 0;
  int max_blocks_per_sm = 0;  ///< at this config's block size and shared bytes; 0 = not known yet
};

/// The numbers of one launch.
struct Geometry {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  std::array<uint32_t, 3> cluster{0, 0, 0};  ///< zeros: no cluster attribute
  uint32_t shared_bytes = 0;
  bool cooperative = false;
  bool programmatic_dependent = false;

  uint64_t threads() const { return uint64_t{block[0]} * block[1] * block[2]; }
};

/// All that NVRTC is told about one config.
struct BuildSpec {
  std::string source_text;                                   ///< as the author wrote it
  std::string source_name;                                   ///< for messages: the file's path, or `NAME.cu`
  std::vector<std::string> include_dirs;                     ///< absolute
  std::vector<HeaderText> header_texts;                      ///< found by name before any directory
  std::string entry;                                         ///< name expression `k<__half, 128>`, or a plain name
  bool is_template = false;                                  ///< entry is a name expression
  std::vector<std::pair<std::string, std::string>> defines;  ///< sorted by name
  bool defines_before_includes = false;
  std::vector<std::string> headers;  ///< CUDA headers that type words need, `cuda_fp16.h`; each once, sorted
  std::vector<std::string> options;  ///< the author's, `{NAME}` replaced, `when` applied, in order
  std::string arch;                  ///< `sm_90` or `sm_90a`
};

/// Whether an NVRTC option can change the code. Those that only change what NVRTC says (-w, --diag-suppress=177,
/// --ptxas-options=-v) can't, and stay out of keys.
bool changes_code(const std::string& option);

/// One argument with its numbers.
struct ArgSpec {
  ArgKind kind = ArgKind::in;
  std::string name;
  bool pass = true;
  std::optional<Type> type;  ///< nothing for `bytes`
  int64_t element_bytes = 1;
  int64_t count = 0;  ///< elements; buffers, scratch and symbols
  Fill fill;
  int64_t index_bound = 0;  ///< Fill::Kind::indices
  Tolerance tolerance;
  std::vector<uint8_t> scalar;  ///< scalar: the value's bytes in the kernel's type
  // tensor_map
  int over = -1;  ///< index of the buffer in the list of args
  std::vector<int64_t> dims, strides_bytes, box, element_strides;
  int swizzle = 0, interleave = 0, l2_promotion = 0;
  bool oob_nan = false;

  int64_t bytes() const { return count * element_bytes; }
  bool is_buffer() const { return kind != ArgKind::scalar && kind != ArgKind::tensor_map && kind != ArgKind::symbol; }
};

struct Representatives;

/// A Model bound to one problem and one device: the variant is chosen, the space is known, and everything a config
/// leads to can be asked. Immutable and safe to read from many threads; keeps its Model alive.
class Instance {
 public:
  struct State;

  /// Fails when a problem value is missing, unknown or of a kind that the definition can't use; names it and lists what
  /// the definition knows. Fails too when two values of a bucket or a count are out of range.
  static Result<Instance> bind(std::shared_ptr<const Model> model, const ProblemValues& problem,
                               const DeviceInfo& device);

  const Model& model() const;
  const ProblemValues& problem() const;
  const DeviceInfo& device() const;
  const std::string& variant() const;  ///< "" for the kernel itself, else the variant's name

  /// The problem as keys see it: buckets applied, ignored values left out.
  const ProblemValues& bucketed_problem() const;

  const Space& space() const;

  /// Why `config` can't be used for this problem and device, or nothing: a param missing or outside the space, a
  /// constraint (its text), an expression (overflow, division by zero), a launch limit of the device.
  std::optional<std::string> reject(const Config& config) const;

  /// The config of the first default rule that applies. Fails, naming the rule, when it is not valid.
  Result<Config> default_config() const;

  bool has_perf_model() const;
  /// The author's estimate of the time of `config`, a valid one, in any unit; infinity where it can't be computed.
  /// Throws what the author's function throws.
  double perf_model(const Config& config) const;
  int perf_model_top_k() const;  ///< its so many best are to be tried first; 0: the author does not say

  /// The author's features, by name; a config's values in this order, NaN where one can't be computed.
  std::vector<std::string> feature_names() const;
  std::vector<double> features(const Config& config) const;

  Result<Geometry> geometry(const Config& config, const KernelFacts& facts = {}) const;
  Result<BuildSpec> build(const Config& config) const;
  /// `facts` are needed only where a count of scratch depends on kernel.*.
  Result<std::vector<ArgSpec>> args(const Config& config, const KernelFacts& facts = {}) const;

  /// The definition's trusted kernel for this problem, ready to be compiled and launched.
  struct ReferenceSpec {
    BuildSpec build;
    Geometry geometry;
    std::vector<int> args;  ///< which of args() are its parameters, in its order
  };
  bool has_reference() const;
  /// `config`: one whose macros let the kernel's source compile, where the reference stands in it. Fails where its
  /// launch is not possible on this device.
  Result<ReferenceSpec> reference(const Config& config) const;
  /// What its outputs depend on beside the problem, for keys.
  struct ReferencePattern {
    std::string source_text;
    std::vector<std::string> include_dirs;
    std::string pattern;  ///< canonical JSON of entry, options, launch and args, as the author wrote them
  };
  ReferencePattern reference_pattern() const;

  /// The parts of the build that do not depend on a config, for the tuning key.
  struct BuildPattern {
    std::string source_text;
    std::string source_directory;  ///< absolute directory of the source file; "" for source given as text
    std::vector<std::string> include_dirs;
    std::vector<HeaderText> header_texts;
    std::string entry;                 ///< with its `{NAME}`s, problem values replaced
    std::vector<std::string> options;  ///< with their `{NAME}`s; ` when ...` appended where there is one
    std::vector<std::string> macros;  ///< names of params and derived values that become macros, with their expressions
    std::vector<std::string> headers;
    bool defines_before_includes = false;
    std::string arch;
  };
  BuildPattern build_pattern() const;

  /// Canonical JSON of args, launch geometry, derived values and tune_at as the author wrote them: what else decides a
  /// time.
  std::string launch_pattern() const;

  /// Whether geometry or args depend on kernel.*, of which max_blocks_per_sm is known only from the driver.
  bool needs_kernel_facts() const;

  /// The problems that tune_at names for this problem's bucket, heaviest first; none: this problem itself is tuned.
  /// Equal for all problems of a key, but for coarse values that an entry does not set.
  Representatives representatives() const;

  /// The space as declared, canonical JSON {"params":{...},"require":[...]} or {"configs":[...],"require":[...]}.
  std::string space_definition() const;

 private:
  explicit Instance(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// A problem that stands for its bucket.
struct Representative {
  Instance instance;
  ProblemValues set;  ///< what tune_at says of it
  double weight = 1;
};

struct Representatives {
  static constexpr int kMost = 8;  ///< beyond, the lightest are left out
  std::vector<Representative> problems;
  std::vector<std::string> left_out;  ///< entries without a value, or that the definition refuses, and why
};

}  // namespace jitune::space
