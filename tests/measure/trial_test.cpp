#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>

#include "measure/duel.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"
#include "worker.hpp"

using namespace jitune;
using namespace jitune::measure;
using namespace jitune::measure::test;

TEST_CASE("the worker says hello first, and ends with its input") {
  fake();
  Worker worker;
  CHECK(wire::get_string(worker.hello(), "hello") == "measure");
  CHECK(wire::get_int(worker.hello(), "protocol") == wire::kProtocolVersion);
  CHECK(wire::get_string(worker.hello(), "version") == JITUNE_VERSION);
  CHECK(wire::get_int(worker.hello(), "pid") == ::getpid());
  CHECK(worker.finish() == 0);
}

TEST_CASE("a reference, then trials: times, facts and early stop") {
  fake(
      R"({"kernels": [{"match": "scale<1>", "time_us": 100, "noise": 0.002, "first": 2, "regs": 40, "static_smem": 512},
                       {"match": "scale<2>", "time_us": 80, "noise": 0.002},
                       {"match": "scale<3>", "time_us": 130}, {"match": "scale<4>", "time_us": 90},
                       {"match": "scale<5>", "time_us": 84.5}]})");
  Worker worker;
  const auto args = scale_args();
  const SetupReply ready = worker.setup(setup_for(args));
  REQUIRE_MESSAGE(ready.ok, ready.error);
  CHECK(ready.buffer_bytes > 3 * 4096 * 4);

  const TrialReply base = worker.reference(candidate(mangled("scale", 1), args));
  REQUIRE_MESSAGE(base.status == TrialStatus::ok, base.error);
  CHECK(base.samples_us.size() == 3);
  for (const double us : base.samples_us) CHECK(us == doctest::Approx(100).epsilon(0.003));
  CHECK(base.first_us == doctest::Approx(200).epsilon(0.003));
  CHECK(base.facts.regs == 40);
  CHECK(base.facts.static_smem_bytes == 512);
  CHECK(base.facts.max_blocks_per_sm == 12);  // 65536 / (40 * 128)

  const TrialReply fast = worker.trial(candidate(mangled("scale", 2), args), 100);
  CHECK(fast.status == TrialStatus::ok);
  CHECK(summarise(fast.samples_us).median_us == doctest::Approx(80).epsilon(0.003));

  const TrialReply slow = worker.trial(candidate(mangled("scale", 3), args), 80);
  CHECK(slow.status == TrialStatus::early_stopped);
  CHECK(slow.samples_us.size() == 1);
  CHECK(worker.trial(candidate(mangled("scale", 4), args), 80).samples_us.size() == 2);  // 12.5 % behind
  CHECK(worker.trial(candidate(mangled("scale", 5), args), 80).samples_us.size() == 3);  // 5.6 % behind
}

