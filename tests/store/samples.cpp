#include "samples.hpp"

#include <sqlite3.h>

#include <filesystem>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "store/sqlite.hpp"

namespace jitune::test {

using namespace std::chrono_literals;

key::TuningKey sample_key(const std::string& problem) {
  key::TuningKey key;
  key.kernel = "rmsnorm";
  key.source_sha256 = sha256_hex("source");
  key.entry = "rmsnorm<{T}, {BLOCK}>";
  key.options = R"({"options":["--use_fast_math"]})";
  key.launch_sha256 = sha256_hex("launch");
  key.problem = problem;
  key.arch = "sm_90";
  key.cc = 90;
  key.sm_count = 132;
  key.memory_gib = 139;
  key.l2_bytes = 60 << 20;
  key.max_clock_mhz = 1980;
  key.max_memory_clock_mhz = 3201;
  key.nvrtc = "13.0.88";
  key.policy = "cold,median";
  key.environment = "{}";
  key.callables = "{}";
  key::seal(key);
  return key;
}

store::ArtifactRow sample_artifact(const std::string& config, const std::string& cubin) {
  store::ArtifactRow artifact;
  artifact.build_sha256 = sha256_hex("build " + config);
  artifact.kernel = "rmsnorm";
  artifact.config = config;
  artifact.status = "ok";
  artifact.compile_ms = 212.5;
  artifact.lowered_name = "_Z7rmsnormI6__halfLi128EEvPT_";
  artifact.regs = 40;
  artifact.static_smem_bytes = 1024;
  artifact.local_bytes = 8;
  artifact.spill_bytes = 16;
  artifact.cubin = cubin;
  artifact.cubin_sha256 = sha256_hex(cubin);
  artifact.log = "a warning";
  artifact.arch = "sm_90";
  artifact.nvrtc = "13.0.88";
  return artifact;
}

store::TrialRow sample_trial(const std::string& config, double median_us) {
  store::TrialRow trial;
  trial.config = config;
  trial.build_sha256 = sha256_hex("build " + config);
  trial.status = "ok";
  trial.samples = 5;
  trial.min_us = median_us * 0.98;
  trial.median_us = median_us;
  trial.mean_us = median_us * 1.01;
  trial.stddev_us = 0.25;
  trial.max_us = median_us * 1.1;
  trial.first_us = median_us * 3;
  trial.clock_mhz = 1755;
  trial.stop = "settled";
  trial.occupancy = 0.75;
  trial.default_us = 20;
  trial.shared_bytes = 49152;
  trial.wall_ms = 240;
  return trial;
}

store::StudyRow sample_study() {
  store::StudyRow study;
  study.strategy = "exhaustive";
  study.seed = 0xFFFF'FFFF'FFFF'FFF0U;
  study.budget_ms = 8000;
  study.space = R"({"params":{"BLOCK":[64,128]},"require":[]})";
  study.default_config = R"({"BLOCK":64})";
  study.device.name = "NVIDIA H200";
  study.device.uuid = "GPU-0123";
  study.device.driver = "13.0";
  return study;
}

key::SourceHash sample_source() {
  return {sha256_hex("source"), {{"/somewhere/include/tile.h", sha256_hex("tile")}}, {"cuda_fp16.h"}};
}

store::WinnerRow sample_winner(const std::string& config, double median_us, const std::string& cubin) {
  store::WinnerRow winner;
  winner.config = config;
  winner.artifact = sample_artifact(config, cubin);
  winner.median_us = median_us;
  winner.default_us = 20;
  return winner;
}

bool Said::has(const std::string& code) const {
  return count(code) > 0;
}

int Said::count(const std::string& code) const {
  int times = 0;
  for (const std::string& said : codes) times += said == code ? 1 : 0;
  return times;
}

void Said::hear(void* self, const Event& event) noexcept {
  static_cast<Said*>(self)->codes.emplace_back(event.code);
  static_cast<Said*>(self)->texts.emplace_back(event.text);
}

void write_version(int version, const std::string& path) {
  const auto sql =
      read_file(std::string(JITUNE_SOURCE_DIR) + "/tests/store/golden/v" + std::to_string(version) + ".sql");
  REQUIRE_OK(sql);
  store::Database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE).execute(sql->c_str());
  namespace fs = std::filesystem;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

std::unique_ptr<store::Store> open_store(const std::string& path, Log* log) {
  store::Store::OpenOptions options;
  options.path = path;
  options.log = log;
  Result<std::unique_ptr<store::Store>> opened = store::Store::open(options);
  REQUIRE_OK(opened);
  return std::move(*opened);
}

int64_t publish(store::Store& store, const key::TuningKey& key, const std::string& config) {
  const Result<store::Claim> claim = store.claim(key, 8s, true);
  REQUIRE_OK(claim);
  REQUIRE(claim->state == store::Claim::State::acquired);
  const Result<int64_t> study = store.begin_study(key, sample_study());
  REQUIRE_OK(study);
  REQUIRE_OK(store.add_trial(*study, claim->lease, sample_trial(R"({"BLOCK":64})", 20)));
  REQUIRE_OK(store.put_artifact(sample_artifact(config), sample_source(), "source"));
  REQUIRE_OK(store.add_trial(*study, claim->lease, sample_trial(config, 12.5)));
  REQUIRE_OK(store.end_study(*study, claim->lease, {"won", ""}, sample_winner(config, 12.5)));
  return *study;
}

}  // namespace jitune::test
