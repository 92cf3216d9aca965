#include "jitune/tuner.hpp"

#include <ostream>
#include <utility>

#include "runtime/environment.hpp"
#include "runtime/tuner_state.hpp"
#include "tune/compiler.hpp"

namespace jitune {

Tuner::Tuner(Options options)
    : state_(std::make_shared<runtime::TunerState>(runtime::read_settings(std::move(options)))) {}

Tuner::~Tuner() {
  if (state_) state_->close();
}

Tuner::Tuner(Tuner&&) noexcept = default;

Tuner& Tuner::operator=(Tuner&& other) noexcept {
  if (this != &other) {
    if (state_) state_->close();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Tuner::stop() {
  state_->stop();
}

void Tuner::set_while_tuned(WhileTuned what) {
  state_->while_tuned.store(what, std::memory_order_relaxed);
}

Track Tuner::track() const {
  return state_->settings().options.track;
}

std::string Tuner::database() const {
  return state_->services()->store().path();
}

Tuner::Statistics Tuner::statistics() const {
  Statistics statistics;
  statistics.launches = state_->launches.sum();
  statistics.compilations = state_->compilations;
  statistics.trials = state_->trials;
  statistics.hits = state_->hits;
  statistics.misses = state_->misses;
  statistics.fallbacks = state_->fallbacks;
  statistics.stalls = state_->stalls;
  statistics.stall_ms = static_cast<double>(state_->stall_us) / 1000;
  statistics.decisions = state_->decisions();
  statistics.workers_started = state_->services()->workers_started();
  return statistics;
}

const char* to_string(Choice::Source source) noexcept {
  switch (source) {
    case Choice::Source::stored:
      return "stored";
    case Choice::Source::tuned:
      return "tuned";
    case Choice::Source::pinned:
      return "pinned";
    case Choice::Source::default_config:
      return "default";
    case Choice::Source::bundle:
      return "bundle";
    case Choice::Source::given:
      return "given";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, const Choice& choice) {
  out << to_string(choice.source) << ' ' << choice.config;
  if (choice.time_us > 0) out << ", " << choice.time_us << " us";
  if (choice.time_us > 0 && choice.default_us > 0) out << " (default config " << choice.default_us << " us)";
  if (!choice.why.empty()) out << "; " << choice.why;
  return out;
}

}  // namespace jitune
