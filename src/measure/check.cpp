#include "measure/check.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

namespace jitune::measure {
namespace {

constexpr size_t kMostGroups = 4;  // of wrong results that are told apart

// Results on the GPU: the guards' verdict, then for each arg a Comparison and three checksums.
constexpr size_t kPerArg = 6;
enum Place : size_t { kComparison = 0, kInput = 3, kPristine = 4, kReference = 5 };

size_t result_index(size_t arg, Place place = kComparison) {
  return 1 + kPerArg * arg + place;
}
size_t result_offset(size_t arg, Place place = kComparison) {
  return result_index(arg, place) * sizeof(uint64_t);
}

/// Whether a checksum is what it was; the first one is taken as it is.
bool unchanged(std::optional<uint64_t>& known, uint64_t seen) {
  if (!known) known = seen;
  return *known == seen;
}

std::string number_text(double number) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.9g", number);
  return text.data();
}

uint64_t allowed_mismatches(const space::ArgSpec& arg) {
  if (arg.tolerance.exact) return 0;
  return static_cast<uint64_t>(std::clamp(arg.tolerance.mismatch, 0.0, 1.0) * static_cast<double>(arg.count));
}

}  // namespace

gpu::Trouble Checker::prepare() {
  const size_t args = buffers_.args().size();
  skips_.resize(args);
  checksums_.assign(args, {});
  const auto bytes = static_cast<int64_t>(result_index(args) * sizeof(uint64_t));
  if (auto bad = results_.allocate(driver_, bytes, "results of checks")) return bad;
  Finding ignored;  // the first look defines the checksums
  return inspect(false, ignored);
}

gpu::Trouble Checker::launch_over_poison(Loaded& loaded, uint32_t poison, double& us) {
  poison_ = poison;
  if (auto bad = buffers_.restore()) return bad;
  if (auto bad = buffers_.poison(poison)) return bad;
  return timer_.time_launch(loaded, us);
}

gpu::Trouble Checker::run(Loaded& loaded, double& first_us, Finding& finding) {
  if (auto bad = launch_over_poison(loaded, poison_word(runs_++), first_us)) return bad;
  return inspect(has_reference_, finding);
}

gpu::Trouble Checker::look_again(Finding& finding) {
  return inspect(false, finding);
}

gpu::Trouble Checker::use_reference() {
  wrong_.clear();
  for (DeviceMemory& skip : skips_) skip.reset();
  for (Checksums& sums : checksums_) sums.reference.reset();
  has_reference_ = true;
  Finding ignored;  // this look defines the checksums of the reference
  return inspect(false, ignored);
}

gpu::Trouble Checker::make_reference(Loaded& loaded, double& first_us, Finding& finding) {
  has_reference_ = false;
  wrong_.clear();
  for (DeviceMemory& skip : skips_) skip.reset();
  const uint32_t first_poison = poison_word(runs_++);
  if (auto bad = launch_over_poison(loaded, first_poison, first_us)) return bad;
  if (auto bad = inspect(false, finding); bad || finding.status != TrialStatus::ok) return bad;
  for (size_t i = 0; i < buffers_.args().size(); ++i) {
    if (!buffers_[i].is_output() || buffers_.args()[i].bytes() == 0) continue;
    if (auto bad = trouble(driver_, "keeping the reference's output",
                           driver_.cuMemcpyDtoDAsync(buffers_[i].reference, buffers_[i].data,
                                                     static_cast<size_t>(buffers_.args()[i].bytes()), stream_)))
      return bad;
    checksums_[i].reference.reset();
  }
  double second_us = 0;
  if (auto bad = launch_over_poison(loaded, kFinitePoison, second_us)) return bad;
  if (auto bad = mask_unwritten(first_poison, kFinitePoison)) return bad;
  if (auto bad = inspect(true, finding)) return bad;
  has_reference_ = finding.status == TrialStatus::ok;
  if (finding.status == TrialStatus::wrong_result)
    finding.error = "two runs of the reference on the same inputs disagree: " + finding.error +
                    "; give the output a tolerance, or declare it inout or zeroed if it adds to what is there";
  return {};
}

