#include "jitune/scoped_inputs.hpp"

#include <utility>

namespace jitune {
namespace {

thread_local const ScopedInputs* innermost = nullptr;

}  // namespace

ScopedInputs::ScopedInputs(std::vector<Input> inputs)
    : inputs_(std::move(inputs)), outer_(std::exchange(innermost, this)) {}

ScopedInputs::~ScopedInputs() {
  innermost = outer_;
}

bool ScopedInputs::any() noexcept {
  return innermost != nullptr;
}

const ScopedInputs::Input* ScopedInputs::find(const std::string& kernel, const std::string& name) noexcept {
  for (const ScopedInputs* scope = innermost; scope != nullptr; scope = scope->outer_) {
    const Input* general = nullptr;
    for (const Input& input : scope->inputs_) {
      if (input.name != name) continue;
      if (input.kernel == kernel) return &input;
      if (input.kernel.empty()) general = &input;
    }
    if (general != nullptr) return general;
  }
  return nullptr;
}

}  // namespace jitune
