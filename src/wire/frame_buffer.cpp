#include "wire/frame_buffer.hpp"

#include <algorithm>

#include "wire/frame.hpp"

namespace jitune::wire {
namespace {

constexpr size_t kKeptBytes = 1u << 20;  // read bytes kept before those behind them are moved up

}  // namespace

Result<std::optional<Json>> FrameBuffer::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kHeaderBytes) {
    // A stray line may be shorter than a header; waiting for more would only hide it until the deadline.
    const std::string_view magic = std::string_view(kMagic).substr(0, std::min(rest.size(), sizeof kMagic - 1));
    if (rest.substr(0, magic.size()) != magic) return payload_bytes(rest).failure();
    return std::optional<Json>();
  }
  const auto length = payload_bytes(rest.substr(0, 64));
  if (!length) return length.failure();
  if (rest.size() - kHeaderBytes < *length) return std::optional<Json>();
  auto message = decode(rest.substr(kHeaderBytes, *length));
  begin_ += kHeaderBytes + *length;
  if (begin_ == bytes_.size() || begin_ > kKeptBytes) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  if (!message) return message.failure();
  return std::optional<Json>(*std::move(message));
}

}  // namespace jitune::wire