TEST_CASE("at several problems times are means by weight, each by its own method, and any of them can fail a config") {
  fake(R"({"kernels": [{"match": "scale<1>", "time_us": 2, "per_block_us": 0.1, "noise": 0.002},
                       {"match": "scale<2>", "time_us": 12, "per_block_us": 0.01, "noise": 0.002},
                       {"match": "scale<3>", "time_us": 20, "per_block_us": 0.2},
                       {"match": "scale<4>", "time_us": 2, "fault": "wrong"}]})");
  Worker worker;
  const auto few = scale_args(1280), many = scale_args(128'000);
  Setup setup = setup_for(few);
  setup.text = "n=1280";
  setup.weight = 3;
  setup.also = {{"n=128000", 1, many, 0}};
  const SetupReply ready = worker.setup(setup);
  REQUIRE_MESSAGE(ready.ok, ready.error);
  CHECK(ready.buffer_bytes > 3 * 4 * (1280 + 128'000));
  const auto at_both = [&](int number) {
    Candidate made = candidate(mangled("scale", number), few);
    made.geometry.grid = {10, 1, 1};
    Candidate other = made;
    other.args = many;
    other.geometry.grid = {1000, 1, 1};
    made.also.push_back(other);
    return made;
  };
  const TrialReply base = worker.reference(at_both(1));
  REQUIRE_MESSAGE(base.status == TrialStatus::ok, base.error);
  CHECK(summarise(base.samples_us).median_us == doctest::Approx((3 * 3 + 102) / 4.0).epsilon(0.01));
  CHECK(base.launches > 1);  // 3 us: a graph
  CHECK(base.also_launches == std::vector<int>{1});
  // Faster in the mean, though four times slower at the heavier problem.
  const TrialReply better = worker.trial(at_both(2), 27.75);
  REQUIRE_MESSAGE(better.status == TrialStatus::ok, better.error);
  CHECK(summarise(better.samples_us).median_us == doctest::Approx((3 * 12.1 + 22) / 4).epsilon(0.01));
  const TrialReply slow = worker.trial(at_both(3), 14.6);
  CHECK(slow.status == TrialStatus::early_stopped);  // (3 * 22 + 220) / 4
  CHECK(summarise(slow.samples_us).min_us > 14.6);
  const TrialReply wrong = worker.trial(at_both(4));
  CHECK(wrong.status == TrialStatus::wrong_result);
  CHECK_MESSAGE(wrong.error.find("at n=1280: ") == 0, wrong.error);
  const RematchReply again = worker.rematch({at_both(1), at_both(2)});
  REQUIRE_MESSAGE(again.ok, again.error);
  CHECK(summarise(again.samples_us[0]).median_us == doctest::Approx(27.75).epsilon(0.01));
  CHECK(summarise(again.samples_us[1]).median_us == doctest::Approx(14.575).epsilon(0.01));
  CHECK(worker.trial(candidate(mangled("scale", 1), few)).error.find("another number of problems") !=
        std::string::npos);
}

TEST_CASE("a first launch far behind the best costs one more launch, not a warm-up") {
  const auto& driver =
      fake(R"({"kernels": [{"match": "scale<1>", "time_us": 10}, {"match": "scale<2>", "time_us": 100}]})");
  Worker worker;
  const auto args = scale_args();
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::ok);
  const int64_t before = driver.launches();
  const TrialReply reply = worker.trial(candidate(mangled("scale", 2), args), 10);
  CHECK(reply.status == TrialStatus::early_stopped);
  CHECK(driver.launches() - before == 2);
}

TEST_CASE("inout buffers are restored before every run, zeroed ones are zero") {
  fake();
  Worker worker;
  const std::vector<space::ArgSpec> add_one{floats(ArgKind::inout, "x", 1000), scalar(1000)};
  REQUIRE(worker.setup(setup_for(add_one)).ok);
  // If any run saw what an earlier one left, its output would be one too high.
  REQUIRE(worker.reference(candidate("increment", add_one)).status == TrialStatus::ok);
  for (int i = 0; i < 3; ++i) {
    const TrialReply reply = worker.trial(candidate(mangled("increment", i), add_one));
    CHECK_MESSAGE(reply.status == TrialStatus::ok, reply.error);
  }
  const std::vector<space::ArgSpec> sum{floats(ArgKind::zeroed, "sum", 1000), floats(ArgKind::in, "x", 1000),
                                        scalar(1000)};
  REQUIRE(worker.setup(setup_for(sum)).ok);
  REQUIRE(worker.reference(candidate("accumulate", sum)).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(mangled("accumulate", 1), sum)).status == TrialStatus::ok);
}

TEST_CASE("an output that a kernel adds to must not be declared out") {
  fake();
  Worker worker;
  std::vector<space::ArgSpec> args{floats(ArgKind::out, "count", 1000), floats(ArgKind::in, "x", 1000), scalar(1000)};
  args[0].type = Type::int32;
  args[0].tolerance = {};
  REQUIRE(worker.setup(setup_for(args)).ok);
  const TrialReply reply = worker.reference(candidate("tally", args));
  CHECK(reply.status == TrialStatus::wrong_result);
  CHECK(reply.error.find("two runs of the reference on the same inputs disagree: output `count`") == 0);
  CHECK(reply.error.find("inout or zeroed") != std::string::npos);
}

