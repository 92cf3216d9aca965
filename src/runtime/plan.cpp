#include "runtime/plan.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/capture.hpp"

namespace jitune::runtime {
namespace {

constexpr std::chrono::seconds kLookAgain{1};
constexpr size_t kInlineParameters = 64;
constexpr size_t kInlineMaps = 8;

}  // namespace

uint64_t PlanKey::hash_of(const std::array<int64_t, Problem::kMaxValues>& values, uint32_t kinds, size_t count,
                          uint32_t config) noexcept {
  uint64_t h = (uint64_t{config} << 32 | kinds) * 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < count; ++i) {
    h = (h ^ static_cast<uint64_t>(values[i])) * 0xBF58476D1CE4E5B9u;
    h ^= h >> 29;
  }
  h *= 0x94D049BB133111EBu;
  return h ^ (h >> 32);  // tables take the low bits
}

Plan::Plan(Making making)
    : key_(making.key),
      provisional_(making.provisional),
      track_(making.track),
      driver_(making.driver),
      function_(making.module ? making.module->function() : nullptr),
      geometry_(making.geometry),
      choice_(std::move(making.choice)),
      module_(std::move(making.module)),
      look_again_(Clock::now() + kLookAgain),
      miss_(std::move(making.miss)),
      misses_taken_(miss_ != nullptr ? miss_->told : 0) {
  std::vector<size_t> caller_index(making.args.size(), 0);
  size_t callers = 0;
  for (size_t i = 0; i < making.args.size(); ++i) {
    const auto kind = making.args[i].kind;
    if (kind == ArgKind::scratch || kind == ArgKind::tensor_map || kind == ArgKind::symbol) continue;
    caller_index[i] = callers++;
  }
  for (size_t i = 0; i < making.args.size(); ++i) {
    auto& arg = making.args[i];
    if (arg.kind == ArgKind::symbol) continue;
    if (arg.kind == ArgKind::scratch) {
      parameters_.push_back({Parameter::From::scratch, scratch_bytes_.size()});
      scratch_bytes_.push_back(static_cast<size_t>(arg.bytes()));
      continue;
    }
    if (arg.kind == ArgKind::tensor_map) {
      parameters_.push_back({Parameter::From::tensor_map, maps_.size()});
      const auto over = static_cast<size_t>(arg.over);
      maps_.push_back({arg, making.args[over].type.value_or(Type::uint8), caller_index[over]});
      continue;
    }
    if (arg.kind == ArgKind::zeroed) zeroed_.push_back({caller_index[i], static_cast<size_t>(arg.bytes())});
    if (arg.pass) parameters_.push_back({Parameter::From::caller, caller_index[i]});
  }
  encoded_.resize(maps_.size());
  bool plain = zeroed_.empty() && !geometry_.cooperative && !geometry_.programmatic_dependent &&
               geometry_.cluster[0] == 0 && parameters_.size() == callers;
  for (size_t i = 0; i < parameters_.size(); ++i)
    plain = plain && parameters_[i].from == Parameter::From::caller && parameters_[i].index == i;
  hot_.context = key_.context;
  hot_.function = function_;
  if (miss_ != nullptr) hot_.misses = making.counter;
  hot_.kinds = key_.kinds;
  hot_.config = key_.config;
  hot_.grid = geometry_.grid;
  hot_.block = geometry_.block;
  hot_.shared_bytes = geometry_.shared_bytes;
  hot_.heuristic = key_.heuristic;
  hot_.plain = plain;
  hot_.values = key_.values;
  hot_.fresh_for.store(fresh_for(), std::memory_order_relaxed);
}

bool Plan::is_stale_now(Track track) const noexcept {
  if (superseded_.load(std::memory_order_relaxed)) return true;
  if (provisional_ && Clock::now() >= look_again_) return true;
  if (track == Track::tune || track == Track::background)
    return track_ == Track::lookup && (miss_ != nullptr || choice_.source == Choice::Source::default_config);
  return track == Track::retune && track_ != Track::retune;
}

/// The tracks on which launches need not ask is_stale_now each time.
uint8_t Plan::fresh_for() const noexcept {
  unsigned bits = 0;
  if (!provisional_)
    for (const Track track : {Track::heuristic, Track::lookup, Track::background, Track::tune, Track::retune})
      if (!is_stale_now(track)) bits |= 1u << static_cast<unsigned>(track);
  return static_cast<uint8_t>(bits);
}

long long Plan::take_misses() {
  if (!hot_.misses) return 0;
  const long long now = hot_.misses.sum();
  return now - misses_taken_.exchange(now, std::memory_order_relaxed);
}

