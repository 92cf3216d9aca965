#include <filesystem>

#include "base/files.hpp"
#include "compile/nvrtc.hpp"
#include "exchange/files.hpp"
#include "runtime/fixture.hpp"
#include "support/increment.hpp"

using namespace jitune;
using test::FakeGpu;
using test::increment;
using test::Increment;
using test::quiet_options;

// Winners of files that an application ships: Options::bundles.
namespace {

constexpr int kCount = 4096;
constexpr const char* kSpec =
    R"({"kernels": [{"match": "increment<", "time_us": 100, "spread": 0, "noise": 0,
        "factors": [{"128": 0.8, "256": 0.5}]}]})";
const std::string kWinner = R"({"BLOCK":256})";

/// Bundles of one winner, in each format, all found with the NVRTC that is installed.
void write_bundles(const test::TempDir& dir, float* x) {
  {
    Tuner tuner(quiet_options(Track::tune, dir / "tuned.db"));
    Increment kernel(tuner, increment());
    kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
    REQUIRE(kernel.choice(kernel.problem({{"n", kCount}})).config == kWinner);
  }
  const auto store = store::Store::open({.path = dir / "tuned.db", .create = false});
  REQUIRE(store.ok());
  const auto records = (*store)->records(true);
  REQUIRE(records.ok());
  REQUIRE(store::write_bundle(dir / "bundle.db", *records).ok());
  test::write_file(dir / "bundle.csv", exchange::to_csv(*records));
  test::write_file(dir / "bundle.json", exchange::to_json(*records));
  for (const auto& [path, text] : exchange::to_json_tree(*records)) test::write_file(dir / ("tree/" + path), text);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// One launch with a database of its own and this bundle.
struct Launched {
  Choice choice;
  Tuner::Statistics statistics;
  bool threw = false;
};
Launched launch(const test::TempDir& dir, const std::string& bundle, float* x, const std::string& nvrtc = {},
                bool strict = false, Track track = Track::lookup, int n = kCount) {
  Options options = quiet_options(track, "off");
  options.bundles = {dir / bundle};
  options.nvrtc = nvrtc;
  options.strict = strict;
  Tuner tuner(options);
  Increment kernel(tuner, increment());
  Launched launched;
  try {
    kernel.launch(nullptr, kernel.problem({{"n", n}}), x, n);
    launched.choice = kernel.choice(kernel.problem({{"n", n}}));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::no_runnable_config);
    launched.threw = true;
  }
  launched.statistics = tuner.statistics();
  return launched;
}

}  // namespace

TEST_CASE("bundles of every format answer as the database that they came from") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(2 * kCount, 0);
  write_bundles(dir, x);
  for (const std::string bundle : {"bundle.db", "bundle.csv", "bundle.json", "tree"}) {
    for (const Track track : {Track::lookup, Track::tune}) {
      CAPTURE(bundle);
      const Launched launched = launch(dir, bundle, x, "", false, track);
      CHECK(launched.choice.config == kWinner);
      CHECK(launched.choice.source == Choice::Source::bundle);
      CHECK(launched.choice.time_us == doctest::Approx(50).epsilon(0.01));
      CHECK(has(launched.choice.why, "from " + dir / bundle));
      CHECK(launched.statistics.trials == 0);
      CHECK(launched.statistics.misses == 0);
      // Only the database brings the code; others bring the config, which is compiled.
      CHECK(launched.statistics.compilations == (bundle == "bundle.db" ? 0 : 1));
    }
  }
  CHECK(!std::filesystem::exists(dir / "bundle.db-wal"));
  const Launched near = launch(dir, "bundle.csv", x, "", false, Track::lookup, kCount + 100);
  CHECK(near.choice.config == kWinner);
  CHECK(has(near.choice.why, "nearest tuned problem"));
  CHECK(gpu.read(x, 1)[0] == 10);  // one for the tuned launch and each of the others
}

TEST_CASE("a bundle serves where there is no NVRTC or another one, marked as compatible, and strict refuses both") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  write_bundles(dir, x);
  const std::string none = dir / "nowhere/libnvrtc.so";
  // Of another release by its own words, which is all that is read of it: nothing here needs to load it.
  const std::string other = dir / "lib/libnvrtc.so.12";
  test::write_file(
      other, std::string(1000, '\x7f') + "Cuda compilation tools, release 12.9, V12.9.86" + std::string(500, '\0'));
  for (const std::string& nvrtc : {none, other}) {
    CAPTURE(nvrtc);
    const Launched served = launch(dir, "bundle.db", x, nvrtc);
    CHECK(!served.threw);
    CHECK(served.choice.config == kWinner);
    CHECK(served.choice.source == Choice::Source::bundle);
    CHECK(has(served.choice.why, "compatible: found with NVRTC "));
    CHECK(has(served.choice.why, nvrtc == none ? "none is installed here" : "here is 12.9.86"));
    CHECK(served.statistics.compilations == 0);
    const Launched strict = launch(dir, "bundle.db", x, nvrtc, true);
    CHECK(strict.threw);  // there is no code for the default config, and nothing to compile it with
    CHECK(strict.statistics.hits == 0);
  }
  CHECK(gpu.read(x, 1)[0] == 3);
}

TEST_CASE("a bundle of one NVRTC is compatible under the real other one, and strict compiles the default config") {
  if (!test::have_nvrtc()) return;
  const auto older = compile::find_nvrtc({JITUNE_SOURCE_DIR "/.deps/cuda-12.9", "", "", {}});
  if (older.found.empty()) {
    test::skip("nvrtc-12.9", "there is no .deps/cuda-12.9; scripts/setup --ci unpacks NVRTC 12.9 there");
    return;
  }
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  write_bundles(dir, x);
  const compile::NvrtcFile& nvrtc = older.found.front();
  const Launched served = launch(dir, "bundle.db", x, nvrtc.path);
  CHECK(served.choice.config == kWinner);
  CHECK(served.choice.source == Choice::Source::bundle);
  CHECK(has(served.choice.why, "compatible: found with NVRTC "));
  CHECK(has(served.choice.why, "here is " + nvrtc.build));
  CHECK(served.statistics.compilations == 0);
  const Launched strict = launch(dir, "bundle.db", x, nvrtc.path, true);
  CHECK_FALSE(strict.threw);
  CHECK(strict.choice.source == Choice::Source::default_config);
  CHECK(strict.statistics.hits == 0);
  CHECK(strict.statistics.compilations == 1);
  CHECK(gpu.read(x, 1)[0] == 3);
}

TEST_CASE("the database's own winner goes before a bundle's, and a bundle that can't be used is one warning") {
  if (!test::have_nvrtc()) return;
  const test::TempDir dir;
  FakeGpu gpu(kSpec);
  float* x = gpu.buffer(kCount, 0);
  write_bundles(dir, x);
  test::write_file(dir / "bad.json", "{}");
  int warnings = 0;
  Options options = quiet_options(Track::lookup, dir / "tuned.db");
  options.bundles = {dir / "bad.json", dir / "nowhere.db", dir / "bundle.csv"};
  options.log = {[](void* user, const Event& event) noexcept {
                   if (event.code == "bundle_unusable") ++*static_cast<int*>(user);
                 },
                 &warnings};
  Tuner tuner(options);
  CHECK(warnings == 2);
  Increment kernel(tuner, increment());
  kernel.launch(nullptr, kernel.problem({{"n", kCount}}), x, kCount);
  CHECK(kernel.choice(kernel.problem({{"n", kCount}})).source == Choice::Source::stored);
  CHECK(!std::filesystem::exists(dir / "nowhere.db"));
}