TEST_CASE("an output of floats that a kernel adds to is no NaN that equals itself") {
  fake();
  Worker worker;
  const std::vector<space::ArgSpec> args{floats(ArgKind::out, "sum", 1000), floats(ArgKind::in, "x", 1000),
                                         scalar(1000)};
  REQUIRE(worker.setup(setup_for(args)).ok);
  const TrialReply reply = worker.reference(candidate("accumulate", args));
  CHECK(reply.status == TrialStatus::wrong_result);
  CHECK(reply.error.find("two runs of the reference on the same inputs disagree: output `sum`: 1000 of 1000") == 0);
  CHECK(reply.error.find("inout or zeroed") != std::string::npos);
}

TEST_CASE("NaN equals NaN by choice, the poison's NaN never") {
  fake(R"({"kernels": [{"match": "scale<7>", "fault": "half"}]})");
  Worker worker;
  auto args = scale_args(64);
  args[1].fill = Fill::constant(std::numeric_limits<double>::quiet_NaN());
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(mangled("scale", 2), args)).status == TrialStatus::ok);
  const TrialReply half = worker.trial(candidate(mangled("scale", 7), args));
  CHECK(half.status == TrialStatus::wrong_result);
  CHECK(half.error.find("32 of 64 elements differ") != std::string::npos);
  args[0].tolerance.nan_equal = false;
  REQUIRE(worker.setup(setup_for(args)).ok);
  CHECK(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::wrong_result);
}

TEST_CASE("short kernels are timed by graphs over copies of the buffers, by the reference's time") {
  const auto& driver = fake(R"({"kernels": [{"match": "increment<1>", "time_us": 5},
                                            {"match": "increment<2>", "time_us": 4, "noise": 0.001},
                                            {"match": "increment<3>", "time_us": 5.4, "noise": 0.001},
                                            {"match": "increment<4>", "time_us": 500},
                                            {"match": "increment<5>", "time_us": 30}]})");
  Worker worker;
  const std::vector<space::ArgSpec> args{floats(ArgKind::inout, "x", 1000), scalar(1000)};
  REQUIRE(worker.setup(setup_for(args)).ok);
  const int64_t bytes = driver.allocated_bytes();
  const TrialReply base = worker.reference(candidate(mangled("increment", 1), args));
  REQUIRE_MESSAGE(base.status == TrialStatus::ok, base.error);
  CHECK(base.method == Policy::Method::graph);
  CHECK(base.launches >= 30);  // 150 us
  CHECK(base.launches <= 31);
  CHECK(summarise(base.samples_us).median_us == doctest::Approx(5).epsilon(0.003));
  CHECK(base.stop == "agreed");
  CHECK(driver.allocated_bytes() > bytes + 30 * 4000);
  // Every launch of every sample ran on restored contents: a kernel that adds one finds its first input each time, or
  // the next check would fail.
  const TrialReply fast = worker.trial(candidate(mangled("increment", 2), args), 5);
  REQUIRE_MESSAGE(fast.status == TrialStatus::ok, fast.error);
  CHECK(summarise(fast.samples_us).median_us == doctest::Approx(4).epsilon(0.003));
  const TrialReply slow = worker.trial(candidate(mangled("increment", 3), args), 4);
  CHECK(slow.status == TrialStatus::early_stopped);
  CHECK(slow.samples_us.size() == 1);
  CHECK(slow.stop == "lost");
  // Hopeless ones cost two launches, not a graph of them.
  const int64_t before = driver.launches();
  CHECK(worker.trial(candidate(mangled("increment", 4), args), 4).status == TrialStatus::early_stopped);
  CHECK(driver.launches() - before == 2);
  // Finalists that are much faster than the reference are told apart by as many launches as they need.
  const RematchReply alike =
      worker.rematch({candidate(mangled("increment", 1), args), candidate(mangled("increment", 2), args)});
  CHECK(alike.ok);
  CHECK(alike.launches >= 37);  // 150 us of the faster one
  CHECK(alike.launches <= 38);
  CHECK(summarise(alike.samples_us[0]).median_us == doctest::Approx(5).epsilon(0.003));
  CHECK(worker.trial(candidate(mangled("increment", 5), args)).method == Policy::Method::graph);  // as all of the study

  // A study whose reference is longer, or that is told to, takes single launches.
  REQUIRE(worker.setup(setup_for(args)).ok);
  CHECK(worker.reference(candidate(mangled("increment", 5), args)).method == Policy::Method::stream);
  CHECK(worker.trial(candidate(mangled("increment", 1), args)).method == Policy::Method::stream);
  Setup setup = setup_for(args);
  setup.policy.method = Policy::Method::stream;
  REQUIRE(worker.setup(setup).ok);
  CHECK(worker.reference(candidate(mangled("increment", 1), args)).launches == 1);
  // A worker that replaces another one goes on with as many launches.
  setup.policy.method = Policy::Method::graph;
  setup.launches = 12;
  REQUIRE(worker.setup(setup).ok);
  CHECK(worker.reference(candidate(mangled("increment", 5), args)).launches == 12);
  // Where memory is short single launches have to do.
  setup.memory_limit_bytes = worker.setup(setup).buffer_bytes + 10'000;
  REQUIRE(worker.setup(setup).ok);
  CHECK(worker.reference(candidate(mangled("increment", 1), args)).method == Policy::Method::stream);
}

