#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "jitune/definition.hpp"
#include "jitune/tuner.hpp"

struct CUstream_st;

namespace jitune {

/// CUstream and cudaStream_t; null is the default stream of the current context.
using Stream = CUstream_st*;

/// A CUdeviceptr where a typed pointer is asked for: `device_ptr{address}`.
struct device_ptr {
  unsigned long long address = 0;
};

/// The values of one problem, in fixed slots: names were looked up when it was made, so a launch handles no strings.
/// A value type, cheap to copy (192 bytes, no allocation). Made by Kernel::problem; fits that kernel only.
class JITUNE_API Problem {
 public:
  static constexpr size_t kMaxValues = 16;

  /// Changes one value. Throws Error{bad_problem} when the kernel knows no such value; its message lists those it
  /// knows. A word that was never seen before is remembered by the kernel, which allocates.
  Problem& set(const char* name, const Value& value);

  /// The track of launches with this problem, instead of the Tuner's; JITUNE_TRACK=heuristic still wins. Nothing: the
  /// Tuner's again.
  Problem& on(std::optional<Track> track) {
    track_ = track;
    return *this;
  }

  /// Launches with this problem use the config given here: nothing is searched, tuned or recorded. Params left out are
  /// as the default config has them; `with({})` takes it back. Only a pinned winner and JITUNE_TRACK=heuristic go
  /// before it. Throws Error{bad_problem} for a param that the kernel does not have; a config that is not possible for
  /// the problem makes the launch throw Error{no_runnable_config}. A config that was never seen before allocates.
  Problem& with(std::initializer_list<std::pair<const char*, Value>> config);

  friend bool operator==(const Problem& a, const Problem& b) {
    return a.kernel_ == b.kernel_ && a.count_ == b.count_ && a.kinds_ == b.kinds_ && a.values_ == b.values_ &&
           a.config_ == b.config_;
  }

 private:
  friend class UntypedKernel;
  friend class runtime::KernelState;
  // In the order in which a launch reads them: with up to four values it touches one cache line. The alignment stands
  // at the member: GCC 12 takes none at a class with visibility.
  alignas(64) const void* kernel_ = nullptr;  // identity only, never followed
  uint64_t hash_ = 0;                         // of kinds, values and config, kept by set() and with()
  uint32_t kinds_ = 0;                        // two bits a value; 0: not set yet
  uint32_t config_ = 0;                       // the number of what with() gave; 0: nothing
  std::optional<Track> track_;
  uint8_t count_ = 0;
  std::array<int64_t, kMaxValues> values_{};   // integers, bools and numbers of words
  std::weak_ptr<runtime::KernelState> names_;  // for set()
};

/// The type of one launch argument, as far as it can be checked against a definition.
struct ArgumentType {
  enum class Kind : uint8_t { pointer, const_pointer, integer, floating, other };
  Kind kind;
  size_t size;          ///< of the argument itself, bytes
  size_t element_size;  ///< of what a pointer points to; 0 when unknown (void, incomplete types)
};

/// A kernel whose arguments are checked at run time. Kernel<void(Args...)> checks them at compile time and at define.
///
/// Thread-safety: launches, prepare and choice may be called from any threads at once. The kernel may be moved, not
/// while in use. Context and stream: a launch uses the context that is current on the calling thread (cudaSetDevice
/// makes the primary one current); `stream` must belong to it. Each context gets its own loaded module, kept as long as
/// the context lives, since captured graphs may hold its function.
class JITUNE_API UntypedKernel {
 public:
  /// Validates the definition and reads its sources. Throws Error{bad_definition} or Error{bad_expression}.
  UntypedKernel(Tuner& tuner, KernelDefinition definition);
  ~UntypedKernel();
  UntypedKernel(UntypedKernel&&) noexcept;
  UntypedKernel& operator=(UntypedKernel&&) noexcept;

  const std::string& name() const;

