#include "tune/services.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/hash.hpp"
#include "gpu/driver.hpp"
#include "pool/pool.hpp"
#include "tune/compiler.hpp"
#include "tune/measurer.hpp"

namespace jitune::tune {
namespace {

/// The store as NVRTC's memo: a warm process learns a library's build from the file's stat tuple alone.
class StoreMemo final : public compile::ToolchainMemo {
 public:
  explicit StoreMemo(store::Store& store) : store_(store) {}

  bool recall(compile::NvrtcFile& file) override {
    const auto known = store_.find_toolchain(row(file));
    if (!known) return false;
    file.version = known->version;
    file.build = known->build;
    return true;
  }

  void remember(const compile::NvrtcFile& file) override { store_.put_toolchain(row(file)); }

 private:
  static store::Store::Toolchain row(const compile::NvrtcFile& file) {
    return {file.path, file.device, file.inode, file.size_bytes, file.mtime_ns, file.version, file.build};
  }
  store::Store& store_;
};

}  // namespace

compile::NvrtcTarget compile_target() {
  compile::NvrtcTarget target;
  const auto driver = gpu::driver();
  if (!driver) return target;
  target.driver_version = (*driver)->version;
  // The two attributes alone: the first launch of a process waits for this, and some others (clocks) are slow to ask.
  const auto attribute = [&](CUdevice device, CUdevice_attribute which) {
    int value = 0;
    return (*driver)->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
  };
  int count = 0;
  (void)(*driver)->cuDeviceGetCount(&count);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    if ((*driver)->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) continue;
    space::DeviceInfo info;
    info.cc_major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    info.cc_minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    if (info.cc_major > 0) target.archs.push_back(info.arch());
  }
  return target;
}

struct Services::Lazy {
  std::mutex mutex;
  std::optional<compile::NvrtcSearch> search;
  std::optional<compile::NvrtcChoice> choice;
  std::unique_ptr<Compiler> compiler;
  std::map<std::string, std::unique_ptr<Measurer>> measurers;
  std::map<std::string, key::SourceHash> sources;
};

Services::Services(ServiceOptions options) : options_(std::move(options)), lazy_(std::make_unique<Lazy>()) {}

Services::~Services() = default;

Result<std::unique_ptr<Services>> Services::open(ServiceOptions options) {
  options.store.log = options.log;
  std::unique_ptr<Services> services(new Services(std::move(options)));
  auto store = store::Store::open(services->options_.store);
  if (!store) return store.failure();
  services->store_ = std::move(*store);
  return services;
}

const compile::NvrtcSearch& Services::nvrtc_search() {
  const std::lock_guard lock(lazy_->mutex);
  if (!lazy_->search) {
    StoreMemo memo(*store_);
    compile::NvrtcSearchOptions where;
    where.explicit_path = options_.nvrtc;
    where.cuda_home = options_.cuda_home;
    where.cuda_path = options_.cuda_path;
    lazy_->search = compile::find_nvrtc(where, &memo);
  }
  return *lazy_->search;
}

Result<compile::NvrtcFile> Services::nvrtc() {
  const auto& search = nvrtc_search();
  if (search.found.empty()) return Failure{compile::explain_missing(search)};
  const std::lock_guard lock(lazy_->mutex);
  if (!lazy_->choice) {
    // Who names one means it; it fails by its own words should it not do.
    lazy_->choice = compile::choose_nvrtc(search.found, !options_.nvrtc.empty() ? compile::NvrtcTarget{}
                                                        : options_.target       ? *options_.target
                                                                                : compile_target());
    if (!lazy_->choice->note.empty()) options_.log->warning("nvrtc_ptx", "", lazy_->choice->note, "once");
  }
  if (lazy_->choice->index < 0) {
    std::string why = "no NVRTC found here serves this machine:";
    for (size_t i = 0; i < search.found.size(); ++i)
      why += "\n  " + search.found[i].build + "  " + search.found[i].path + ": " + lazy_->choice->reasons[i];
    return Failure{why + "\nInstall a CUDA Toolkit of the driver's major version, or update the driver."};
  }
  return search.found[static_cast<size_t>(lazy_->choice->index)];
}

