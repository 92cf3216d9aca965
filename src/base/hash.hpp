#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace jitune {

/// SHA-256 of `bytes` as 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

/// HMAC-SHA256 of `bytes` with `key` (RFC 2104) as 64 lower-case hex digits.
std::string hmac_sha256_hex(std::string_view key, std::string_view bytes);

/// Hashes a sequence of labelled fields with SHA-256. Label and value are each preceded by their length, so that no two
/// different sequences of fields feed the same bytes to the hash ("ab","c" differs from "a","bc").
class FieldHasher {
 public:
  FieldHasher();
  ~FieldHasher();
  FieldHasher(FieldHasher&&) noexcept;
  FieldHasher& operator=(FieldHasher&&) noexcept;

  FieldHasher& field(std::string_view label, std::string_view value);
  FieldHasher& field(std::string_view label, long long value);

  /// The digest as 64 lower-case hex digits; the hasher can't be used any more.
  std::string finish();

  /// What was hashed, one `label = value` line a field with values over 200 bytes cut: for JITUNE_LOG=key.
  const std::string& text() const { return text_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string text_;
};

}  // namespace jitune