  /// Values by name; those that are missing must be set before a launch. Throws Error{bad_problem} for unknown names.
  Problem problem(std::initializer_list<std::pair<const char*, Value>> values) const;

  /// Looks the config up (or tunes it, on the track `tune`, with fills as data), compiles if need be and loads it, so
  /// that the next launch of this problem does nothing but launch. The default config is loaded beside it, so that no
  /// launch compiles it either: on the track `heuristic`, or when the winner is no longer one. It is compiled where it
  /// is not in the database, but not for a winner that comes from a bundle. Throws as launch does; never because of the
  /// default config.
  void prepare(const Problem& problem, Stream stream = nullptr);

  /// Launches with one pointer to a value per argument, in the definition's order: buffers (those with pass = false
  /// too) and scalars; scratch, tensor maps and symbols are jitune's own. The first launch of a problem may block: to
  /// look up (milliseconds), to compile (as long as NVRTC takes) and on the track `tune` up to first_call_budget; later
  /// ones only launch. Throws Error with bad_problem, bad_arguments, no_runnable_config, not_prepared (the stream is
  /// being captured into a graph) or launch_failed.
  void launch(Stream stream, const Problem& problem, std::span<const void* const> arguments);

  /// What a launch of this problem uses in the current context. Looks it up first if need be; never tunes.
  Choice choice(const Problem& problem);

  /// Sets a `symbol` arg for production: copied to the module of every plan, now and later. `bytes` must be its size.
  /// Launches that run already see the old or the new contents.
  void set_symbol(const std::string& name, const void* data, size_t bytes);

 protected:
  UntypedKernel(Tuner& tuner, KernelDefinition definition, std::span<const ArgumentType> signature);

 private:
  friend class Tuner;
  std::shared_ptr<runtime::KernelState> state_;
};

namespace detail {

template <class T, class = void>
inline constexpr size_t kSizeOf = 0;  // incomplete types
template <class T>
inline constexpr size_t kSizeOf<T, std::void_t<decltype(sizeof(T))>> = sizeof(T);
template <>
inline constexpr size_t kSizeOf<void> = 0;

template <class T>
constexpr ArgumentType argument_type() {
  if constexpr (std::is_same_v<T, device_ptr>) {
    return {ArgumentType::Kind::pointer, sizeof(T), 0};
  } else if constexpr (std::is_pointer_v<T>) {
    using Element = std::remove_pointer_t<T>;
    const auto kind = std::is_const_v<Element> ? ArgumentType::Kind::const_pointer : ArgumentType::Kind::pointer;
    return {kind, sizeof(T), kSizeOf<std::remove_cv_t<Element>>};
  } else if constexpr (std::is_integral_v<T>) {
    return {ArgumentType::Kind::integer, sizeof(T), 0};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {ArgumentType::Kind::floating, sizeof(T), 0};
  } else {
    return {ArgumentType::Kind::other, sizeof(T), 0};
  }
}

}  // namespace detail

template <class Signature>
class Kernel;

/// A kernel with the C++ types of its launch arguments: Kernel<void(__half* y, const __half* x, int n)>.
template <class... Args>
class Kernel<void(Args...)> : public UntypedKernel {
 public:
  /// Throws Error{bad_definition} when the signature does not fit the definition's args, naming the first that differs.
  Kernel(Tuner& tuner, KernelDefinition definition) : UntypedKernel(tuner, std::move(definition), kSignature) {}

  /// See UntypedKernel::launch.
  void launch(Stream stream, const Problem& problem, std::type_identity_t<Args>... arguments) {
    const void* const pointers[] = {static_cast<const void*>(&arguments)..., nullptr};
    UntypedKernel::launch(stream, problem, std::span<const void* const>(pointers, sizeof...(Args)));
  }

 private:
  static constexpr std::array<ArgumentType, sizeof...(Args)> kSignature{
      detail::argument_type<std::remove_cv_t<Args>>()...};
};

}  // namespace jitune