Plan::Launched Plan::scratch_for(CUstream stream, bool may_allocate, const std::vector<CUdeviceptr>*& buffers) {
  {
    const std::shared_lock lock(mutex_);
    if (const auto known = scratch_.find(stream); known != scratch_.end()) {
      buffers = &known->second;  // stable: unordered_map never moves its elements, and none is ever removed
      return {};
    }
  }
  const std::lock_guard lock(mutex_);
  auto known = scratch_.find(stream);
  if (known == scratch_.end()) {
    if (!may_allocate) return {CUDA_SUCCESS, true, {}};
    const RelaxedCapture relaxed(*driver_);  // some other stream may be in a capture
    std::vector<CUdeviceptr> made;
    for (const size_t bytes : scratch_bytes_) {
      CUdeviceptr address = 0;
      const CUresult code = driver_->cuMemAlloc(&address, std::max<size_t>(bytes, 16));
      if (code != CUDA_SUCCESS) {
        for (const CUdeviceptr each : made) driver_->cuMemFree(each);
        return {code, false, "allocating " + std::to_string(bytes) + " bytes of scratch memory"};
      }
      made.push_back(address);
    }
    known = scratch_.emplace(stream, std::move(made)).first;
  }
  buffers = &known->second;
  return {};
}

bool Plan::encode(size_t index, CUdeviceptr base, CUtensorMap& map, Launched& launched) {
  Encoded& cached = encoded_[index];
  {
    const std::shared_lock lock(mutex_);
    if (cached.base == base) {
      map = cached.map;
      return true;
    }
  }
  const std::lock_guard lock(mutex_);
  if (cached.base != base) {
    CUtensorMap fresh;
    const auto trouble = gpu::encode_tensor_map(*driver_, maps_[index].arg, maps_[index].element, base, fresh);
    if (trouble) {
      launched = {trouble.code, false, trouble.message};
      return false;
    }
    cached.base = base;
    cached.map = fresh;
  }
  map = cached.map;
  return true;
}

Plan::Launched Plan::launch_any(CUstream stream, std::span<const void* const> arguments, void** params) {
  alignas(64) std::array<CUtensorMap, kInlineMaps> maps;
  const std::vector<CUdeviceptr>* scratch = nullptr;
  Launched launched;
  if (!scratch_bytes_.empty()) {
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    driver_->cuStreamIsCapturing(stream, &capturing);
    launched = scratch_for(stream, capturing == CU_STREAM_CAPTURE_STATUS_NONE, scratch);
    if (scratch == nullptr) return launched;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    switch (parameter.from) {
      case Parameter::From::caller:
        params[i] = const_cast<void*>(arguments[parameter.index]);
        break;
      case Parameter::From::scratch:
        params[i] = const_cast<CUdeviceptr*>(&(*scratch)[parameter.index]);
        break;
      case Parameter::From::tensor_map: {
        CUdeviceptr base = 0;
        std::memcpy(&base, arguments[maps_[parameter.index].caller], sizeof base);
        if (!encode(parameter.index, base, maps[parameter.index], launched)) return launched;
        params[i] = &maps[parameter.index];
        break;
      }
    }
  }
  for (const Zeroed& zeroed : zeroed_) {
    CUdeviceptr address = 0;
    std::memcpy(&address, arguments[zeroed.caller], sizeof address);
    const CUresult code = driver_->cuMemsetD8Async(address, 0, zeroed.bytes, stream);
    if (code != CUDA_SUCCESS) return {code, false, "zeroing an output"};
  }
  const CUresult code = gpu::launch(*driver_, function_, geometry_, stream, params);
  return {code, false, code == CUDA_SUCCESS ? "" : "launching with config " + choice_.config};
}

Plan::Launched Plan::launch(CUstream stream, std::span<const void* const> arguments) {
  void* params[kInlineParameters];
  return launch_any(stream, arguments, params);
}

Plan::Launched Plan::reserve(CUstream stream) {
  if (scratch_bytes_.empty()) return {};
  const std::vector<CUdeviceptr>* buffers = nullptr;
  return scratch_for(stream, true, buffers);
}

std::vector<CUstream> Plan::streams() const {
  const std::shared_lock lock(mutex_);
  std::vector<CUstream> streams;
  for (const auto& [stream, buffers] : scratch_) streams.push_back(stream);
  return streams;
}

gpu::Trouble Plan::set_symbol(const std::string& name, const void* data, size_t bytes) {
  CUdeviceptr address = 0;
  size_t size = 0;
  if (auto trouble = module_->symbol(name, address, size)) return trouble;
  if (size != bytes)
    return {CUDA_ERROR_INVALID_VALUE,
            "symbol '" + name + "' has " + std::to_string(size) + " bytes, " + std::to_string(bytes) + " were given"};
  const CUresult code = driver_->cuMemcpyHtoD(address, data, bytes);
  if (code != CUDA_SUCCESS) return {code, driver_->describe("copying to symbol '" + name + "'", code)};
  return {};
}

}  // namespace jitune::runtime
