// What the results of a study are compared with, where that is not the default config.
#include <utility>

#include "measure/samples.hpp"
#include "tune/host_reference.hpp"
#include "tune/study.hpp"

namespace jitune::tune {
namespace {

using measure::TrialStatus;

constexpr std::chrono::milliseconds kReferenceRunLimit{60'000};  // of a few launches of a kernel that may be naive

}  // namespace

/// A config whose sizes and macros stand for all: the default one, else the first that is valid.
std::optional<space::Config> Study::any_config() const {
  if (default_config_) return default_config_;
  auto any = instance_.space().list(1);
  if (any.empty()) return std::nullopt;
  return std::move(any.front());
}

/// Compiles the reference kernel beside the default config. False: it can't be, and nothing could be verified.
bool Study::submit_reference() {
  const auto& host = instance_.model().definition().host_reference;
  if (host && !host->function && !request_.default_reference && services_.options().policy.check)
    return fail("error",
                "its reference is a function of the program that defined it (host_reference, version " + host->version +
                    "), which is not here: tune in that program, or say --default-reference to check against the "
                    "default config instead");
  if (!instance_.has_reference() || !services_.options().policy.check) return true;
  const auto config = any_config();
  if (!config) return true;  // no config at all: said later
  for (const Place& place : places_) {
    auto spec = place.instance.reference(*config);
    if (!spec) return fail("error", spec.error());
    reference_.push_back(std::move(*spec));
  }
  auto source = services_.reference_hash(instance_);
  if (!source) return fail("error", source.error());
  CompileJob job;
  job.kernel = instance_.model().name() + " (reference)";
  job.spec = reference_.front().build;  // coarse values reach no build, so that it is one at all places
  job.source = std::move(*source);
  job.build = key::make_build_key(job.source, job.spec, {}, compiler_->nvrtc().build);
  reference_build_ = job.build.sha256;
  first_->submit(std::move(job));
  return true;
}

/// Runs the reference kernel, whose outputs all configs are compared with from then on. A reference that does not work
/// ends the study: who named one to trust would not want another to take its place.
bool Study::run_reference(std::optional<Compiled> compiled) {
  if (reference_.empty()) return true;
  const std::string name = "the reference `" + reference_.front().build.entry + "`";
  if (!compiled || compiled->not_run || compiled->artifact.status != "ok")
    return fail("error", name + " does not compile: " + (compiled ? compiled->artifact.log : "no answer"));
  measure::Candidate kernel;
  for (size_t i = 0; i < places_.size(); ++i) {
    auto args = args_of(places_[i], *any_config(), {1, 0, 0, 1});
    if (!args) return fail("error", args.error());
    measure::Candidate here{compiled->artifact.cubin, compiled->artifact.lowered_name, reference_[i].geometry,
                            std::move(*args), reference_[i].args};
    if (i == 0)
      kernel = std::move(here);
    else
      kernel.also.push_back(std::move(here));
  }
  trusted_kernel_ = std::make_shared<const measure::Candidate>(std::move(kernel));
  measure::TrialReply reply;
  on_lane(lanes_[0], [&](Measurer& measurer) { reply = measurer.set_reference(*trusted_kernel_, kReferenceRunLimit); });
  outcome_.costs.load_ms += reply.load_ms;
  outcome_.costs.check_ms += reply.check_ms;
  if (reply.status != TrialStatus::ok)
    return fail("error", name + " failed (" + measure::to_string(reply.status) + "): " + reply.error);
  trusted_reference_ = lanes_[0].trusted = true;
  outcome_.reference = "kernel " + reference_.front().build.entry;
  outcome_.reference_us = measure::summarise(reply.samples_us).median_us;
  return true;
}

/// Has the program's own function compute the reference, from the worker's inputs, in shared memory.
bool Study::run_host_reference() {
  const auto& host = instance_.model().definition().host_reference;
  if (!host || !host->function || !services_.options().policy.check) return true;
  const std::string name = "the reference function (version " + host->version + ")";
  const auto started = Clock::now();
  Measurer::AllHostOutputs all;
  for (const Place& place : places_) {
    auto args = args_of(place, *any_config(), {1, 0, 0, 1});
    if (!args) return fail("error", args.error());
    auto outputs = compute_on_host(*host, std::move(*args), place.instance.problem(), static_cast<int>(all.size()),
                                   *lanes_[0].measurer);
    if (!outputs) return fail("error", name + ": " + outputs.error());
    all.push_back(std::move(*outputs));
  }
  trusted_outputs_ = std::make_shared<const Measurer::AllHostOutputs>(std::move(all));
  auto set = lanes_[0].measurer->set_reference(trusted_outputs_);
  if (!set) return fail("error", name + ": its outputs could not be given to the measuring worker: " + set.error());
  outcome_.costs.check_ms += ms_since(started);
  trusted_reference_ = lanes_[0].trusted = true;
  outcome_.reference = "host " + host->version;
  return true;
}

/// The author's own choice differs from what he trusts: the others may still be right.
void Study::note_wrong_default(const std::string& error) {
  const std::string text =
      "the default config's result is wrong, by " + outcome_.reference + ", the reference: " + error;
  services_.log().warning("default_wrong", instance_.model().name(), text, request_.key.sha256);
  outcome_.note += (outcome_.note.empty() ? "" : "; ") + text;
}

}  // namespace jitune::tune
