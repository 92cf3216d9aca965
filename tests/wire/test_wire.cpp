#include <fcntl.h>
#include <unistd.h>

#include <limits>
#include <random>
#include <thread>

#include "support/support.hpp"
#include "wire/frame.hpp"
#include "wire/frame_buffer.hpp"

using namespace jitune;

namespace {

std::string payload_of(const Json& message) {
  return wire::encode(message).substr(wire::kHeaderBytes);
}

std::string bytes(std::initializer_list<int> list) {
  std::string out;
  for (const int one : list) out += static_cast<char>(one);
  return out;
}

/// A pipe whose write end may be closed early.
struct Pipe {
  int fds[2] = {-1, -1};
  Pipe() { REQUIRE(::pipe(fds) == 0); }
  ~Pipe() {
    ::close(fds[0]);
    close_write();
  }
  void close_write() {
    if (fds[1] >= 0) ::close(fds[1]);
    fds[1] = -1;
  }
  void put(const std::string& text) {
    REQUIRE(::write(fds[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
};

Json everything() {
  return {{"null", nullptr},
          {"yes", true},
          {"int", -5},
          {"big", std::numeric_limits<int64_t>::max()},
          {"small", std::numeric_limits<int64_t>::min()},
          {"float", 1.5},
          {"inf", std::numeric_limits<double>::infinity()},
          {"text", "a\n\xc3\xa9"},
          {"bytes", wire::to_binary(std::string("\0\xff\x80", 3))},
          {"list", {1, {2, {3}}, Json::object()}},
          {"", ""}};
}

}  // namespace

TEST_CASE("a message comes back as it was") {
  const auto back = wire::decode(payload_of(everything()));
  REQUIRE(back.ok());
  CHECK(*back == everything());
  const std::string raw("\xff\xfe not UTF-8 \0 and a NUL", 24);  // sources may be anything
  CHECK(wire::get_string(*wire::decode(payload_of({{"s", raw}})), "s") == raw);
}

TEST_CASE("a frame is magic, little-endian length, payload") {
  const std::string frame = wire::encode({{"a", 1}});
  CHECK(frame == "JTF1" + bytes({4, 0, 0, 0, 0xa1, 0x61, 'a', 0x01}));
  CHECK(*wire::payload_bytes(frame) == 4);
  CHECK(*wire::payload_bytes("JTF1" + bytes({0, 0, 0, 0x10})) == 0x10000000);
}

TEST_CASE("other bytes are refused with hex and a question") {
  for (const std::string& header :
       {std::string("Hello, w"), std::string("JTF2\1\0\0\0", 8), std::string("JT"), std::string()}) {
    const auto length = wire::payload_bytes(header);
    REQUIRE_FALSE(length.ok());
    CHECK(length.error().find("Did something print") != std::string::npos);
  }
  CHECK(wire::payload_bytes("Hello, w").error().find("48 65 6c 6c 6f 2c 20 77") != std::string::npos);
  const auto huge = wire::payload_bytes("JTF1" + bytes({1, 0, 0, 0x10}));
  REQUIRE_FALSE(huge.ok());
  CHECK(huge.error().find("268435457") != std::string::npos);
}

TEST_CASE("depth is capped before decoding") {
  const auto nested = [](size_t depth, char open, char inner) {
    return bytes({0xa1, 0x61, 'a'}) + std::string(depth, open) + std::string(1, inner);
  };
  CHECK(wire::decode(nested(wire::kMaxDepth - 1, '\x81', '\x01')).ok());
  for (const size_t depth : {size_t{wire::kMaxDepth}, size_t{1000}, size_t{50'000'000}}) {
    const auto result = wire::decode(nested(depth, '\x81', '\x01'));
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().find("nested deeper") != std::string::npos);
  }
}

TEST_CASE("lengths must lie within the payload, and nothing unknown is let in") {
  for (const std::string& payload : {
           bytes({}),                                                                       // nothing
           bytes({0x80}),                                                                   // a list, not a map
           bytes({0x01}),                                                                   // a number
           bytes({0xa1}),                                                                   // ends after the map's head
           bytes({0xa1, 0x61}),                                                             // in a name
           bytes({0xa1, 0x61, 'a'}),                                                        // before a value
           bytes({0xa1, 0x01, 0x01}),                                                       // a name that is a number
           bytes({0xa1, 0x61, 'a', 0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),  // text of 2^64-1 bytes
           bytes({0xa1, 0x61, 'a', 0x5a, 0x7f, 0xff, 0xff, 0xff}),                          // bytes of 2 GiB
           bytes({0xa1, 0x61, 'a', 0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0}),                       // a list of 2^63
           bytes({0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),                   // a map of 2^64-1
           bytes({0xbf, 0xff}),                                                             // indefinite length
           bytes({0xa1, 0x61, 'a', 0x9f, 0x01, 0xff}),                                      // the same within
           bytes({0xa1, 0x61, 'a', 0xc1, 0x01}),                                            // a tag
           bytes({0xa1, 0x61, 'a', 0x1c}),                                                  // a reserved code
           bytes({0xa1, 0x61, 'a', 0x1b, 0x01}),                                            // ends within a number
           bytes({0xa1, 0x61, 'a', 0xf7}),                                                  // undefined
           bytes({0xa1, 0x61, 'a', 0x01, 0x00}),                                            // bytes left over
       }) {
    CAPTURE(payload.size());
    CHECK_FALSE(wire::decode(payload).ok());
  }
}

TEST_CASE("every truncation and every changed byte gives a message or a failure, never more") {
  const std::string payload = payload_of(everything());
  for (size_t size = 0; size < payload.size(); ++size) CHECK_FALSE(wire::decode(payload.substr(0, size)).ok());
  for (size_t at = 0; at < payload.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      std::string changed = payload;
      changed[at] = static_cast<char>(value);
      (void)wire::decode(changed).ok();
    }
}

TEST_CASE("random bytes never crash the decoder") {
  std::mt19937_64 random(20);
  for (int round = 0; round < 20000; ++round) {
    std::string payload(random() % 64, '\0');
    for (char& one : payload) one = static_cast<char>(random());
    if (!payload.empty() && round % 2 == 0) payload[0] = static_cast<char>(0xa0 + random() % 8);
    const auto result = wire::decode(payload);
    if (result.ok()) CHECK(result->is_object());
  }
}

TEST_CASE("fields are read without exceptions, and the fallback stands for another kind") {
  const Json json = {{"i", 7}, {"d", 1.5}, {"b", true}, {"s", "x"}, {"y", wire::to_binary("raw")}};
  CHECK(wire::get_int(json, "i") == 7);
  CHECK(wire::get_int(json, "d", -1) == -1);
  CHECK(wire::get_int(json, "none", -1) == -1);
  CHECK(wire::get_double(json, "d") == 1.5);
  CHECK(wire::get_double(json, "i") == 7.0);
  CHECK(wire::get_double(json, "s", 2.0) == 2.0);
  CHECK(wire::get_bool(json, "b"));
  CHECK_FALSE(wire::get_bool(json, "i"));
  CHECK(wire::get_string(json, "s") == "x");
  CHECK(wire::get_string(json, "i", "none") == "none");
  CHECK(wire::get_bytes(json, "y") == "raw");
  CHECK(wire::get_bytes(json, "s").empty());
  CHECK(wire::get_int(Json::array({1}), "i", 3) == 3);
  CHECK(wire::get_int(Json(), "i", 3) == 3);
}

TEST_CASE("frames over a pipe: whole, at the end of file, cut off, wrong") {
  {
    Pipe pipe;
    REQUIRE(wire::write_frame(pipe.fds[1], {{"a", 1}}).ok());
    REQUIRE(wire::write_frame(pipe.fds[1], {{"b", 2}}).ok());
    pipe.close_write();
    CHECK(wire::get_int(*wire::read_frame(pipe.fds[0]), "a") == 1);
    CHECK(wire::get_int(*wire::read_frame(pipe.fds[0]), "b") == 2);
    const auto end = wire::read_frame(pipe.fds[0]);
    REQUIRE(end.ok());
    CHECK(end->is_null());
  }
  const std::string frame = wire::encode(everything());
  for (size_t size = 1; size < frame.size(); ++size) {
    Pipe pipe;
    pipe.put(frame.substr(0, size));
    pipe.close_write();
    CHECK_FALSE(wire::read_frame(pipe.fds[0]).ok());
  }
  CHECK_FALSE(wire::read_frame(-1).ok());
  CHECK_FALSE(wire::write_frame(-1, {{"a", 1}}).ok());
#ifndef __SANITIZE_THREAD__  // it takes minutes over 256 MiB
  CHECK_FALSE(wire::write_frame(-1, {{"a", wire::to_binary(std::string(wire::kMaxPayloadBytes, 'x'))}}).ok());
#endif
}

TEST_CASE("a frame larger than the pipe passes, also over descriptors that do not block") {
  Pipe pipe;
  for (const int fd : pipe.fds) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  const Json big = {{"bytes", wire::to_binary(std::string(3u << 20, 'b'))}};
  std::thread writer([&] { CHECK(wire::write_frame(pipe.fds[1], big).ok()); });
  const auto back = wire::read_frame(pipe.fds[0]);
  writer.join();
  REQUIRE(back.ok());
  CHECK(*back == big);
}

TEST_CASE("a frame buffer puts messages together from any pieces") {
  const std::string stream = wire::encode({{"a", 1}}) + wire::encode(everything()) + wire::encode({{"c", 3}});
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{7}, size_t{64}, stream.size()}) {
    wire::FrameBuffer buffer;
    std::vector<Json> messages;
    for (size_t at = 0; at < stream.size(); at += piece) {
      buffer.append(std::string_view(stream).substr(at, piece));
      for (;;) {
        auto message = buffer.next();
        REQUIRE(message.ok());
        if (!message->has_value()) break;
        messages.push_back(**message);
      }
    }
    REQUIRE(messages.size() == 3);
    CHECK(wire::get_int(messages[0], "a") == 1);
    CHECK(messages[1] == everything());
    CHECK(wire::get_int(messages[2], "c") == 3);
    CHECK(buffer.pending_bytes() == 0);
  }
}

TEST_CASE("a frame buffer refuses what can't become a frame at its first wrong byte") {
  for (const char* text : {"o", "JX", "JTFx", "warning: something\n"}) {
    wire::FrameBuffer buffer;
    buffer.append(text);
    CHECK_FALSE(buffer.next().ok());
  }
  wire::FrameBuffer patient;
  patient.append("JTF");
  auto message = patient.next();
  REQUIRE(message.ok());
  CHECK_FALSE(message->has_value());
  CHECK(patient.pending_bytes() == 3);
}