TEST_CASE("kernels are timed by CUPTI's records where that is asked for") {
  fake(R"({"kernels": [{"match": "increment<1>", "time_us": 5}, {"match": "increment<2>", "time_us": 4}]})");
  const std::vector<space::ArgSpec> args{floats(ArgKind::inout, "x", 1000), scalar(1000)};
  Setup setup = setup_for(args);
  setup.policy.method = Policy::Method::cupti;
  setup.toolkit_dir = JITUNE_BINARY_DIR "/tests/fake_cuda";
  for (const bool cold : {true, false}) {
    setup.policy.cold_l2 = cold;
    Worker worker;
    const SetupReply ready = worker.setup(setup);
    REQUIRE_MESSAGE(ready.ok, ready.error);
    const TrialReply base = worker.reference(candidate(mangled("increment", 1), args));
    REQUIRE_MESSAGE(base.status == TrialStatus::ok, base.error);
    CHECK(base.method == Policy::Method::cupti);
    CHECK(base.launches == 1);
    for (const double us : base.samples_us) CHECK(us == doctest::Approx(4.75).epsilon(1e-6));
    const RematchReply finalists =
        worker.rematch({candidate(mangled("increment", 1), args), candidate(mangled("increment", 2), args)});
    REQUIRE_MESSAGE(finalists.ok, finalists.error);
    CHECK(summarise(finalists.samples_us[1]).median_us == doctest::Approx(3.75).epsilon(1e-6));
  }
  // A study that does not ask for it has events again.
  Worker worker;
  setup.policy.method = Policy::Method::stream;
  REQUIRE(worker.setup(setup).ok);
  const TrialReply by_events = worker.reference(candidate(mangled("increment", 1), args));
  CHECK(by_events.method == Policy::Method::stream);
  CHECK(summarise(by_events.samples_us).median_us == doctest::Approx(5).epsilon(1e-3));
}

TEST_CASE("the SM clock is recorded, and a GPU that rested is brought up to speed first") {
  fake(
      R"({"devices": [{"busy_clocks_mhz": [1980, 600, 1200, 1900, 1980]}], "kernels": [{"match": "", "time_us": 100}]})");
  Worker worker;
  const auto args = scale_args();
  REQUIRE(worker.setup(setup_for(args)).ok);
  CHECK(worker.reference(candidate("scale", args)).clock_mhz == 1980);
  ::usleep(10'000);  // 600 and 1200 MHz are not enough, 1900 is; the next reading is that after the samples
  CHECK(worker.trial(candidate("scale", args)).clock_mhz == 1980);
}

TEST_CASE("without checks a wrong result passes and a write out of bounds does not") {
  fake(R"({"kernels": [{"match": "scale<8>", "fault": "wrong"}, {"match": "scale<9>", "fault": "out_of_bounds"}]})");
  Worker worker;
  const auto args = scale_args();
  Setup setup = setup_for(args);
  setup.policy.check = false;
  REQUIRE(worker.setup(setup).ok);
  REQUIRE(worker.reference(candidate("scale", args)).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(mangled("scale", 8), args)).status == TrialStatus::ok);
  CHECK(worker.trial(candidate(mangled("scale", 9), args)).status == TrialStatus::out_of_bounds);
}

