// The build cache over scripted compile workers: what is retried, what is remembered, what is given up.
#include "tune/compiler.hpp"

#include <doctest/doctest.h>

#include "base/hash.hpp"
#include "support/support.hpp"

using namespace jitune;
using namespace std::chrono_literals;
using tune::Compiled;
using tune::CompileJob;
using tune::Compiler;

namespace {

struct Fixture {
  test::TempDir dir;
  Log log{{}, Log::Threshold::off, false};
  std::unique_ptr<store::Store> store;
  std::unique_ptr<Compiler> compiler;

  explicit Fixture(int width = 1, std::chrono::milliseconds timeout = 60s) {
    store::Store::OpenOptions where;
    where.path = dir / "jitune.db";
    where.must_be_file = true;
    where.log = &log;
    auto opened = store::Store::open(where);
    REQUIRE_MESSAGE(opened.ok(), opened.error());
    store = std::move(*opened);
    restart(width, timeout);
  }

  void restart(int width, std::chrono::milliseconds timeout) {
    compiler.reset();
    Compiler::Options options;
    options.worker = JITUNE_BINARY_DIR "/bin/jitune-fake-worker";
    options.nvrtc.path = "/nonexistent/libnvrtc.so";
    options.width = width;
    options.timeout = timeout;
    options.store = store.get();
    options.log = &log;
    compiler = std::make_unique<Compiler>(std::move(options));
  }

  std::string failure_of(const CompileJob& job) {
    const auto known = store->known_failure(job.build.sha256, "");
    REQUIRE(known.ok());
    return *known ? **known : "";
  }
};

/// A config whose compilation does what the scripted worker is told.
CompileJob job(const std::string& behaviour, int config = 0) {
  CompileJob job;
  job.kernel = "k";
  job.config = {{"N", Value(config)}};
  job.spec.source_text = "//!fake " + behaviour + "\n";
  job.spec.source_name = "k.cu";
  job.spec.entry = "k";
  job.spec.arch = "sm_90";
  job.source.sha256 = sha256_hex("all of one space");
  job.build = key::make_build_key(job.source, job.spec, job.config, "13.0");
  // The scripts are not in the hash, which stands for the whole space here.
  job.build.sha256 = sha256_hex(behaviour + std::to_string(config));
  return job;
}

}  // namespace

TEST_CASE("what crashes is retried once on a fresh worker, remembered, and not tried again") {
  for (const char* word : {"segv", "kill", "exit 3", "garbage", "badsha"}) {
    CAPTURE(word);
    Fixture f;
    CHECK(f.compiler->compile(job("cubin")).artifact.status == "ok");
    const Compiled crashed = f.compiler->compile(job(word, 1));
    CHECK(crashed.artifact.status == "crash");
    CHECK_FALSE(crashed.not_run);
    CHECK_FALSE(crashed.artifact.log.empty());
    CHECK(f.compiler->compilations() == 3);
    CHECK(f.failure_of(crashed.job) == "compile_crash");
    const int spawned = f.compiler->spawned();
    const Compiled again = f.compiler->compile(job(word, 1));
    CHECK(again.from_store);
    CHECK(again.artifact.status == "crash");
    CHECK(f.compiler->spawned() == spawned);
    CHECK(f.compiler->compile(job("cubin", 2)).artifact.status == "ok");
  }
}

TEST_CASE("after a storm of deaths nothing is compiled in the application, and nothing is held against the configs") {
  Fixture f;
  for (int i = 0; i < 2; ++i) CHECK(f.compiler->compile(job("segv", i)).artifact.status == "crash");
  const Compiled last = f.compiler->compile(job("segv", 2));
  CHECK(last.not_run);
  CHECK_FALSE(last.no_worker);
  CHECK(f.failure_of(last.job).empty());
  const Compiled good = f.compiler->compile(job("cubin", 3));
  CHECK(good.not_run);
  CHECK(good.artifact.log.find("5 workers in a row") != std::string::npos);  // not the words of a missing NVRTC
  CHECK(f.failure_of(good.job).empty());
}

TEST_CASE("where no worker can be started the application compiles itself") {
  Fixture f;
  Compiler::Options options;
  options.worker = "/nonexistent/jitune-worker";
  options.nvrtc.path = "/nonexistent/libnvrtc.so";
  options.store = f.store.get();
  options.log = &f.log;
  Compiler compiler(std::move(options));
  const Compiled here = compiler.compile(job("cubin"));
  CHECK_FALSE(here.not_run);
  CHECK(here.artifact.status == "error");
  CHECK(here.artifact.log.find("/nonexistent/libnvrtc.so") != std::string::npos);
}

TEST_CASE("a config far slower than its space is ended early, and is not held to have failed for good") {
  Fixture f(2);
  Compiler::Stream stream(*f.compiler);
  stream.submit(job("spin", 99));  // given to its worker before anything is known of the space
  for (int i = 0; i < 12; ++i) stream.submit(job("cubin", i));
  const auto start = Clock::now();
  int good = 0;
  std::optional<Compiled> slow;
  while (auto compiled = stream.next(Clock::now() + 30s)) {
    if (compiled->artifact.status == "ok") ++good;
    if (compiled->artifact.status == "timeout") slow = std::move(compiled);
  }
  CHECK(good == 12);
  REQUIRE(slow.has_value());
  CHECK(ms_since(start) < 10000);  // instead of a minute
  CHECK(slow->artifact.log.find("the limit is 60 s") != std::string::npos);
  CHECK(f.failure_of(slow->job).empty());

  // At the user's own limit it is a verdict.
  f.restart(1, 300ms);
  const Compiled final = f.compiler->compile(job("spin", 99));
  CHECK_FALSE(final.from_store);
  CHECK(final.artifact.status == "timeout");
  CHECK(f.failure_of(final.job) == "compile_timeout");
  CHECK(f.compiler->compile(job("spin", 99)).from_store);
}

TEST_CASE("ending a stream takes back what is queued and what runs, and leaves the compiler usable") {
  Fixture f(2);
  const auto start = Clock::now();
  {
    Compiler::Stream stream(*f.compiler);
    for (int i = 0; i < 6; ++i) stream.submit(job("sleep 60000", i));
    CHECK(stream.pending() == 6);
    CHECK_FALSE(stream.next(Clock::now() + 50ms).has_value());
  }
  CHECK(f.compiler->compile(job("cubin")).artifact.status == "ok");
  CHECK(ms_since(start) < 20000);
  for (int i = 0; i < 6; ++i) CHECK(f.failure_of(job("sleep 60000", i)).empty());
}
