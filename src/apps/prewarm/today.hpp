#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "key/key.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"

namespace jitune::prewarm {

/// The kernels of definition files as they are now, to hold stored winners against: does the key still describe
/// today's source, and is the config still one of today's space?
class Today {
 public:
  /// Throws jitune::Error for what is wrong in a file.
  explicit Today(const std::vector<std::string>& files);

  bool empty() const { return models_.empty(); }

  enum class Verdict : uint8_t {
    good,
    unknown_kernel,   ///< no file defines it
    stale,            ///< the key of today's kernel differs; `why` names the fields
    invalid_config,   ///< not in today's space
    invalid_default,  ///< the author's own rules give no valid config here
    cannot_tell,      ///< a bucket of the problem does not give itself back, so today's key is not known
  };
  struct Judged {
    Verdict verdict = Verdict::good;
    std::string why;
    std::optional<space::Instance> instance;  ///< where it could be bound
  };
  Judged judge(const store::WinnerRecord& record) const;

  /// The kernel called `name`, or null.
  std::shared_ptr<const space::Model> find(const std::string& name) const;
  const std::vector<std::shared_ptr<const space::Model>>& models() const { return models_; }

 private:
  std::vector<std::shared_ptr<const space::Model>> models_;
};

/// The device that a key describes, with the limits of its compute capability.
space::DeviceInfo device_of(const key::TuningKey& key);

/// Binds a kernel to the problem of a key, values that keys leave out set to 1.
Result<space::Instance> bind_to_key(std::shared_ptr<const space::Model> model, const key::TuningKey& key);

/// The tuning key of an instance under another key's NVRTC, policy, environment and callables.
Result<key::TuningKey> key_as_of(const space::Instance& instance, const key::TuningKey& other);

/// Names of the fields in which two keys differ, `source_sha256, options`.
std::string field_names(const std::vector<std::string>& differences);

}  // namespace jitune::prewarm
