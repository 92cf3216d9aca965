#include "measure/protocol.hpp"

#include <cmath>

#include "support/support.hpp"
#include "wire/frame.hpp"

using namespace jitune;
using namespace jitune::measure;

namespace {

/// What the other end gets.
Json over_the_wire(const Json& json) {
  const std::string frame = wire::encode(json);
  const auto decoded = wire::decode(std::string_view(frame).substr(wire::kHeaderBytes));
  REQUIRE(decoded);
  return *decoded;
}

space::ArgSpec buffer(ArgKind kind, const char* name) {
  space::ArgSpec arg;
  arg.kind = kind;
  arg.name = name;
  arg.type = Type::half;
  arg.element_bytes = 2;
  arg.count = 4096;
  return arg;
}

std::vector<space::ArgSpec> all_kinds() {
  std::vector<space::ArgSpec> args{buffer(ArgKind::out, "y"), buffer(ArgKind::in, "x"), buffer(ArgKind::symbol, "s")};
  args[0].tolerance = {false, 1e-2, 1e-3, 0.25, false};
  args[1].fill = Fill::uniform(0.5, 1.5);
  args[1].index_bound = 77;
  args[1].pass = false;
  args[2].type.reset();
  args[2].fill = Fill::file("/data/table.bin");
  space::ArgSpec scalar;
  scalar.kind = ArgKind::scalar;
  scalar.name = "n";
  scalar.scalar = {0, 255, 128, 7};
  args.push_back(scalar);
  space::ArgSpec map;
  map.kind = ArgKind::tensor_map;
  map.name = "map";
  map.over = 1;
  map.dims = {64, 64};
  map.strides_bytes = {128};
  map.box = {32, 16};
  map.element_strides = {1, 1};
  map.swizzle = 128;
  map.interleave = 16;
  map.l2_promotion = 256;
  map.oob_nan = true;
  args.push_back(map);
  return args;
}

Candidate candidate() {
  Candidate made;
  made.cubin = std::string(
      "\x7f"
      "ELF\0\xff",
      6);
  made.lowered_name = "_Z1kv";
  made.geometry.grid = {4'000'000'000u, 2, 3};
  made.geometry.block = {128, 2, 1};
  made.geometry.cluster = {2, 1, 1};
  made.geometry.shared_bytes = 100'000;
  made.geometry.cooperative = true;
  made.geometry.programmatic_dependent = true;
  made.args = all_kinds();
  return made;
}

void check_same(const std::vector<space::ArgSpec>& a, const std::vector<space::ArgSpec>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(a[i].kind == b[i].kind);
    CHECK(a[i].name == b[i].name);
    CHECK(a[i].pass == b[i].pass);
    CHECK(a[i].type == b[i].type);
    CHECK(a[i].bytes() == b[i].bytes());
    CHECK(a[i].fill.kind == b[i].fill.kind);
    CHECK(a[i].fill.low == b[i].fill.low);
    CHECK(a[i].fill.high == b[i].fill.high);
    CHECK(a[i].fill.path == b[i].fill.path);
    CHECK(a[i].index_bound == b[i].index_bound);
    CHECK(a[i].tolerance.exact == b[i].tolerance.exact);
    CHECK(a[i].tolerance.rtol == b[i].tolerance.rtol);
    CHECK(a[i].tolerance.atol == b[i].tolerance.atol);
    CHECK(a[i].tolerance.mismatch == b[i].tolerance.mismatch);
    CHECK(a[i].tolerance.nan_equal == b[i].tolerance.nan_equal);
    CHECK(a[i].scalar == b[i].scalar);
    CHECK(a[i].over == b[i].over);
    CHECK(a[i].dims == b[i].dims);
    CHECK(a[i].strides_bytes == b[i].strides_bytes);
    CHECK(a[i].box == b[i].box);
    CHECK(a[i].element_strides == b[i].element_strides);
    CHECK(a[i].swizzle == b[i].swizzle);
    CHECK(a[i].interleave == b[i].interleave);
    CHECK(a[i].l2_promotion == b[i].l2_promotion);
    CHECK(a[i].oob_nan == b[i].oob_nan);
  }
}

}  // namespace

