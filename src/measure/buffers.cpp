#include "measure/buffers.hpp"

#include <algorithm>

#include "measure/data_source.hpp"

namespace jitune::measure {
namespace {

// Caller's buffers start at 256 bytes or better, TMA wants up to 128: a page serves every access a kernel may make.
constexpr int64_t kAlignment = 4096;

int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Guard, data, and a guard that begins with the first byte after the data.
int64_t guarded_bytes(int64_t bytes) {
  return kGuardBytes + align_up(bytes) + kGuardBytes;
}

bool is_output(const space::ArgSpec& arg) {
  return arg.kind == ArgKind::out || arg.kind == ArgKind::inout || arg.kind == ArgKind::zeroed;
}

bool lives_in_arena(const space::ArgSpec& arg) {
  return arg.is_buffer() && arg.kind != ArgKind::scratch;
}

int64_t copy_bytes(const space::ArgSpec& arg) {
  int64_t bytes = 0;
  if (is_output(arg)) bytes += align_up(arg.bytes());
  if (arg.kind == ArgKind::inout || arg.kind == ArgKind::symbol) bytes += align_up(arg.bytes());
  return bytes;
}

}  // namespace

uint32_t poison_word(uint64_t run) {
  // The upper half lies in 0x7FF1..0x7FFF, the lower one in 0x7F81..0x7FFF, either sign: NaN as half, bfloat16, float
  // and double, wherever an element begins.
  const uint32_t sign = run % 2 == 0 ? 0x8000u : 0;
  const uint64_t turn = run / 2;
  const uint32_t upper = sign | 0x7FF0u | static_cast<uint32_t>(1 + turn % 15);
  const uint32_t lower = sign | 0x7F80u | static_cast<uint32_t>(1 + turn % 127);
  return upper << 16 | lower;
}

int64_t Buffers::planned_bytes(const std::vector<space::ArgSpec>& args) {
  int64_t bytes = 0;
  for (const space::ArgSpec& arg : args)
    bytes += (lives_in_arena(arg) ? guarded_bytes(arg.bytes()) : 0) + copy_bytes(arg);
  return bytes;
}

void Buffers::place(size_t arg, int64_t bytes, CUdeviceptr base, int64_t& offset) {
  const CUdeviceptr start = base + static_cast<CUdeviceptr>(offset);
  const CUdeviceptr data = start + static_cast<CUdeviceptr>(kGuardBytes);
  const CUdeviceptr end = data + static_cast<CUdeviceptr>(bytes);
  offset += guarded_bytes(bytes);
  buffers_[arg].data = data;
  guards_.push_back({arg, false, start, kGuardBytes});
  guards_.push_back({arg, true, end, static_cast<int64_t>(base) + offset - static_cast<int64_t>(end)});
}

gpu::Trouble Buffers::build(const Setup& setup) {
  args_ = setup.args;
  buffers_.assign(args_.size(), {});
  guards_.clear();
  int64_t arena_bytes = 0;
  int64_t copies_bytes = 0;
  for (const space::ArgSpec& arg : args_) {
    if (lives_in_arena(arg)) arena_bytes += guarded_bytes(arg.bytes());
    copies_bytes += copy_bytes(arg);
  }
  if (auto bad = arena_.allocate(driver_, arena_bytes, "the study's buffers")) return bad;
  if (auto bad = copies_.allocate(driver_, copies_bytes, "copies of the study's buffers")) return bad;
  if (arena_bytes > 0)
    if (auto bad = trouble(
            driver_, "cuMemsetD32Async",
            driver_.cuMemsetD32Async(arena_.address(), kGuardPattern, static_cast<size_t>(arena_bytes) / 4, stream_)))
      return bad;
  int64_t offset = 0;
  CUdeviceptr copy = copies_.address();
  const auto next_copy = [&copy](int64_t bytes) {
    const CUdeviceptr here = copy;
    copy += static_cast<CUdeviceptr>(align_up(bytes));
    return here;
  };
  for (size_t i = 0; i < args_.size(); ++i) {
    const space::ArgSpec& arg = args_[i];
    if (lives_in_arena(arg)) place(i, arg.bytes(), arena_.address(), offset);
    if (arg.kind == ArgKind::symbol) buffers_[i].data = next_copy(arg.bytes());
    if (arg.kind == ArgKind::inout) buffers_[i].pristine = next_copy(arg.bytes());
    if (is_output(arg)) buffers_[i].reference = next_copy(arg.bytes());
    needs_restore_ = needs_restore_ || arg.kind == ArgKind::inout || arg.kind == ArgKind::zeroed;
  }
  fixed_guards_ = guards_.size();
  if (auto bad = trouble(driver_, "cuStreamSynchronize", driver_.cuStreamSynchronize(stream_))) return bad;
  for (size_t i = 0; i < args_.size(); ++i)
    if (auto bad = load_data(i, setup)) return bad;
  if (auto bad = upload_guards()) return bad;
  return trouble(driver_, "filling the study's buffers", driver_.cuStreamSynchronize(stream_));
}

gpu::Trouble Buffers::load_data(size_t index, const Setup& setup) {
  const space::ArgSpec& arg = args_[index];
  if (arg.kind != ArgKind::in && arg.kind != ArgKind::inout && arg.kind != ArgKind::symbol) return {};
  if (arg.bytes() == 0) return {};
  const CUdeviceptr data = buffers_[index].data;
  const DataSource source = setup.data.empty() ? DataSource{} : setup.data[index];
  gpu::Trouble bad;
  switch (source.kind) {
    case DataSource::Kind::ipc:
      bad = copy_from_ipc(driver_, source, data, arg.bytes());
      break;
    case DataSource::Kind::shared_memory:
      bad = copy_from_shared_memory(driver_, source.shm_name, data, arg.bytes());
      break;
    case DataSource::Kind::device:
      bad = trouble(driver_, "copying the caller's buffer",
                    driver_.cuMemcpyDtoDAsync(data, source.address, static_cast<size_t>(arg.bytes()), stream_));
      break;
    case DataSource::Kind::fill:
      if (arg.fill.kind == Fill::Kind::file)
        bad = copy_from_file(driver_, arg.fill.path, data, arg.bytes());
      else  // the odd factor keeps the args' streams of random numbers apart
        bad = utility_.fill(data, arg, setup.seed + 0xD1342543DE82EF95ull * (index + 1));
      break;
  }
  if (bad) return {bad.code, "`" + arg.name + "`: " + bad.message};
  if (arg.kind != ArgKind::inout) return {};
  return trouble(driver_, "cuMemcpyDtoDAsync",
                 driver_.cuMemcpyDtoDAsync(buffers_[index].pristine, data, static_cast<size_t>(arg.bytes()), stream_));
}

gpu::Trouble Buffers::upload_guards() {
  std::vector<uint64_t> table;
  for (const Guard& guard : guards_) {
    table.push_back(guard.address);
    table.push_back(static_cast<uint64_t>(guard.bytes));
  }
  const auto bytes = static_cast<int64_t>(table.size() * sizeof(uint64_t));
  if (bytes == 0) return {};
  if (guard_table_.bytes() < bytes)
    if (auto bad = guard_table_.allocate(driver_, bytes, "the table of guards")) return bad;
  // From pageable memory: the driver has its own copy of the table when the call returns.
  return trouble(driver_, "cuMemcpyHtoDAsync",
                 driver_.cuMemcpyHtoDAsync(guard_table_.address(), table.data(), static_cast<size_t>(bytes), stream_));
}

gpu::Trouble Buffers::fit_scratch(const std::vector<space::ArgSpec>& args) {
  const auto refused = [](const std::string& why) { return gpu::Trouble{CUDA_ERROR_INVALID_VALUE, why}; };
  if (args.size() != args_.size())
    return refused("the candidate has " + std::to_string(args.size()) + " args, the study " +
                   std::to_string(args_.size()));
  int64_t scratch_bytes = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].kind != args_[i].kind || (lives_in_arena(args[i]) && args[i].bytes() != args_[i].bytes()))
      return refused("arg `" + args[i].name + "` of the candidate is not the study's");
    if (args[i].kind == ArgKind::scratch) scratch_bytes += guarded_bytes(args[i].bytes());
    if (args[i].kind == ArgKind::scratch) args_[i] = args[i];
  }
  if (scratch_bytes == 0) return {};
  if (scratch_.bytes() < scratch_bytes)
    if (auto bad = scratch_.allocate(driver_, scratch_bytes, "the config's scratch memory")) return bad;
  guards_.resize(fixed_guards_);
  int64_t offset = 0;
  for (size_t i = 0; i < args_.size(); ++i)
    if (args_[i].kind == ArgKind::scratch) place(i, args_[i].bytes(), scratch_.address(), offset);
  if (auto bad = upload_guards()) return bad;
  return trouble(
      driver_, "cuMemsetD32Async",
      driver_.cuMemsetD32Async(scratch_.address(), kGuardPattern, static_cast<size_t>(scratch_bytes) / 4, stream_));
}

