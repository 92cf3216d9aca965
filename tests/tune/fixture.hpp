#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "support/support.hpp"
#include "tune/tune.hpp"

namespace jitune::test {

/// A tuner's services on the fake driver: real NVRTC, real worker processes, a database of its own.
class Bench {
 public:
  /// `spec` is the fake driver's (tests/fake_cuda/README.md).
  explicit Bench(const std::string& spec, std::chrono::milliseconds compile_timeout = std::chrono::seconds(60));
  ~Bench();

  /// y = a x with BLOCK 64/128/256 and ITEMS 1/2/4; the default config is BLOCK 64, ITEMS 1.
  static KernelDefinition scale();
  /// A kernel `scale<float>` that computes the same, to be its trusted reference.
  static Reference plain();

  /// Binds `definition` to n = 4096 on the fake device and asks for its key.
  tune::Request request(const KernelDefinition& definition);

  tune::Outcome tune(
      const KernelDefinition& definition, const std::function<void(tune::Request&)>& change = [](tune::Request&) {});

  /// Makes new services over the same database, as the next process would.
  void reopen();

  tune::Services& services() { return *services_; }
  space::DeviceInfo device() const;
  /// How many events of this code there were.
  int logged(const std::string& code) const;

 private:
  static void note(void* bench, const Event& event) noexcept;

  TempDir dir_;
  std::chrono::milliseconds compile_timeout_;
  ScopedEnv library_path_, spec_;
  mutable std::mutex mutex_;
  std::map<std::string, int> events_;
  Log log_;
  std::unique_ptr<tune::Services> services_;
  std::shared_ptr<space::Instance> instance_;
};

/// False, having said so, when there is no NVRTC here.
bool have_nvrtc();

}  // namespace jitune::test