gpu::Trouble Checker::mask_unwritten(uint32_t first_poison, uint32_t second_poison) {
  const auto& args = buffers_.args();
  std::vector<uint64_t> found(result_index(args.size()), 0);
  const auto count = [&](size_t i, CUdeviceptr skip) {
    return utility_.unwritten(buffers_[i].reference, buffers_[i].data, args[i], first_poison, second_poison, skip,
                              results_.address() + result_offset(i));
  };
  if (auto bad =
          trouble(driver_, "cuMemsetD8Async",
                  driver_.cuMemsetD8Async(results_.address(), 0, static_cast<size_t>(results_.bytes()), stream_)))
    return bad;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].kind == ArgKind::out)
      if (auto bad = count(i, 0)) return bad;
  if (auto bad = trouble(
          driver_, "reading results",
          driver_.cuMemcpyDtoHAsync(found.data(), results_.address(), static_cast<size_t>(results_.bytes()), stream_)))
    return bad;
  if (auto bad = trouble(driver_, "reading results", driver_.cuStreamSynchronize(stream_))) return bad;
  // Most kernels write all of their outputs: the marks cost memory only where they do not.
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].kind != ArgKind::out || found[result_index(i)] == 0) continue;
    if (auto bad = skips_[i].allocate(driver_, args[i].count, "marks of unwritten elements")) return bad;
    if (auto bad = count(i, skips_[i].address())) return bad;
  }
  return {};
}

gpu::Trouble Checker::inspect(bool outputs, Finding& finding) {
  const auto& args = buffers_.args();
  const CUdeviceptr base = results_.address();
  const auto bytes = static_cast<size_t>(results_.bytes());
  if (auto bad = trouble(driver_, "cuMemsetD8Async", driver_.cuMemsetD8Async(base, 0, bytes, stream_))) return bad;
  if (auto bad = utility_.guards(buffers_.guard_table(), buffers_.guard_count(), kGuardPattern, base)) return bad;
  for (size_t i = 0; i < args.size(); ++i) {
    const Buffer& buffer = buffers_[i];
    const int64_t size = args[i].bytes();
    gpu::Trouble bad;
    if (args[i].kind == ArgKind::in) bad = utility_.checksum(buffer.data, size, base + result_offset(i, kInput));
    if (!bad && buffer.pristine != 0)
      bad = utility_.checksum(buffer.pristine, size, base + result_offset(i, kPristine));
    if (!bad && buffer.is_output())
      bad = utility_.checksum(buffer.reference, size, base + result_offset(i, kReference));
    if (!bad && outputs && buffer.is_output())
      bad = utility_.compare(buffer.data, buffer.reference, skips_[i].address(), args[i], poison_,
                             base + result_offset(i));
    if (bad) return bad;
  }
  std::vector<uint64_t> results(result_index(args.size()), 0);
  if (auto bad = trouble(driver_, "reading results", driver_.cuMemcpyDtoHAsync(results.data(), base, bytes, stream_)))
    return bad;
  if (auto bad = trouble(driver_, "checking the outputs", driver_.cuStreamSynchronize(stream_))) return bad;
  return judge(results, outputs, finding);
}

gpu::Trouble Checker::judge(const std::vector<uint64_t>& results, bool outputs, Finding& finding) {
  const auto& args = buffers_.args();
  const auto out_of_bounds = [&finding](const std::string& what) {
    if (finding.status == TrialStatus::ok) finding.error = what;
    finding.status = TrialStatus::out_of_bounds;
  };
  if (results[0] != 0) {
    out_of_bounds(buffers_.guard_text(static_cast<size_t>(buffers_.guard_count()) - results[0]));
    if (auto bad = buffers_.heal_guards()) return bad;
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const bool input = unchanged(checksums_[i].input, results[result_index(i, kInput)]);
    const bool pristine = unchanged(checksums_[i].pristine, results[result_index(i, kPristine)]);
    const bool reference = unchanged(checksums_[i].reference, results[result_index(i, kReference)]);
    if (input && pristine && reference) continue;
    out_of_bounds(!input ? "it wrote into `" + args[i].name + "`, which is an input"
                         : "it wrote far outside its buffers, into the worker's copy of `" + args[i].name + "`");
    finding.data_spoiled = true;
  }
  if (finding.status != TrialStatus::ok || !outputs) return {};
  for (size_t i = 0; i < args.size(); ++i) {
    const uint64_t* found = &results[result_index(i)];
    if (buffers_[i].is_output() && found[0] > allowed_mismatches(args[i]))
      return describe(i, {found[0], found[1], found[2]}, finding);
  }
  return {};
}