TEST_CASE("a setup arrives as it was sent") {
  Setup sent;
  sent.device_uuid = "GPU-1234";
  sent.args = all_kinds();
  sent.data.resize(sent.args.size());
  sent.data[1].kind = DataSource::Kind::ipc;
  sent.data[1].ipc_handle = std::string(64, '\x80');
  sent.data[1].offset = 512;
  sent.data[2].kind = DataSource::Kind::shared_memory;
  sent.data[2].shm_name = "/jitune-1";
  sent.seed = 0xFFFF'FFFF'FFFF'FFFEull;
  sent.policy.cold_l2 = false;
  sent.policy.method = Policy::Method::stream;
  sent.policy.max_samples = 9;
  sent.launches = 32;
  sent.policy.margins = {0.5};
  sent.utility_cubin = std::string("\0\1\2", 3);
  sent.memory_limit_bytes = int64_t{1} << 40;
  const auto got = setup_from_json(over_the_wire(to_json(sent)));
  REQUIRE(got);
  CHECK(got->device_uuid == sent.device_uuid);
  check_same(got->args, sent.args);
  REQUIRE(got->data.size() == sent.data.size());
  CHECK(got->data[1].kind == DataSource::Kind::ipc);
  CHECK(got->data[1].ipc_handle == sent.data[1].ipc_handle);
  CHECK(got->data[1].offset == 512);
  CHECK(got->data[2].shm_name == "/jitune-1");
  CHECK(got->seed == sent.seed);
  CHECK(got->policy.text() == sent.policy.text());
  CHECK(got->launches == 32);
  CHECK(got->utility_cubin == sent.utility_cubin);
  CHECK(got->memory_limit_bytes == sent.memory_limit_bytes);
}