TEST_CASE("elements that the reference leaves unwritten are not compared") {
  fake(R"({"kernels": [{"match": "interior<7>", "fault": "wrong"}]})");
  Worker worker;
  const std::vector<space::ArgSpec> args{floats(ArgKind::out, "y", 1001), floats(ArgKind::in, "x", 1001), scalar(1001)};
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate("interior", args)).status == TrialStatus::ok);
  const TrialReply same = worker.trial(candidate(mangled("interior", 1), args));
  CHECK_MESSAGE(same.status == TrialStatus::ok, same.error);
  CHECK(worker.trial(candidate(mangled("interior", 7), args)).status == TrialStatus::wrong_result);
}

TEST_CASE("symbols are filled, scratch is there, buffers need not be parameters") {
  fake();
  Worker worker;
  std::vector<space::ArgSpec> args{floats(ArgKind::out, "y", 64), floats(ArgKind::in, "x", 64), scalar(64),
                                   floats(ArgKind::symbol, "factor", 1, Fill::constant(3))};
  args[3].tolerance = {};
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate("symbol_scale", args)).status == TrialStatus::ok);
  auto scale = args;
  scale.insert(scale.begin() + 2, scalar(3.0f));  // the same function of x, so the same output
  CHECK(worker.trial(candidate("scale", scale)).status == TrialStatus::launch_error);  // not the study's args
  std::vector<space::ArgSpec> missing = args;
  missing[3].name = "no_such_variable";
  REQUIRE(worker.setup(setup_for(missing)).ok);
  const TrialReply absent = worker.reference(candidate("symbol_scale", missing));
  CHECK(absent.status == TrialStatus::launch_error);
  CHECK(absent.error.find("`no_such_variable`") != std::string::npos);

  std::vector<space::ArgSpec> copy{floats(ArgKind::out, "y", 64), floats(ArgKind::in, "x", 64),
                                   floats(ArgKind::scratch, "scratch", 64), scalar(64)};
  REQUIRE(worker.setup(setup_for(copy)).ok);
  REQUIRE(worker.reference(candidate("scratch_copy", copy)).status == TrialStatus::ok);
  copy[2].count = 100'000;  // scratch belongs to the config: another size is right
  CHECK(worker.trial(candidate("scratch_copy", copy)).status == TrialStatus::ok);
  copy[2].count = 8;  // and too little of it is noticed
  const TrialReply small = worker.trial(candidate("scratch_copy", copy));
  CHECK(small.status == TrialStatus::out_of_bounds);
  CHECK(small.error.find("past the end of `scratch` (32 bytes)") != std::string::npos);
  copy[2].count = 64;
  CHECK(worker.trial(candidate("scratch_copy", copy)).status == TrialStatus::ok);
}

TEST_CASE("finalists that are hard to tell apart get more rounds") {
  fake(R"({"kernels": [{"match": "scale<1>", "time_us": 50, "noise": 0.011},
                       {"match": "scale<2>", "time_us": 50.2, "noise": 0.011}]})");
  Worker worker;
  const auto args = scale_args(64);
  Setup setup = setup_for(args);
  setup.policy.cold_l2 = false;  // the stand-in's flush takes milliseconds, and there are 100 of them for this
  REQUIRE(worker.setup(setup).ok);
  REQUIRE(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::ok);
  size_t most = 0;
  for (int tries = 0; tries < 5 && most <= 15; ++tries) {  // this process may lose its core for as long, but not always
    const RematchReply reply =
        worker.rematch({candidate(mangled("scale", 2), args), candidate(mangled("scale", 1), args)});
    REQUIRE_MESSAGE(reply.ok, reply.error);
    most = std::max(most, reply.samples_us[0].size());
  }
  CHECK(most > 15);
  CHECK(most <= 60);
}