gpu::Trouble Checker::equals(const std::vector<DeviceMemory>& outputs, bool& equal) {
  const auto& args = buffers_.args();
  const CUdeviceptr base = results_.address();
  const auto bytes = static_cast<size_t>(results_.bytes());
  if (auto bad = trouble(driver_, "cuMemsetD8Async", driver_.cuMemsetD8Async(base, 0, bytes, stream_))) return bad;
  for (size_t i = 0; i < args.size(); ++i)
    if (buffers_[i].is_output())
      if (auto bad = utility_.compare(buffers_[i].data, outputs[i].address(), skips_[i].address(), args[i], poison_,
                                      base + result_offset(i)))
        return bad;
  std::vector<uint64_t> results(result_index(args.size()), 0);
  if (auto bad = trouble(driver_, "reading results", driver_.cuMemcpyDtoHAsync(results.data(), base, bytes, stream_)))
    return bad;
  if (auto bad = trouble(driver_, "comparing wrong results", driver_.cuStreamSynchronize(stream_))) return bad;
  equal = true;
  for (size_t i = 0; i < args.size(); ++i)
    equal = equal && (!buffers_[i].is_output() || results[result_index(i)] <= allowed_mismatches(args[i]));
  return {};
}

gpu::Trouble Checker::sort(int& group) {
  group = 0;
  for (size_t known = 0; known < wrong_.size(); ++known) {
    bool equal = false;
    if (auto bad = equals(wrong_[known], equal)) return bad;
    if (equal) group = static_cast<int>(known) + 1;
    if (equal) return {};
  }
  if (wrong_.size() >= kMostGroups) return {};
  std::vector<DeviceMemory> outputs(buffers_.args().size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto bytes = static_cast<size_t>(buffers_.args()[i].bytes());
    if (!buffers_[i].is_output() || bytes == 0) continue;
    if (outputs[i].allocate(driver_, static_cast<int64_t>(bytes), "a wrong result")) return {};  // then it is not kept
    if (auto bad = trouble(driver_, "keeping a wrong result",
                           driver_.cuMemcpyDtoDAsync(outputs[i].address(), buffers_[i].data, bytes, stream_)))
      return bad;
  }
  wrong_.push_back(std::move(outputs));
  group = static_cast<int>(wrong_.size());
  return {};
}

gpu::Trouble Checker::describe(size_t index, const Comparison& comparison, Finding& finding) {
  const space::ArgSpec& arg = buffers_.args()[index];
  const uint64_t first = static_cast<uint64_t>(arg.count) - comparison.from_end;
  const CUdeviceptr pair = results_.address() + result_offset(index);
  std::array<double, 2> values{};
  gpu::Trouble bad = utility_.decode(buffers_[index].data, first, arg, pair);
  if (!bad) bad = utility_.decode(buffers_[index].reference, first, arg, pair + sizeof(double));
  if (!bad)
    bad = trouble(driver_, "reading results", driver_.cuMemcpyDtoHAsync(values.data(), pair, sizeof values, stream_));
  if (!bad) bad = trouble(driver_, "reading results", driver_.cuStreamSynchronize(stream_));
  if (bad) return bad;
  finding.status = TrialStatus::wrong_result;
  finding.error = "output `" + arg.name + "`: " + std::to_string(comparison.mismatches) + " of " +
                  std::to_string(arg.count) + " elements differ from the reference, first [" + std::to_string(first) +
                  "]: got " + number_text(values[0]) + ", expected " + number_text(values[1]);
  if (const double worst = std::bit_cast<double>(comparison.worst_bits); worst > 0)
    finding.error += "; worst error " + number_text(worst);
  finding.error += arg.tolerance.exact ? " (exact)"
                                       : " (rtol " + number_text(arg.tolerance.rtol) + ", atol " +
                                             number_text(arg.tolerance.atol) + ")";
  return {};
}

}  // namespace jitune::measure
