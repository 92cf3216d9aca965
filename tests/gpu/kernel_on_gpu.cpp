#include "kernel_on_gpu.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "measure/buffers.hpp"

namespace jitune::test {
namespace {

constexpr size_t kGuard = static_cast<size_t>(measure::kGuardBytes);
constexpr unsigned char kGuardByte = 0xA5;
constexpr int kRuns = 2;  // a race may spare the first

/// How many elements of type Word still hold the poison.
template <class Word>
size_t unwritten(const std::vector<uint8_t>& bytes, uint32_t poison) {
  size_t count = 0;
  for (size_t at = 0; at < bytes.size() / sizeof(Word); ++at) {
    Word word;
    std::memcpy(&word, &bytes[at * sizeof(Word)], sizeof(Word));
    count += word == static_cast<Word>(poison) ? 1 : 0;
  }
  return count;
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace

KernelOnGpu::KernelOnGpu(const gpu::Driver& driver, const space::Instance& instance, const space::Config& any_config)
    : driver_(driver), instance_(instance) {
  auto specs = instance.args(any_config);
  if (!specs) throw std::runtime_error(specs.error());
  args_ = make_host_args(*specs);
  expected_ = reference(instance.model().name(), instance.problem(), args_);
  for (const HostArg& arg : args_) {
    Buffer& buffer = buffers_.emplace_back();
    if (!arg.spec.is_buffer()) continue;
    const size_t bytes = arg.bytes.size();
    need(buffer.memory.allocate(driver, static_cast<int64_t>(bytes + 2 * kGuard), arg.spec.name.c_str()));
    buffer.data = buffer.memory.address() + kGuard;
    need("cuMemsetD8Async", driver.cuMemsetD8Async(buffer.memory.address(), kGuardByte, bytes + 2 * kGuard, nullptr));
    need("cuCtxSynchronize", driver.cuCtxSynchronize());
    need("cuMemcpyHtoD", driver.cuMemcpyHtoD(buffer.data, arg.bytes.data(), bytes));
  }
}

void KernelOnGpu::need(const gpu::Trouble& trouble) const {
  if (trouble) throw std::runtime_error(trouble.message);
}

void KernelOnGpu::need(const char* what, CUresult result) const {
  need(measure::trouble(driver_, what, result));
}

std::string KernelOnGpu::check(const space::Config& config, const store::ArtifactRow& artifact) {
  gpu::Module module;
  if (auto bad = module.load(driver_, artifact.cubin, artifact.lowered_name)) return bad.message;
  for (int run = 0; run < kRuns; ++run) {
    const uint32_t poison = measure::poison_word(runs_++);
    reset(poison);
    if (std::string wrong = launch(config, module); !wrong.empty()) return wrong;
    if (std::string wrong = damaged_guards(); !wrong.empty()) return wrong;
    if (std::string wrong = wrong_outputs(poison); !wrong.empty()) return wrong;
  }
  return {};
}

/// Poisons outputs, zeroes what must start at zero, and puts inout buffers back.
void KernelOnGpu::reset(uint32_t poison) {
  for (size_t i = 0; i < args_.size(); ++i) {
    const std::vector<uint8_t>& bytes = args_[i].bytes;
    const CUdeviceptr data = buffers_[i].data;
    switch (args_[i].spec.kind) {
      case ArgKind::out:
        need("cuMemsetD32Async", driver_.cuMemsetD32Async(data, poison, bytes.size() / 4, nullptr));
        for (size_t at = bytes.size() / 4 * 4; at < bytes.size(); ++at)
          need("cuMemsetD8Async",
               driver_.cuMemsetD8Async(data + at, static_cast<unsigned char>(poison >> 8 * (at % 4)), 1, nullptr));
        break;
      case ArgKind::zeroed:
        need("cuMemsetD8Async", driver_.cuMemsetD8Async(data, 0, bytes.size(), nullptr));
        break;
      case ArgKind::inout:
        need("cuMemcpyHtoD", driver_.cuMemcpyHtoD(data, bytes.data(), bytes.size()));
        break;
      default:
        break;
    }
  }
}

std::string KernelOnGpu::launch(const space::Config& config, gpu::Module& module) {
  auto geometry = instance_.geometry(config);
  if (!geometry) return geometry.error();
  auto specs = instance_.args(config);
  if (!specs) return specs.error();
  if (auto bad = module.prepare(*geometry)) return bad.message;
  std::vector<CUtensorMap> maps(specs->size());
  std::vector<void*> params;
  for (size_t i = 0; i < specs->size(); ++i) {
    space::ArgSpec& spec = (*specs)[i];
    if (spec.kind == ArgKind::tensor_map) {
      const auto over = static_cast<size_t>(spec.over);
      if (auto bad = gpu::encode_tensor_map(driver_, spec, *(*specs)[over].type, buffers_[over].data, maps[i]))
        return bad.message;
      params.push_back(&maps[i]);
    } else if (spec.kind == ArgKind::scalar) {
      params.push_back(spec.scalar.data());
    } else if (spec.pass) {
      params.push_back(&buffers_[i].data);
    }
  }
  if (auto bad = module.launch(*geometry, nullptr, params.data())) return bad.message;
  const CUresult result = driver_.cuCtxSynchronize();
  if (result != CUDA_SUCCESS && gpu::is_sticky(result))
    throw std::runtime_error(driver_.describe("running " + space::short_text(config), result));
  return result == CUDA_SUCCESS ? "" : driver_.describe("running", result);
}

std::string KernelOnGpu::damaged_guards() {
  std::vector<uint8_t> guard(kGuard);
  for (size_t i = 0; i < args_.size(); ++i) {
    if (!args_[i].spec.is_buffer()) continue;
    for (const bool after : {false, true}) {
      const CUdeviceptr at = after ? buffers_[i].data + args_[i].bytes.size() : buffers_[i].memory.address();
      need("cuMemcpyDtoH", driver_.cuMemcpyDtoH(guard.data(), at, kGuard));
      if (std::count(guard.begin(), guard.end(), kGuardByte) == static_cast<ptrdiff_t>(kGuard)) continue;
      need("cuMemsetD8Async", driver_.cuMemsetD8Async(at, kGuardByte, kGuard, nullptr));
      return std::string("wrote ") + (after ? "past the end of '" : "before the start of '") + args_[i].spec.name + "'";
    }
  }
  return {};
}

std::string KernelOnGpu::wrong_outputs(uint32_t poison) {
  for (const Expected& expected : expected_) {
    const HostArg& arg = args_[expected.arg];
    got_.resize(arg.bytes.size());
    need("cuMemcpyDtoH", driver_.cuMemcpyDtoH(got_.data(), buffers_[expected.arg].data, got_.size()));
    if (std::string wrong = compare(expected); !wrong.empty()) return wrong;
    if (arg.spec.kind != ArgKind::out) continue;
    const bool wide = arg.spec.element_bytes == 4;
    if (const size_t count = wide ? unwritten<uint32_t>(got_, poison) : unwritten<uint16_t>(got_, poison); count > 0)
      return "'" + arg.spec.name + "': " + std::to_string(count) + " elements were not written";
  }
  return {};
}

std::string KernelOnGpu::compare(const Expected& expected) const {
  const space::ArgSpec& spec = args_[expected.arg].spec;
  size_t seen = 0, bad = 0;
  double worst = 0;
  std::string first;
  for (const Expected::Span& span : expected.spans) {
    for (size_t i = 0; i < span.values.size(); ++i, ++seen) {
      const double value = element(*spec.type, got_, span.first + i);
      const double error = std::fabs(value - span.values[i]);
      if (error <= expected.atol + expected.rtol * std::fabs(span.values[i])) continue;  // never so for a NaN
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      if (bad++ == 0)
        first = "first at " + std::to_string(span.first + i) + ": " + number(value) + " for " + number(span.values[i]);
    }
  }
  if (bad == 0) return {};
  return "'" + spec.name + "': " + std::to_string(bad) + " of " + std::to_string(seen) + " looked at are wrong, by " +
         number(worst) + " at worst, " + first;
}

}  // namespace jitune::test