gpu::Trouble Buffers::make_copies(int count) {
  copies_made_ = 0;
  const int64_t each = arena_.bytes();
  if (auto bad = further_.allocate(driver_, each * count, "copies for graph samples")) return bad;
  if (auto bad = restore()) return bad;
  for (int copy = 0; copy < count; ++copy) {
    const CUdeviceptr to = further_.address() + static_cast<CUdeviceptr>(each * copy);
    if (auto bad = trouble(driver_, "copying the study's buffers",
                           driver_.cuMemcpyDtoDAsync(to, arena_.address(), static_cast<size_t>(each), stream_)))
      return bad;
  }
  copies_made_ = count;
  return {};
}

CUdeviceptr Buffers::address(size_t arg, int copy) const {
  const CUdeviceptr checked = buffers_[arg].data;
  if (copy == kChecked || !lives_in_arena(args_[arg]) || args_[arg].kind == ArgKind::symbol) return checked;
  return further_.address() + static_cast<CUdeviceptr>(arena_.bytes() * copy) + (checked - arena_.address());
}

gpu::Trouble Buffers::restore_copies() const {
  for (int copy = 0; copy < copies_made_; ++copy)
    if (auto bad = restore_set(copy)) return bad;
  return {};
}

gpu::Trouble Buffers::restore() const {
  return restore_set(kChecked);
}

