// SHA-256 by OpenSSL's own functions of that name, not by EVP: the first use of EVP in a process reads openssl.cnf and
// sets up providers, which takes 1 to 5 ms, more than all else of a first look-up. They are marked as deprecated since
// OpenSSL 3.0 and present in every 3.x.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/hash.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <array>
#include <cstdint>
#include <new>

namespace jitune {
namespace {

std::string to_hex(const unsigned char* bytes, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * size);
  for (size_t i = 0; i < size; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

}  // namespace

struct FieldHasher::State {
  SHA256_CTX context{};
  State() { SHA256_Init(&context); }

  void bytes(std::string_view text) {
    std::array<unsigned char, 8> length{};
    for (unsigned i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(uint64_t{text.size()} >> (8 * i));
    SHA256_Update(&context, length.data(), length.size());
    SHA256_Update(&context, text.data(), text.size());
  }
};

FieldHasher::FieldHasher() : state_(std::make_unique<State>()) {}
FieldHasher::~FieldHasher() = default;
FieldHasher::FieldHasher(FieldHasher&&) noexcept = default;
FieldHasher& FieldHasher::operator=(FieldHasher&&) noexcept = default;

FieldHasher& FieldHasher::field(std::string_view label, std::string_view value) {
  state_->bytes(label);
  state_->bytes(value);
  text_.append(label).append(" = ").append(value.substr(0, 200)).append(value.size() > 200 ? "...\n" : "\n");
  return *this;
}

FieldHasher& FieldHasher::field(std::string_view label, long long value) {
  return field(label, std::to_string(value));
}

std::string FieldHasher::finish() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256_Final(digest.data(), &state_->context);
  state_.reset();
  return to_hex(digest.data(), digest.size());
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256_CTX context{};
  SHA256_Init(&context);
  SHA256_Update(&context, bytes.data(), bytes.size());
  SHA256_Final(digest.data(), &context);
  return to_hex(digest.data(), digest.size());
}

std::string hmac_sha256_hex(std::string_view key, std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(bytes.data()),
           bytes.size(), digest.data(), &size) == nullptr)
    throw std::bad_alloc();
  return to_hex(digest.data(), size);
}

}  // namespace jitune
