#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/json.hpp"
#include "base/result.hpp"

namespace jitune::wire {

/// The protocol between host and worker. A frame is the 4 bytes `JTF1`, the payload's length as a little-endian uint32,
/// and the payload: one CBOR map. The version changes with the meaning of any message.
inline constexpr int kProtocolVersion = 1;
inline constexpr uint32_t kMaxPayloadBytes = 256u << 20;
inline constexpr int kMaxDepth = 16;  ///< deep nesting would overflow the decoder's stack
inline constexpr char kMagic[] = "JTF1";
inline constexpr size_t kHeaderBytes = 8;

/// `message` as a whole frame. Cubins and other bytes are Json binary values.
std::string encode(const Json& message);

/// Reads the payload's length from the first kHeaderBytes of a frame. Fails on another magic or a length over the cap;
/// the failure shows the bytes in hex and asks whether something printed to the protocol's descriptor.
Result<uint32_t> payload_bytes(std::string_view header);

/// Decodes a payload after checking its depth and that every length in it lies within it. Never throws.
Result<Json> decode(std::string_view payload);

/// Blocking helpers for the worker's side, and tests. read_frame gives a null Json at a clean end of file.
Result<Json> read_frame(int fd);
Result<void> write_frame(int fd, const Json& message);

/// Fields of messages, read without exceptions: `fallback` when absent or of another kind.
int64_t get_int(const Json& json, const char* name, int64_t fallback = 0);
double get_double(const Json& json, const char* name, double fallback = 0);
bool get_bool(const Json& json, const char* name, bool fallback = false);
std::string get_string(const Json& json, const char* name, std::string fallback = {});
std::string get_bytes(const Json& json, const char* name);  ///< a binary value's bytes
Json to_binary(std::string_view bytes);

}  // namespace jitune::wire
