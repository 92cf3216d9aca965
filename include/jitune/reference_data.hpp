#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jitune/definition.hpp"
#include "jitune/error.hpp"
#include "jitune/value.hpp"

namespace jitune {

/// What a HostReference gets: the data that every config of the study reads, and the outputs to be filled in, in host
/// memory. It and its views end with the call.
///
///     [](const jitune::ReferenceData& data) {
///       const auto x = data.in<float>("x");
///       const auto y = data.out<float>("y");
///       for (size_t i = 0; i < y.size(); ++i) y[i] = data.scalar<float>("a") * x[i];
///     }
class JITUNE_API ReferenceData {
 public:
  /// One arg that is no scratch and no tensor map.
  struct View {
    std::string name;
    ArgKind kind = ArgKind::in;
    std::optional<Type> type;  ///< nothing for `bytes`
    size_t count = 0;          ///< elements
    size_t element_bytes = 0;
    void* data = nullptr;  ///< of a scalar: its value
  };

  ReferenceData(std::vector<View> views, std::map<std::string, Value> problem)
      : views_(std::move(views)), problem_(std::move(problem)) {}

  /// An `in` or `symbol`. T is any type of the element's size: uint16_t for half. Throws Error{bad_arguments} for a
  /// name that is none or a T of another size, which ends the study with that message, as any exception does.
  template <class T>
  std::span<const T> in(std::string_view name) const {
    const View& view = find(name, false, sizeof(T));
    return {static_cast<const T*>(view.data), view.count};
  }

  /// An `out` (elements that are left as they are will not be compared), `inout` (holds its input) or `zeroed` (zeros).
  template <class T>
  std::span<T> out(std::string_view name) const {
    const View& view = find(name, true, sizeof(T));
    return {static_cast<T*>(view.data), view.count};
  }

  /// A scalar's value: the caller's own, or what the definition says.
  template <class T>
  T scalar(std::string_view name) const {
    T value;
    std::memcpy(&value, find(name, false, sizeof(T)).data, sizeof(T));
    return value;
  }

  /// A problem value, as the launch gives it. Throws Error{bad_arguments} where there is none of this name.
  const Value& problem(const std::string& name) const;

  const std::vector<View>& views() const { return views_; }  ///< in the definition's order of args

 private:
  const View& find(std::string_view name, bool output, size_t element_bytes) const;
  std::vector<View> views_;
  std::map<std::string, Value> problem_;
};

}  // namespace jitune
