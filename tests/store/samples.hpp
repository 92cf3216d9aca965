#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "store/store.hpp"

namespace jitune::test {

/// A key that differs with `problem`.
key::TuningKey sample_key(const std::string& problem = R"({"M":4096})");

/// An artifact of config `config`, whose cubin is `cubin`.
store::ArtifactRow sample_artifact(const std::string& config, const std::string& cubin =
                                                                  "\x7f"
                                                                  "ELF bytes");

/// A trial that was timed.
store::TrialRow sample_trial(const std::string& config, double median_us);

store::StudyRow sample_study();

key::SourceHash sample_source();

/// A winner with its artifact.
store::WinnerRow sample_winner(const std::string& config, double median_us,
                               const std::string& cubin =
                                   "\x7f"
                                   "ELF bytes");

/// What a store has said. Its log must outlive the store.
struct Said {
  std::vector<std::string> codes, texts;
  Log log{LogHook{&Said::hear, this}, Log::Threshold::warn, false};
  bool has(const std::string& code) const;
  int count(const std::string& code) const;
  static void hear(void* self, const Event& event) noexcept;
};

/// The database that this version of the schema left, from its dump.
void write_version(int version, const std::string& path);

/// Opens, and fails the test when that fails.
std::unique_ptr<store::Store> open_store(const std::string& path, Log* log = nullptr);

/// Claims, tunes two configs and publishes the faster one; every step must work. Returns the study's number.
int64_t publish(store::Store& store, const key::TuningKey& key, const std::string& config = R"({"BLOCK":128})");

}  // namespace jitune::test

/// REQUIREs that a Result holds a value, with its error when it does not.
#define REQUIRE_OK(result)                                                                                   \
  do {                                                                                                       \
    const auto& required_result = (result);                                                                  \
    REQUIRE_MESSAGE(required_result.ok(), (required_result.ok() ? std::string() : required_result.error())); \
  } while (false)
