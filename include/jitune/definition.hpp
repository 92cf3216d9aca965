#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jitune/value.hpp"

/// A kernel definition as plain data. The same thing can be written as a TOML file (`format = 1`, see kernels_src/) and
/// read with `load`. Wherever a string is called an expression it is a C integer expression over params, derived
/// values, problem values, `device.*` and the functions ceil_div, min, max, pow2_ceil, log2 and sizeof(type word).
/// New members are only ever added at the end of an aggregate.
namespace jitune {

/// A knob with the values it may take. Values are all integers, all bools, or all words.
struct Param {
  std::string name;
  std::vector<Value> values;
};

/// A name that is computed from params and problem values, never searched.
struct Derived {
  std::string name;
  std::string expression;
};

/// One NVRTC option. `{NAME}` in it is replaced by the value of a param, derived or problem value.
struct CompileOption {
  std::string option;
  std::string when = {};  ///< an expression; the option is left out where it is 0
};

/// A value that the caller gives at launch.
struct ProblemValue {
  std::string name;
  std::string bucket = {};  ///< an expression; the key holds its value instead of the exact one
  bool ignore = false;      ///< true: stays out of the key altogether

  ProblemValue(const char* value_name) : name(value_name) {}             // NOLINT(google-explicit-constructor)
  ProblemValue(std::string value_name) : name(std::move(value_name)) {}  // NOLINT(google-explicit-constructor)
  ProblemValue(std::string value_name, std::string bucket_by, bool ignored = false)
      : name(std::move(value_name)), bucket(std::move(bucket_by)), ignore(ignored) {}
};

enum class ArgKind : uint8_t { in, out, inout, zeroed, scratch, scalar, tensor_map, symbol };

/// How a buffer is filled when there is no caller who has data for it.
struct Fill {
  enum class Kind : uint8_t { none, normal, uniform, integers, indices, zeros, ones, constant, file };
  Kind kind = Kind::none;
  double low = 0;          ///< mean for normal, lower bound for uniform and integers, the value for constant
  double high = 0;         ///< standard deviation for normal, upper bound (included for integers) otherwise
  std::string bound = {};  ///< indices: an expression; values lie in [0, bound)
  std::string path = {};   ///< file: raw little-endian elements

  static Fill normal(double mean, double deviation) { return {Kind::normal, mean, deviation, {}, {}}; }
  static Fill uniform(double low, double high) { return {Kind::uniform, low, high, {}, {}}; }
  static Fill integers(double low, double high) { return {Kind::integers, low, high, {}, {}}; }
  static Fill indices(std::string bound) { return {Kind::indices, 0, 0, std::move(bound), {}}; }
  static Fill zeros() { return {Kind::zeros, 0, 0, {}, {}}; }
  static Fill ones() { return {Kind::ones, 0, 0, {}, {}}; }
  static Fill constant(double value) { return {Kind::constant, value, 0, {}, {}}; }
  static Fill file(std::string path) { return {Kind::file, 0, 0, {}, std::move(path)}; }
};

/// How far an output may be from the reference's: |a - b| <= atol + rtol * |b| for all but a share of the elements.
struct Tolerance {
  bool exact = true;  ///< compare bytes; the rest is not looked at
  double rtol = 0;
  double atol = 0;
  double mismatch = 0;    ///< share of elements that may differ, 0 to 1
  bool nan_equal = true;  ///< a NaN agrees with a NaN

