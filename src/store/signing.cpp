#include "store/signing.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.hpp"
#include "base/hash.hpp"

namespace jitune::store {
namespace {

constexpr size_t kLeastBytes = 16;

std::string sign(const std::string& key, const ArtifactRow& artifact, const std::string& cubin_sha256) {
  FieldHasher hasher;
  hasher.field("build", artifact.build_sha256).field("cubin", cubin_sha256).field("symbol", artifact.lowered_name);
  return hmac_sha256_hex(key, hasher.finish());
}

}  // namespace

Result<std::string> read_signing_key(const std::string& path) {
  const char* named = ::secure_getenv("JITUNE_SIGNING_KEY");
  const std::string file = !path.empty() ? path : named == nullptr ? std::string() : std::string(named);
  if (file.empty()) return std::string();
  const std::string what = "the signing key '" + file + "' (JITUNE_SIGNING_KEY) ";
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return Failure{what + "is not a file"};
  if ((info.st_uid != ::geteuid() && info.st_uid != 0) || (info.st_mode & 077) != 0)
    return Failure{what + "may be read or written by others: chown and chmod 600 it"};
  Result<std::string> key = read_file(file);
  if (!key) return Failure{what + "can't be read: " + key.error()};
  while (!key->empty() && (key->back() == '\n' || key->back() == '\r' || key->back() == ' ')) key->pop_back();
  if (key->size() < kLeastBytes)
    return Failure{what + "is shorter than " + std::to_string(kLeastBytes) +
                   " bytes: `openssl rand -hex 32` makes one"};
  return key;
}

std::string signature_of(const Database& database, const ArtifactRow& artifact, const std::string& cubin_sha256) {
  return database.signing_key().empty() ? artifact.signature : sign(database.signing_key(), artifact, cubin_sha256);
}

bool is_signed(const ArtifactRow& artifact, const std::string& key) {
  if (key.empty()) return true;
  const std::string right = sign(key, artifact, artifact.cubin_sha256);
  if (right.size() != artifact.signature.size()) return false;
  unsigned char differs = 0;  // in the same time wherever they differ
  for (size_t i = 0; i < right.size(); ++i) differs |= static_cast<unsigned char>(right[i] ^ artifact.signature[i]);
  return differs == 0;
}

}  // namespace jitune::store
