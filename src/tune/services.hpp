#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "compile/choose_nvrtc.hpp"
#include "compile/nvrtc.hpp"
#include "key/key.hpp"
#include "measure/protocol.hpp"
#include "space/instance.hpp"
#include "store/store.hpp"

namespace jitune::tune {

class Compiler;
class Measurer;

struct ServiceOptions {
  store::Store::OpenOptions store;
  std::string nvrtc;       ///< Options::nvrtc or JITUNE_NVRTC; "" searches
  std::string worker;      ///< Options::worker
  std::string worker_env;  ///< JITUNE_WORKER
  std::string cuda_home, cuda_path;
  std::optional<compile::NvrtcTarget> target;  ///< what is compiled for; nothing: this machine's driver and GPUs
  int compile_workers = 0;                     ///< 0: pool::default_width()
  std::string runtime_directory;               ///< where compile slots are shared with other processes; "": not shared
  std::chrono::milliseconds compile_timeout{60000};
  bool keep_measuring_worker = false;  ///< between studies
  bool in_process = false;             ///< Isolation::in_process
  measure::Policy policy;
  Log* log = nullptr;  ///< outlives the services
};

/// This machine's driver and GPUs, as far as there are any.
compile::NvrtcTarget compile_target();

/// What tuning is done with: the store, NVRTC, compile workers, measuring workers. Everything but the store is found or
/// started when first asked for, so that a warm process starts nothing. Safe from any thread.
class Services {
 public:
  /// Fails only when the store must be a file and is not usable.
  static Result<std::unique_ptr<Services>> open(ServiceOptions options);
  ~Services();

  store::Store& store() { return *store_; }
  Log& log() { return *options_.log; }
  const ServiceOptions& options() const { return options_; }

  /// The NVRTC that is used here, chosen by driver and GPUs among those installed, by its file: it is not loaded. The
  /// failure says what was tried and what to install.
  Result<compile::NvrtcFile> nvrtc();
  const compile::NvrtcSearch& nvrtc_search();

  Result<std::string> worker();  ///< path of jitune-worker

  /// Build cache and compile workers. Fails when there is no NVRTC; without a worker program it compiles in this
  /// process.
  Result<Compiler*> compiler();

  /// The measuring side for one GPU. Fails when there is no worker program.
  Result<Measurer*> measurer(const std::string& device_uuid);

  int workers_started() const;  ///< compile and measuring workers, so far

  /// Source hash of the instance's form, remembered as long as the services live.
  Result<key::SourceHash> source_hash(const space::Instance& instance);

  /// That of its reference kernel, if it has one.
  Result<key::SourceHash> reference_hash(const space::Instance& instance);

  /// The tuning key of an instance under this machine's NVRTC and policy ("" as nvrtc when there is none here).
  Result<key::TuningKey> tuning_key(const space::Instance& instance);

 private:
  explicit Services(ServiceOptions options);
  Result<key::SourceHash> hash_once(const std::string& text, const std::string& directory,
                                    const std::vector<std::string>& include_dirs,
                                    const std::vector<HeaderText>& header_texts);
  ServiceOptions options_;
  std::unique_ptr<store::Store> store_;
  struct Lazy;
  std::unique_ptr<Lazy> lazy_;
};

}  // namespace jitune::tune