gpu::Trouble Buffers::restore_set(int copy) const {
  for (size_t i = 0; i < args_.size(); ++i) {
    const auto bytes = static_cast<size_t>(args_[i].bytes());
    if (bytes == 0) continue;
    CUresult result = CUDA_SUCCESS;
    if (args_[i].kind == ArgKind::inout)
      result = driver_.cuMemcpyDtoDAsync(address(i, copy), buffers_[i].pristine, bytes, stream_);
    if (args_[i].kind == ArgKind::zeroed) result = driver_.cuMemsetD8Async(address(i, copy), 0, bytes, stream_);
    if (auto bad = trouble(driver_, "restoring buffers", result)) return bad;
  }
  return {};
}

gpu::Trouble Buffers::poison(uint32_t word) const {
  for (size_t i = 0; i < args_.size(); ++i) {
    if (args_[i].kind != ArgKind::out && args_[i].kind != ArgKind::scratch) continue;
    const auto bytes = static_cast<size_t>(args_[i].bytes());
    CUresult result = CUDA_SUCCESS;
    if (bytes >= 4) result = driver_.cuMemsetD32Async(buffers_[i].data, word, bytes / 4, stream_);
    for (size_t at = bytes / 4 * 4; at < bytes && result == CUDA_SUCCESS; ++at)
      result = driver_.cuMemsetD8Async(buffers_[i].data + at, static_cast<unsigned char>(word >> (8 * (at % 4))), 1,
                                       stream_);
    if (auto bad = trouble(driver_, "poisoning buffers", result)) return bad;
  }
  return {};
}

gpu::Trouble Buffers::heal_guards() const {
  std::vector<uint32_t> pattern(static_cast<size_t>(kGuardBytes + kAlignment) / 4 + 1, kGuardPattern);
  for (const Guard& guard : guards_) {
    // A guard may begin within a word: the byte at address a is always byte a % 4 of the pattern.
    const char* bytes = reinterpret_cast<const char*>(pattern.data()) + guard.address % 4;
    if (auto bad = trouble(driver_, "restoring guards",
                           driver_.cuMemcpyHtoD(guard.address, bytes, static_cast<size_t>(guard.bytes))))
      return bad;
  }
  return trouble(driver_, "restoring guards", driver_.cuCtxSynchronize());
}

std::string Buffers::guard_text(size_t index) const {
  const Guard& guard = guards_[std::min(index, guards_.size() - 1)];
  const std::string where = guard.after ? "past the end of" : "before the start of";
  return "it wrote " + where + " `" + args_[guard.arg].name + "` (" + std::to_string(args_[guard.arg].bytes()) +
         " bytes)";
}

}  // namespace jitune::measure
