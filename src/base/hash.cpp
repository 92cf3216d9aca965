#include "base/hash.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstdint>
#include <new>

namespace jitune {
namespace {

std::string to_hex(const unsigned char* bytes, unsigned size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * size_t{size});
  for (unsigned i = 0; i < size; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

}  // namespace

struct FieldHasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() {
    if (context == nullptr || EVP_DigestInit_ex(context, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void bytes(std::string_view text) {
    std::array<unsigned char, 8> length{};
    for (unsigned i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(uint64_t{text.size()} >> (8 * i));
    EVP_DigestUpdate(context, length.data(), length.size());
    EVP_DigestUpdate(context, text.data(), text.size());
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
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(state_->context, digest.data(), &size);
  state_.reset();
  return to_hex(digest.data(), size);
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  return to_hex(digest.data(), size);
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
