#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/result.hpp"

namespace jitune::wire {

/// Puts frames together from the pieces in which they arrive. Memory grows with what arrived, not with what was
/// announced.
class FrameBuffer {
 public:
  void append(std::string_view bytes) { bytes_.append(bytes); }

  /// The next whole message, or nothing yet. Bytes that can't begin a frame fail as soon as they are seen; after a
  /// failure the stream is lost.
  Result<std::optional<Json>> next();

  /// Bytes of a message that is not whole yet.
  size_t pending_bytes() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  size_t begin_ = 0;
};

}  // namespace jitune::wire