TEST_CASE("finalists are measured interleaved, and their modules go") {
  const auto& driver = fake(R"({"kernels": [{"match": "scale<1>", "time_us": 100, "drift": 0.0005},
                                            {"match": "scale<2>", "time_us": 103, "drift": 0.0005}]})");
  Worker worker;
  const auto args = scale_args();
  REQUIRE(worker.setup(setup_for(args)).ok);
  REQUIRE(worker.reference(candidate(mangled("scale", 1), args)).status == TrialStatus::ok);
  const int64_t modules = driver.modules();
  const RematchReply reply =
      worker.rematch({candidate(mangled("scale", 2), args), candidate(mangled("scale", 1), args)});
  REQUIRE_MESSAGE(reply.ok, reply.error);
  REQUIRE(reply.samples_us.size() == 2);
  const size_t rounds = reply.samples_us[0].size();
  CHECK(rounds == 8);  // 3 % apart in all of them
  CHECK(reply.samples_us[1].size() == rounds);
  CHECK(driver.modules() == modules);
  CHECK(compare_rounds(reply.samples_us[0], reply.samples_us[1], 0.01) == Verdict::second);
  // The clock of the fake slows with every launch: who came first in a round shows in the ratio, and it changes.
  std::set<bool> seen;
  for (size_t round = 0; round < rounds; ++round)
    seen.insert(reply.samples_us[0][round] / reply.samples_us[1][round] > 1.03);
  CHECK(seen.size() == 2);
  const RematchReply broken = worker.rematch({candidate("scale", args), candidate("scale", {})});
  CHECK_FALSE(broken.ok);
  CHECK(broken.error.find("finalist 1: ") == 0);
  CHECK_FALSE(broken.context_lost);
}

TEST_CASE("facts of a cubin") {
  fake(R"({"kernels": [{"match": "scale", "regs": 64, "local": 16}]})");
  Worker worker;
  FactsRequest request{fake_cuda::make_cubin({"scale"}), "scale", {}};
  request.geometry.block = {256, 1, 1};
  request.geometry.shared_bytes = 100'000;
  CHECK(facts_from_json(worker.ask(to_json(request))).error() ==
        "a question for facts came before a setup that worked");
  REQUIRE(worker.setup(setup_for(scale_args())).ok);
  const auto facts = facts_from_json(worker.ask(to_json(request)));
  REQUIRE(facts);
  CHECK(facts->regs == 64);
  CHECK(facts->local_bytes == 16);
  CHECK(facts->max_blocks_per_sm == 2);  // 228 KiB / (100,000 + 1 KiB)
  request.lowered_name = "other";
  CHECK(facts_from_json(worker.ask(to_json(request))).error().find("`other`") != std::string::npos);
}

TEST_CASE("warm L2 costs one launch more a sample and no flush buffer") {
  const auto& driver = fake();
  Worker worker;
  const auto args = scale_args();
  Setup setup = setup_for(args);
  const int64_t cold_bytes = worker.setup(setup).buffer_bytes;
  setup.policy.cold_l2 = false;
  CHECK(cold_bytes - worker.setup(setup).buffer_bytes == 2 << 20);
  REQUIRE(worker.reference(candidate("scale", args)).status == TrialStatus::ok);
  const int64_t before = driver.launches();
  const TrialReply reply = worker.trial(candidate("scale", args));
  REQUIRE(reply.status == TrialStatus::ok);
  CHECK((driver.launches() - before) % 2 == 1);  // the check run, then pairs
}

TEST_CASE("malformed requests are answered, not fatal") {
  fake();
  Worker worker;
  CHECK(wire::get_string(worker.ask({{"op", "dance"}}), "error").find("no op `dance`") != std::string::npos);
  CHECK(wire::get_string(worker.ask(Json::object()), "error").find("malformed") == 0);
  CHECK(wire::get_string(worker.ask(Json(4)), "error").find("malformed") == 0);
  const auto setup = setup_reply_from_json(worker.ask({{"op", "setup"}}));
  REQUIRE(setup);
  CHECK_FALSE(setup->ok);
  CHECK(setup->error.find("malformed request: ") == 0);
  const auto trial = trial_reply_from_json(worker.ask({{"op", "trial"}}));
  REQUIRE(trial);
  CHECK(trial->status == TrialStatus::launch_error);
  CHECK(worker.trial(candidate("scale", scale_args())).error == "a trial came before a setup that worked");
  CHECK_FALSE(worker.rematch({}).ok);
  CHECK(worker.finish() == 0);
}
