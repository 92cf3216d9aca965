#pragma once

#include <string>

#include "base/result.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"

/// Signatures of cubins, for databases that come from elsewhere: a cubin is code, and the file's owner is all that
/// vouches for it otherwise. Signed are the build key, the cubin's SHA-256 and the symbol that is launched.
namespace jitune::store {

/// The secret in the file `path`, or in JITUNE_SIGNING_KEY's when `path` is ""; "" when there is neither. Fails when
/// the file can't be read, holds fewer than 16 bytes, or may be read by others. White space at its end does not count.
Result<std::string> read_signing_key(const std::string& path);

/// The signature to store with an artifact whose cubin has this SHA-256: ours, or without a key what it came with.
std::string signature_of(const Database& database, const ArtifactRow& artifact, const std::string& cubin_sha256);

/// Whether the artifact's signature is right; always, when there is no key.
bool is_signed(const ArtifactRow& artifact, const std::string& key);

}  // namespace jitune::store
