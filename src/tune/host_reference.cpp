#include "tune/host_reference.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

#include "jitune/reference_data.hpp"
#include "measure/buffers.hpp"

namespace jitune::tune {
namespace {

using Outputs = Measurer::HostOutputs;

constexpr int64_t kAlignment = 4096;

bool is_output(const space::ArgSpec& arg) {
  return arg.kind == ArgKind::out || arg.kind == ArgKind::inout || arg.kind == ArgKind::zeroed;
}

bool is_input(const space::ArgSpec& arg) {
  return arg.kind == ArgKind::in || arg.kind == ArgKind::symbol;
}

/// Where the args that `wanted` chooses lie in one piece of memory; its size goes to `bytes`.
template <class Wanted>
std::vector<int64_t> lay_out(const std::vector<space::ArgSpec>& args, Wanted wanted, int64_t& bytes) {
  std::vector<int64_t> offsets(args.size(), -1);
  bytes = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!wanted(args[i])) continue;
    offsets[i] = bytes;
    bytes += (args[i].bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return offsets;
}

/// The poison's byte at this place of a buffer, as a memset by words lays it.
std::byte poison_byte(uint32_t poison, size_t index) {
  return static_cast<std::byte>(poison >> (8 * (index % 4)));
}

void fill(std::byte* data, int64_t bytes, uint32_t poison) {
  for (size_t i = 0; i < static_cast<size_t>(bytes); ++i) data[i] = poison_byte(poison, i);
}

/// Whether some element still holds the poison.
bool has_poison(const std::byte* data, const space::ArgSpec& arg, uint32_t poison) {
  const auto size = static_cast<size_t>(arg.element_bytes);
  for (size_t at = 0; at < static_cast<size_t>(arg.bytes()); at += size) {
    size_t same = 0;
    while (same < size && data[at + same] == poison_byte(poison, at + same)) ++same;
    if (same == size) return true;
  }
  return false;
}

class HostRun {
 public:
  HostRun(const HostReference& reference, std::vector<space::ArgSpec> args, const space::ProblemValues& problem,
          int number, Measurer& measurer)
      : reference_(reference), args_(std::move(args)), problem_(problem), number_(number), measurer_(measurer) {}

  Result<Outputs> run() {
    int64_t bytes = 0;
    input_offsets_ = lay_out(args_, is_input, bytes);
    if (auto made = memory_for(bytes, inputs_); !made) return made.failure();
    if (auto read = measurer_.read_inputs(inputs_, input_offsets_, number_); !read) return read.failure();
    Outputs outputs;
    outputs.offsets = lay_out(args_, is_output, output_bytes_);
    outputs.first_poison = measure::poison_word(0);
    outputs.second_poison = measure::kFinitePoison;
    if (auto done = call(outputs.offsets, outputs.first_poison, outputs.first); !done) return done.failure();
    bool unwritten = false;
    for (size_t i = 0; i < args_.size(); ++i)
      if (args_[i].kind == ArgKind::out)
        unwritten = unwritten || has_poison(outputs.first.data() + outputs.offsets[i], args_[i], outputs.first_poison);
    if (unwritten) {
      outputs.second.emplace();
      if (auto done = call(outputs.offsets, outputs.second_poison, *outputs.second); !done) return done.failure();
    }
    return outputs;
  }

 private:
  static Result<void> memory_for(int64_t bytes, SharedMemory& memory) {
    auto made = SharedMemory::create(static_cast<size_t>(bytes));
    if (!made) return made.failure();
    memory = std::move(*made);
    return {};
  }

  /// Prepares outputs as a config would find them, and calls the function.
  Result<void> call(const std::vector<int64_t>& offsets, uint32_t poison, SharedMemory& outputs) {
    if (auto made = memory_for(output_bytes_, outputs); !made) return made.failure();
    std::vector<int64_t> restored(args_.size(), -1);
    bool any = false;
    for (size_t i = 0; i < args_.size(); ++i) {
      if (args_[i].kind == ArgKind::out) fill(outputs.data() + offsets[i], args_[i].bytes(), poison);
      if (args_[i].kind != ArgKind::inout) continue;
      restored[i] = offsets[i];
      any = true;
    }
    if (any)
      if (auto read = measurer_.read_inputs(outputs, restored, number_); !read) return read.failure();
    const ReferenceData data(views(offsets, outputs), problem_);
    try {
      reference_.function(data);
    } catch (const std::exception& error) {
      return Failure{std::string("it threw: ") + error.what()};
    } catch (...) {
      return Failure{"it threw something that is no std::exception"};
    }
    return {};
  }

  std::vector<ReferenceData::View> views(const std::vector<int64_t>& offsets, const SharedMemory& outputs) {
    std::vector<ReferenceData::View> views;
    for (size_t i = 0; i < args_.size(); ++i) {
      space::ArgSpec& arg = args_[i];
      if (arg.kind == ArgKind::scratch || arg.kind == ArgKind::tensor_map) continue;
      ReferenceData::View view{
          arg.name, arg.kind, arg.type, static_cast<size_t>(arg.count), static_cast<size_t>(arg.element_bytes),
          nullptr};
      if (arg.kind == ArgKind::scalar) {
        view.count = 1;
        view.data = arg.scalar.data();
      } else {
        view.data = is_output(arg) ? outputs.data() + offsets[i] : inputs_.data() + input_offsets_[i];
      }
      views.push_back(std::move(view));
    }
    return views;
  }

  const HostReference& reference_;
  std::vector<space::ArgSpec> args_;
  const space::ProblemValues& problem_;
  const int number_;
  Measurer& measurer_;
  SharedMemory inputs_;
  std::vector<int64_t> input_offsets_;
  int64_t output_bytes_ = 0;
};

}  // namespace

Result<Measurer::HostOutputs> compute_on_host(const HostReference& reference, std::vector<space::ArgSpec> args,
                                              const space::ProblemValues& problem, int number, Measurer& measurer) {
  return HostRun(reference, std::move(args), problem, number, measurer).run();
}

}  // namespace jitune::tune