  static Tolerance within(double rtol, double atol, double mismatch = 0) { return {false, rtol, atol, mismatch, true}; }
};

/// One argument of the kernel, or a buffer or symbol that goes with it. Use the functions below to make one.
struct Arg {
  ArgKind kind = ArgKind::in;
  std::string name;
  std::string type;        ///< a type word, the name of a problem value that holds one, or `bytes`
  std::string count = {};  ///< buffers and symbols: an expression, in elements
  std::string value = {};  ///< scalars: an expression, or a decimal number for floating types
  Fill fill = {};
  std::optional<Tolerance> tolerance = {};  ///< outputs; unset: exact for integers, 1e-2 / 1e-3 for floating types
  bool pass = true;  ///< false: not a kernel parameter (a buffer that is only seen through a tensor_map)
  // tensor_map only
  std::string over = {};                        ///< the buffer arg that it describes
  std::vector<std::string> dims = {};           ///< expressions, innermost first, in elements
  std::vector<std::string> strides_bytes = {};  ///< expressions, of dims 1 and up
  std::vector<std::string> box = {};            ///< expressions, in elements
  std::vector<std::string> element_strides = {};
  int swizzle = 0;       ///< 0, 32, 64 or 128 bytes
  int interleave = 0;    ///< 0, 16 or 32 bytes
  int l2_promotion = 0;  ///< 0, 64, 128 or 256 bytes
  bool oob_nan = false;  ///< elements outside read as NaN instead of zero
};

/// Launch geometry; every string is an expression. Missing grid and block dimensions are 1.
struct LaunchGeometry {
  std::vector<std::string> grid = {};
  std::vector<std::string> block = {};
  std::string shared_bytes = "0";  ///< dynamic shared memory; above 48 KiB the function's limit is raised
  std::vector<std::string> cluster = {};
  bool cooperative = false;
  bool programmatic_dependent = false;
};

/// `NAME = expression` for every param.
struct DefaultRule {
  std::string when = {};  ///< an expression; the last rule has none
  std::vector<std::pair<std::string, std::string>> config = {};
};

/// The author's estimate of a config's time: configs that it takes for fast are tried first. It hides none, counts for
/// nothing in the end, and is let go where a study's own times contradict it. No part of the key.
struct PerfModel {
  std::string expression = {};  ///< over problem, device, params and derived values; smaller is faster, in any unit
  /// Instead of the expression; gets all params and derived values of a config and all problem values, by name, and may
  /// be called from the thread that tunes, thousands of times. Not in files, nor in what is stored with a miss.
  std::function<double(const std::map<std::string, Value>&)> function = {};
  int top_k = 0;  ///< its so many best are tried before any other config; 0: a few
};

/// A number of a config that its time is likely to follow: flops for each byte, bytes moved, waves over the SMs. The
/// search's model learns from it as from a param; it may be of no use, but it can't mislead. No part of the key.
struct Feature {
  std::string name;
  std::string expression;  ///< over problem, device, params and derived values; whole numbers
};

/// Another form of the kernel where `when` (over device.* and problem values) holds. What is set replaces the kernel's.
struct Variant {
  std::string when;
  std::string name = {};  ///< for people and keys; "" becomes `variant 1` and so on
  std::optional<std::string> source_file = {};
  std::optional<std::string> source_text = {};
  std::optional<std::string> entry = {};
  std::optional<std::string> arch = {};
  std::optional<std::vector<CompileOption>> options = {};
  std::optional<std::vector<Param>> params = {};
  std::optional<std::vector<Derived>> derived = {};
  std::optional<std::vector<std::string>> require = {};
  std::optional<LaunchGeometry> launch = {};
  std::optional<std::vector<Arg>> args = {};
  std::optional<std::vector<DefaultRule>> defaults = {};
  std::optional<PerfModel> perf_model = {};  ///< an expression without names (`0`) takes the kernel's away
  std::optional<std::vector<Feature>> features = {};
};

/// A header given as text: found by exactly this name, before any directory.
struct HeaderText {
  std::string name;  ///< as in `#include "name"`
  std::string text;
};

/// A kernel that is trusted: what every config leaves in the outputs is compared with what this one leaves there,
/// instead of with the default config's. It depends on no config. Its speed does not matter, up to 30 s a launch.
struct Reference {
  std::string entry;  ///< `naive<{T}>`; braces hold problem values, and derived values without params in them
  std::string source_file = {};  ///< "" in both: it stands in the kernel's own source
  std::string source_text = {};
  std::vector<CompileOption> options = {};  ///< its own; the kernel's do not hold for it
  std::vector<std::string> grid = {};       ///< expressions without params, as is what follows
  std::vector<std::string> block = {};
  std::string shared_bytes = "0";
  std::vector<std::string> args = {};  ///< names of the kernel's args in the reference's order; empty: all its buffers
                                       ///< and scalars, in its order, without scratch and tensor maps
};

class ReferenceData;

/// A function of the program that computes what every config should leave in the outputs (reference_data.hpp), in host
/// memory. It is no part of a file: set it on what `load` returns.
///
/// Threads and blocking: it is called once a study (twice where it leaves elements unwritten), on the thread that
/// tunes, a launch's own on the track `tune`; nothing ends it, and its time counts against first_call_budget. Several
/// studies may call it at once. It must not use jitune or the GPU that is tuned. An exception ends the study, and the
/// default config serves. Memory: while it runs, as much shared memory (/dev/shm) as all buffers take on the GPU
/// together; the outputs' until the study ends. Too little of it ends the study.
struct HostReference {
  std::string version = {};  ///< part of the key: change it with the function, so that winners are verified again
  std::function<void(const ReferenceData&)> function = {};
};

/// A problem that stands for its bucket: studies of the bucket measure there instead of at the problem that happens to
/// be launched first. Of all entries those count that lie in the key's bucket (and variant); where none does, the
/// launch's own problem is measured. A config must be right at each of them, and what ranks is the mean of its times
/// there, by weight: as often as each occurs, the winner takes least in all.
///
/// Buffers have each problem's own sizes and hold the definition's fills, scalars its values: a launch's own data are
/// of another problem. Keys hold all entries as they are written.
struct TuneAt {
  /// An expression or a word for each value that is set; the others are as launched. In expressions a problem value's
  /// name stands for what the key holds of it: the bucket's value.
  std::vector<std::pair<std::string, std::string>> problem = {};
  double weight = 1;  ///< more than 0
};

enum class Macros : uint8_t { after_includes, before_includes };

/// A kernel: source, space, launch geometry, args and the author's own choice of config.
struct KernelDefinition {
  std::string name;
  std::string source_file = {};           ///< a path; relative ones start at base_directory
  std::string source_text = {};           ///< instead of source_file
  std::string entry;                      ///< `k<{T}, {BLOCK}>` for a template, `k` for an extern "C" kernel
  std::vector<std::string> include = {};  ///< directories for #include
  std::vector<CompileOption> options = {};
  std::vector<ProblemValue> problem = {};
  std::vector<Derived> derived = {};
  std::vector<std::string> require = {};  ///< expressions; a config is valid where all are not 0
  std::vector<Param> params = {};
  std::vector<std::vector<std::pair<std::string, Value>>> configs = {};  ///< instead of the grid of params
  LaunchGeometry launch = {};
  std::vector<Arg> args = {};  ///< in the kernel's own order
  std::vector<DefaultRule> defaults = {};
  std::vector<Variant> variants = {};
  Macros macros = Macros::after_includes;
  std::string arch = {};            ///< "" is the device's; `sm_90a` asks for the arch-specific form
  std::string base_directory = {};  ///< what relative paths start at; "" is the working directory
  std::vector<HeaderText> headers = {};
  std::optional<Reference> reference = {};  ///< nothing: the default config's outputs are what is compared with
  std::optional<HostReference> host_reference = {};  ///< instead of `reference`
  std::optional<PerfModel> perf_model = {};
  std::vector<Feature> features = {};
  std::vector<TuneAt> tune_at = {};
};

inline Arg in(std::string name, std::string type, std::string count, Fill fill = Fill::normal(0, 1)) {
  return {.kind = ArgKind::in,
          .name = std::move(name),
          .type = std::move(type),
          .count = std::move(count),
          .fill = std::move(fill)};
}
inline Arg out(std::string name, std::string type, std::string count, std::optional<Tolerance> tolerance = {}) {
  return {.kind = ArgKind::out,
          .name = std::move(name),
          .type = std::move(type),
          .count = std::move(count),
          .tolerance = tolerance};
}
inline Arg inout(std::string name, std::string type, std::string count, Fill fill = Fill::normal(0, 1),
                 std::optional<Tolerance> tolerance = {}) {
  return {.kind = ArgKind::inout,
          .name = std::move(name),
          .type = std::move(type),
          .count = std::move(count),
          .fill = std::move(fill),
          .tolerance = tolerance};
}
inline Arg zeroed(std::string name, std::string type, std::string count, std::optional<Tolerance> tolerance = {}) {
  return {.kind = ArgKind::zeroed,
          .name = std::move(name),
          .type = std::move(type),
          .count = std::move(count),
          .tolerance = tolerance};
}
/// Memory that jitune owns; `count` may depend on the config.
inline Arg scratch(std::string name, std::string type, std::string count) {
  return {.kind = ArgKind::scratch, .name = std::move(name), .type = std::move(type), .count = std::move(count)};
}
/// `value` is what jit-prewarm and tuning without a caller pass.
inline Arg scalar(std::string name, std::string type, std::string value) {
  return {.kind = ArgKind::scalar, .name = std::move(name), .type = std::move(type), .value = std::move(value)};
}
/// A `__constant__` or `__device__` variable of the module called `name`.
inline Arg symbol(std::string name, std::string type, std::string count, Fill fill = Fill::normal(0, 1)) {
  return {.kind = ArgKind::symbol,
          .name = std::move(name),
          .type = std::move(type),
          .count = std::move(count),
          .fill = std::move(fill)};
}

/// Reads the kernel definitions of a TOML file, in file order. Blocks for the reading of two small files.
/// Throws Error{bad_definition} or Error{bad_expression}, naming file, line and what to change.
JITUNE_API std::vector<KernelDefinition> load_all(const std::string& path);

/// Reads the one kernel of a file, or the one called `kernel` of several. Throws as load_all does.
JITUNE_API KernelDefinition load(const std::string& path, const std::string& kernel = {});

}  // namespace jitune
