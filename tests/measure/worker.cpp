#include "worker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "gpu/driver.hpp"
#include "measure/serve.hpp"
#include "support/support.hpp"
#include "wire/frame.hpp"

namespace jitune::measure::test {
namespace {

std::vector<uint8_t> bytes_of(const void* value, size_t size) {
  std::vector<uint8_t> bytes(size);
  std::memcpy(bytes.data(), value, size);
  return bytes;
}

}  // namespace

const fake_cuda::Loaded& fake(const std::string& spec) {
  static const fake_cuda::Loaded loaded(JITUNE_BINARY_DIR "/tests/fake_cuda/libcuda.so.1");
  static const auto ready = gpu::driver();  // cuInit, so that configure holds from now on
  REQUIRE_MESSAGE(ready, (ready ? "" : ready.error()));
  loaded.configure(spec);
  return loaded;
}

Worker::Worker() {
  int request[2];
  int reply[2];
  REQUIRE(::pipe2(request, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(reply, O_CLOEXEC) == 0);
  to_ = request[1];
  from_ = reply[0];
  thread_ = std::thread([this, in = request[0], out = reply[1]] {
    exit_code_ = serve(in, out);
    ::close(in);
    ::close(out);
  });
  const auto hello = wire::read_frame(from_);
  REQUIRE(hello);
  hello_ = *hello;
}

Worker::~Worker() {
  finish();
}

int Worker::finish() {
  if (to_ >= 0) ::close(to_);
  to_ = -1;
  if (thread_.joinable()) thread_.join();
  if (from_ >= 0) ::close(from_);
  from_ = -1;
  return exit_code_;
}

Json Worker::ask(const Json& request) {
  REQUIRE(wire::write_frame(to_, {{"id", ++id_}, {"request", request}}));
  const auto answer = wire::read_frame(from_);
  REQUIRE(answer);
  REQUIRE(answer->is_object());
  CHECK(wire::get_int(*answer, "id") == id_);
  return (*answer)["reply"];
}

SetupReply Worker::setup(const Setup& setup) {
  const auto reply = setup_reply_from_json(ask(to_json(setup)));
  REQUIRE(reply);
  return *reply;
}

TrialReply Worker::trial(const Candidate& candidate, double bound_us) {
  const auto reply =
      trial_reply_from_json(ask(to_json(TrialRequest{candidate, false, true, bound_us, Policy{}.margins})));
  REQUIRE(reply);
  return *reply;
}

TrialReply Worker::reference(const Candidate& candidate) {
  const auto reply = trial_reply_from_json(
      ask(to_json(TrialRequest{candidate, true, false, std::numeric_limits<double>::infinity(), {}})));
  REQUIRE(reply);
  return *reply;
}

RematchReply Worker::rematch(std::vector<Candidate> candidates) {
  const auto reply = rematch_reply_from_json(ask(to_json(RematchRequest{std::move(candidates)})));
  REQUIRE(reply);
  return *reply;
}

space::ArgSpec floats(ArgKind kind, const char* name, int64_t count, Fill fill) {
  space::ArgSpec arg;
  arg.kind = kind;
  arg.name = name;
  arg.type = Type::float32;
  arg.element_bytes = 4;
  arg.count = count;
  arg.fill = fill;
  arg.tolerance = Tolerance::within(1e-5, 1e-6);
  return arg;
}

space::ArgSpec scalar(int value) {
  space::ArgSpec arg;
  arg.kind = ArgKind::scalar;
  arg.name = "n";
  arg.type = Type::int32;
  arg.scalar = bytes_of(&value, sizeof value);
  return arg;
}

space::ArgSpec scalar(float value) {
  space::ArgSpec arg;
  arg.kind = ArgKind::scalar;
  arg.name = "a";
  arg.type = Type::float32;
  arg.scalar = bytes_of(&value, sizeof value);
  return arg;
}

std::string mangled(const std::string& base, int number) {
  return "_Z" + std::to_string(base.size()) + base + "ILi" + std::to_string(number) + "EEvv";
}

Candidate candidate(const std::string& name, std::vector<space::ArgSpec> args) {
  Candidate made;
  made.cubin = fake_cuda::make_cubin({name}, {{"factor", 4}});
  made.lowered_name = name;
  made.geometry.block = {128, 1, 1};
  made.geometry.grid = {32, 1, 1};
  made.args = std::move(args);
  return made;
}

Setup setup_for(std::vector<space::ArgSpec> args) {
  Setup setup;
  setup.device_uuid = kUuid;
  setup.args = std::move(args);
  setup.utility_cubin = fake_cuda::utility_cubin();
  return setup;
}

std::vector<space::ArgSpec> scale_args(int count) {
  return {floats(ArgKind::out, "y", count), floats(ArgKind::in, "x", count), scalar(2.0f), scalar(count)};
}

}  // namespace jitune::measure::test