TEST_CASE("trials, rematches and questions for facts arrive as they were sent") {
  TrialRequest trial{candidate(), true, true, 12.5, {0.2, 0.1}};
  auto got = trial_request_from_json(over_the_wire(to_json(trial)));
  REQUIRE(got);
  CHECK(got->candidate.cubin == trial.candidate.cubin);
  CHECK(got->candidate.lowered_name == "_Z1kv");
  CHECK(got->candidate.geometry.grid == trial.candidate.geometry.grid);
  CHECK(got->candidate.geometry.block == trial.candidate.geometry.block);
  CHECK(got->candidate.geometry.cluster == trial.candidate.geometry.cluster);
  CHECK(got->candidate.geometry.shared_bytes == 100'000);
  CHECK(got->candidate.geometry.cooperative);
  CHECK(got->candidate.geometry.programmatic_dependent);
  check_same(got->candidate.args, trial.candidate.args);
  CHECK(got->reference);
  CHECK(got->group);
  CHECK(got->bound_us == 12.5);
  CHECK(got->margins == trial.margins);
  trial.bound_us = std::numeric_limits<double>::infinity();
  CHECK(std::isinf(trial_request_from_json(over_the_wire(to_json(trial)))->bound_us));

  const auto rematch =
      rematch_request_from_json(over_the_wire(to_json(RematchRequest{{candidate(), candidate()}, 6, 20, 1})));
  REQUIRE(rematch);
  CHECK(rematch->candidates.size() == 2);
  CHECK(rematch->fewest_rounds == 6);
  CHECK(rematch->most_rounds == 20);
  CHECK(rematch->default_index == 1);

  const auto facts = facts_request_from_json(over_the_wire(to_json(FactsRequest{"abc", "k", candidate().geometry})));
  REQUIRE(facts);
  CHECK(facts->cubin == "abc");
  CHECK(facts->geometry.block == candidate().geometry.block);
}

TEST_CASE("replies arrive as they were sent") {
  const SetupReply setup{true, false, "", 211.5, int64_t{1} << 33, int64_t{1} << 34};
  const auto got_setup = setup_reply_from_json(over_the_wire(to_json(setup)));
  REQUIRE(got_setup);
  CHECK(got_setup->ok);
  CHECK(got_setup->ready_ms == 211.5);
  CHECK(got_setup->buffer_bytes == setup.buffer_bytes);
  CHECK(got_setup->free_bytes == setup.free_bytes);

  TrialReply trial;
  trial.status = TrialStatus::early_stopped;
  trial.samples_us = {1.5, 2.25};
  trial.first_us = 9;
  trial.facts = {40, 1024, 8, 3};
  trial.clock_mhz = 1980;
  trial.method = Policy::Method::graph;
  trial.launches = 32;
  trial.stop = "agreed";
  trial.load_ms = 1;
  trial.check_ms = 2;
  trial.run_ms = 3;
  trial.error = "why";
  trial.group = 2;
  trial.context_lost = true;
  trial.wall_ms = 3.5;
  const auto got = trial_reply_from_json(over_the_wire(to_json(trial)));
  REQUIRE(got);
  CHECK(got->status == trial.status);
  CHECK(got->samples_us == trial.samples_us);
  CHECK(got->first_us == 9);
  CHECK(got->facts.regs == 40);
  CHECK(got->facts.static_smem_bytes == 1024);
  CHECK(got->facts.local_bytes == 8);
  CHECK(got->facts.max_blocks_per_sm == 3);
  CHECK(got->clock_mhz == 1980);
  CHECK(got->method == Policy::Method::graph);
  CHECK(got->launches == 32);
  CHECK(got->stop == "agreed");
  CHECK(got->load_ms == 1);
  CHECK(got->check_ms == 2);
  CHECK(got->run_ms == 3);
  CHECK(got->error == "why");
  CHECK(got->group == 2);
  CHECK(got->context_lost);
  CHECK(got->wall_ms == 3.5);

  const auto rematch =
      rematch_reply_from_json(over_the_wire(to_json(RematchReply{true, "", {{1, 2}, {}, {3}}, 4, true, 17})));
  REQUIRE(rematch);
  CHECK(rematch->samples_us == std::vector<std::vector<double>>{{1, 2}, {}, {3}});
  CHECK(rematch->discarded == 4);
  CHECK(rematch->context_lost);
  CHECK(rematch->launches == 17);

  const auto facts = facts_from_json(over_the_wire(facts_to_json({32, 0, 0, 16}, "")));
  REQUIRE(facts);
  CHECK(facts->max_blocks_per_sm == 16);
  CHECK(facts_from_json(facts_to_json({}, "no such kernel")).error() == "no such kernel");
}

TEST_CASE("what is not one of these messages is refused with a reason") {
  CHECK(setup_from_json(Json(3)).error() == "the message is no map");
  CHECK(setup_from_json({{"op", "trial"}}).error() == "the message's op is `trial`, not `setup`");
  CHECK_FALSE(setup_from_json({{"op", "setup"}}));
  CHECK_FALSE(trial_request_from_json({{"op", "trial"}}));
  CHECK_FALSE(trial_request_from_json({{"op", "trial"}, {"candidate", 1}}));
  CHECK_FALSE(rematch_request_from_json({{"op", "rematch"}}));
  CHECK_FALSE(facts_request_from_json({{"op", "facts"}}));
  CHECK_FALSE(trial_reply_from_json({{"op", "trial"}, {"status", "splendid"}}));
  CHECK_FALSE(trial_reply_from_json(Json::array()));

  Json setup = to_json(Setup{});
  setup["args"] = Json::array({{{"kind", 99}}});
  CHECK_FALSE(setup_from_json(setup));
  setup["args"] = Json::array({{{"kind", 0}, {"count", -1}}});
  CHECK_FALSE(setup_from_json(setup));
  setup["args"] = Json::array({{{"kind", 0}, {"count", int64_t{1} << 60}}});
  CHECK_FALSE(setup_from_json(setup));
  setup["args"] = Json::array({{{"kind", 5}, {"name", "n"}}});  // a scalar without a value
  CHECK(setup_from_json(setup).error().find("`n`") != std::string::npos);
  setup["args"] = Json::array({{{"kind", 6}, {"name", "map"}, {"over", 0}}});
  CHECK(setup_from_json(setup).error().find("over no buffer") != std::string::npos);
  setup["args"] = Json::array();
  setup["data"] = Json::array({Json::object()});
  CHECK_FALSE(setup_from_json(setup));

  Json rematch = to_json(RematchRequest{});
  rematch["fewest_rounds"] = 0;
  CHECK_FALSE(rematch_request_from_json(rematch));
  rematch = to_json(RematchRequest{{candidate()}});
  rematch["default_index"] = 1;
  CHECK(rematch_request_from_json(rematch).error().find("none of its candidates") != std::string::npos);
  Json facts = to_json(FactsRequest{});
  facts["geometry"]["grid"] = Json::array({1, 2});
  CHECK_FALSE(facts_request_from_json(facts));
  facts["geometry"]["grid"] = Json::array({1, 2, -3});
  CHECK_FALSE(facts_request_from_json(facts));
}

TEST_CASE("the policy's text and the words of the status") {
  CHECK(Policy{}.text() == "cold-l2 auto samples=3..7 stop=15/8/5/4% lost=5% tie=1%");
  Policy other;
  other.cold_l2 = false;
  other.margins = {};
  other.tie = 0.005;
  other.method = Policy::Method::graph;
  other.check = false;
  CHECK(other.text() == "hot-l2 graph samples=3..7 stop=never tie=0.5% unchecked");
  other.fixed_ms = 125;
  CHECK(other.text() == "hot-l2 graph fixed=125ms tie=0.5% unchecked");
  CHECK(parse_policy("")->text() == Policy{}.text());
  CHECK(parse_policy("graph  hot")->text() == "hot-l2 graph samples=3..7 stop=15/8/5/4% lost=5% tie=1%");
  CHECK_FALSE(parse_policy("unchecked cold")->check);
  CHECK(parse_policy("warm").error() == "`warm` is none of cold, hot, auto, stream, graph, cupti, unchecked");
  for (const char* word : {"ok", "early_stopped", "skipped", "compile_error", "compile_timeout", "compile_crash",
                           "launch_error", "run_timeout", "run_crash", "wrong_result", "out_of_bounds"}) {
    const auto status = parse_trial_status(word);
    REQUIRE(status);
    CHECK(std::string(to_string(*status)) == word);
  }
  CHECK_FALSE(parse_trial_status("fine"));
}
