#include "jitune/kernel.hpp"

#include <utility>

#include "runtime/kernel_state.hpp"
#include "runtime/signature.hpp"

namespace jitune {

Problem& Problem::set(const char* name, const Value& value) {
  const auto names = names_.lock();
  if (!names)
    throw Error(ErrorCode::lifetime, kernel_ == nullptr ? "the Problem is empty; make it with Kernel::problem"
                                                        : "the Problem is used after its Kernel was destroyed");
  names->set(*this, name, value);
  return *this;
}

Problem& Problem::with(std::initializer_list<std::pair<const char*, Value>> config) {
  const auto names = names_.lock();
  if (!names)
    throw Error(ErrorCode::lifetime, kernel_ == nullptr ? "the Problem is empty; make it with Kernel::problem"
                                                        : "the Problem is used after its Kernel was destroyed");
  names->set_config(*this, config);
  return *this;
}

namespace {

std::shared_ptr<runtime::TunerState> must_be_open(std::shared_ptr<runtime::TunerState> tuner,
                                                  const KernelDefinition& definition) {
  if (tuner == nullptr)
    throw Error(ErrorCode::lifetime, "it is defined with a Tuner that was moved from", definition.name);
  return tuner;
}

}  // namespace

UntypedKernel::UntypedKernel(Tuner& tuner, KernelDefinition definition)
    : state_(std::make_shared<runtime::KernelState>(must_be_open(tuner.state_, definition), std::move(definition))) {
  tuner.state_->add(state_);
}

UntypedKernel::UntypedKernel(Tuner& tuner, KernelDefinition definition, std::span<const ArgumentType> signature)
    : UntypedKernel(tuner, std::move(definition)) {
  runtime::check_signature(state_->model().name(), state_->model().definition().args, signature);
}

UntypedKernel::~UntypedKernel() {
  if (state_) state_->end();
}
UntypedKernel::UntypedKernel(UntypedKernel&&) noexcept = default;
UntypedKernel& UntypedKernel::operator=(UntypedKernel&& other) noexcept {
  if (this != &other) {
    if (state_) state_->end();
    state_ = std::move(other.state_);
  }
  return *this;
}

const std::string& UntypedKernel::name() const {
  return state_->model().name();
}

Problem UntypedKernel::problem(std::initializer_list<std::pair<const char*, Value>> values) const {
  return state_->make_problem(values);
}

void UntypedKernel::prepare(const Problem& problem, Stream stream) {
  runtime::Plan& plan = state_->plan(stream, problem, {}, true);
  state_->prepare_default(stream, problem, plan);
  const auto reserved = plan.reserve(stream);
  if (reserved.code != CUDA_SUCCESS)
    state_->raise(ErrorCode::launch_failed, reserved.what + " failed with CUDA error " + std::to_string(reserved.code));
}

void UntypedKernel::launch(Stream stream, const Problem& problem, std::span<const void* const> arguments) {
  state_->launch(stream, problem, arguments);
}

Choice UntypedKernel::choice(const Problem& problem) {
  return state_->plan(nullptr, problem, {}, false).choice();
}

void UntypedKernel::set_symbol(const std::string& name, const void* data, size_t bytes) {
  state_->set_symbol(name, data, bytes);
}

}  // namespace jitune
