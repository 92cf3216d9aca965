#include "exchange/samples.hpp"

#include "base/hash.hpp"

namespace jitune::test {

store::WinnerRecord sample(int rows, const std::string& config, double median_us) {
  store::WinnerRecord record;
  key::TuningKey& key = record.key;
  key.kernel = "rmsnorm";
  key.source_sha256 = sha256_hex("source");
  key.entry = "rmsnorm<{T}, {BLOCK}>";
  key.options = R"({"headers":[],"options":["-DX=\"a, b\"","--use_fast_math when T == half"]})";
  key.launch_sha256 = sha256_hex("launch");
  key.problem = R"({"T":"half","flag":true,"layout":"row","rows":)" + std::to_string(rows) + "}";
  key.arch = "sm_90a";
  key.cc = 90;
  key.sm_count = 132;
  key.memory_gib = 140;
  key.l2_bytes = 62914560;
  key.max_clock_mhz = 1980;
  key.max_memory_clock_mhz = 3201;
  key.nvrtc = "13.0.88";
  key.policy = "cold-l2 auto, \"quoted\"";
  key.environment = "{}";
  key.callables = "{}";
  key::seal(key);
  record.winner.key_sha256 = key.sha256;
  record.winner.config = config;
  record.winner.median_us = median_us;
  record.winner.default_us = median_us * 1.1;
  record.winner.nvrtc = key.nvrtc;
  record.winner.decided_at = 1'700'000'000;
  record.device = "NVIDIA H200";
  record.driver = "13.0";
  return record;
}

void add_cubin(store::WinnerRecord& record, const std::string& build, const std::string& bytes) {
  store::ArtifactRow artifact;
  artifact.build_sha256 = sha256_hex(build);
  artifact.kernel = record.key.kernel;
  artifact.config = record.winner.config;
  artifact.status = "ok";
  artifact.arch = record.key.arch;
  artifact.nvrtc = record.key.nvrtc;
  artifact.cubin = bytes;
  artifact.cubin_sha256 = sha256_hex(bytes);
  record.winner.artifact = std::move(artifact);
}

std::string told(const std::vector<store::WinnerRecord>& records) {
  std::string text;
  for (const store::WinnerRecord& record : records)
    text += record.key.sha256 + " " + record.key.problem + " " + record.winner.config + " " +
            std::to_string(record.winner.median_us) + " " + std::to_string(record.winner.default_us) + " " +
            std::to_string(record.winner.decided_at) + (record.winner.pinned ? " pinned " : " ") + record.device + " " +
            record.driver + " " + record.origin + "\n";
  return text;
}

}  // namespace jitune::test