Result<std::string> Services::worker() {
  return pool::find_worker(options_.worker, options_.worker_env);
}

Result<Compiler*> Services::compiler() {
  auto library = nvrtc();
  if (!library) return library.failure();
  auto program = worker();
  const std::lock_guard lock(lazy_->mutex);
  if (!lazy_->compiler) {
    if (!program) options_.log->warning("no_worker", "", program.error(), "find_worker");
    Compiler::Options options;
    options.worker = program ? *program : "";
    options.nvrtc = *library;
    options.width = options_.compile_workers > 0 ? options_.compile_workers : pool::default_width();
    options.timeout = options_.compile_timeout;
    options.slots.directory = options_.runtime_directory;
    // Who asks for more workers than the machine bears gets them, but all who ask get them from the same slots.
    options.slots.count = std::max(options.width, pool::default_width());
    options.store = store_.get();
    options.log = options_.log;
    lazy_->compiler = std::make_unique<Compiler>(std::move(options));
  }
  return lazy_->compiler.get();
}

Result<Measurer*> Services::measurer(const std::string& device_uuid) {
  auto program = options_.in_process ? Result<std::string>(std::string()) : worker();
  if (!program) return program.failure();
  const std::lock_guard lock(lazy_->mutex);
  auto& measurer = lazy_->measurers[device_uuid];
  if (!measurer)
    measurer = std::make_unique<Measurer>(
        Measurer::Options{*program, device_uuid, options_.keep_measuring_worker, options_.in_process, options_.log});
  return measurer.get();
}

int Services::workers_started() const {
  const std::lock_guard lock(lazy_->mutex);
  int count = lazy_->compiler ? lazy_->compiler->spawned() : 0;
  for (const auto& [uuid, measurer] : lazy_->measurers) count += measurer->spawned();
  return count;
}

Result<key::SourceHash> Services::source_hash(const space::Instance& instance) {
  const auto pattern = instance.build_pattern();
  return hash_once(pattern.source_text, pattern.source_directory, pattern.include_dirs, pattern.header_texts);
}

Result<key::SourceHash> Services::reference_hash(const space::Instance& instance) {
  const auto reference = instance.reference_pattern();
  return hash_once(reference.source_text, "", reference.include_dirs, instance.build_pattern().header_texts);
}

/// Within one process a definition's text is fixed; the headers it reaches are read once for each text.
Result<key::SourceHash> Services::hash_once(const std::string& text, const std::string& directory,
                                            const std::vector<std::string>& include_dirs,
                                            const std::vector<HeaderText>& header_texts) {
  std::string memo = sha256_hex(text) + directory;
  for (const auto& dir : include_dirs) memo += '\n' + dir;
  for (const auto& header : header_texts) memo += '\n' + header.name + '\n' + sha256_hex(header.text);
  {
    const std::lock_guard lock(lazy_->mutex);
    if (const auto known = lazy_->sources.find(memo); known != lazy_->sources.end()) return known->second;
  }
  auto hash = key::hash_source(text, directory, include_dirs, header_texts);
  if (!hash) return hash.failure();
  const std::lock_guard lock(lazy_->mutex);
  return lazy_->sources.emplace(std::move(memo), std::move(*hash)).first->second;
}

Result<key::TuningKey> Services::tuning_key(const space::Instance& instance) {
  auto source = source_hash(instance);
  if (!source) return source.failure();
  const auto library = nvrtc();
  key::SourceHash reference_source;
  if (instance.has_reference()) {
    auto reference = reference_hash(instance);
    if (!reference) return reference.failure();
    reference_source = std::move(*reference);
  }
  const std::string callables = key::reference_callables(instance, reference_source);
  auto key =
      key::make_tuning_key(instance, *source, library ? library->build : "", options_.policy.text(), "{}", callables);
  options_.log->key(instance.model().name(), key.hashed_text + "gives key_sha256 = " + key.sha256 + "\n");
  return key;
}

}  // namespace jitune::tune
