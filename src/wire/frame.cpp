#include "wire/frame.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace jitune::wire {
namespace {

constexpr uint64_t kMaxItems =
    1u << 22;  // a value takes 16 bytes or more once decoded: bounds memory by a small factor

// What our messages never hold: indefinite lengths and tags. Refusing them keeps the scanner honest and small.
enum CborMajor : uint8_t { kUnsigned, kNegative, kBytes, kText, kArray, kMap, kTag, kSimple };

/// Walks over CBOR without building anything and without recursion: depth, lengths and the kinds of map names.
class Scanner {
 public:
  explicit Scanner(std::string_view payload) : rest_(payload) {}

  /// Says what is wrong, or nothing.
  std::string check() {
    if (rest_.empty() || static_cast<uint8_t>(rest_[0]) >> 5 != kMap) return "the message is not a map";
    if (std::string wrong = item(); !wrong.empty()) return wrong;
    while (depth_ > 0) {
      Level& level = levels_[depth_ - 1];
      if (level.left == 0) {
        --depth_;
        continue;
      }
      const bool name = level.map && level.left % 2 == 0;
      --level.left;
      if (name && (rest_.empty() || static_cast<uint8_t>(rest_[0]) >> 5 != kText)) return "a map's name is not text";
      if (std::string wrong = item(); !wrong.empty()) return wrong;
    }
    return rest_.empty() ? "" : "bytes are left after the message";
  }

 private:
  struct Level {
    uint64_t left = 0;
    bool map = false;
  };

  std::string item() {
    if (rest_.empty()) return "it ends in the middle of a value";
    if (++items_ > kMaxItems) return "it holds too many values";
    const auto first = static_cast<uint8_t>(rest_[0]);
    const uint8_t major = first >> 5, info = first & 31;
    rest_.remove_prefix(1);
    uint64_t number = info;
    if (info >= 24) {
      if (info > 27) return "it uses CBOR's indefinite lengths or reserved codes";
      const size_t width = size_t{1} << (info - 24);
      if (rest_.size() < width) return "it ends in the middle of a number";
      number = 0;
      for (size_t i = 0; i < width; ++i) number = number << 8 | static_cast<uint8_t>(rest_[i]);
      rest_.remove_prefix(width);
    }
    switch (major) {
      case kBytes:
      case kText:
        if (number > rest_.size()) return "a string is longer than the message";
        rest_.remove_prefix(static_cast<size_t>(number));
        return "";
      case kArray:
      case kMap:
        if (number > rest_.size()) return "a list is longer than the message";
        if (depth_ == levels_.size()) return "it is nested deeper than " + std::to_string(kMaxDepth);
        levels_[depth_++] = {major == kMap ? 2 * number : number, major == kMap};
        return "";
      case kTag:
        return "it uses CBOR tags";
      default:
        return "";
    }
  }

  std::string_view rest_;
  std::array<Level, kMaxDepth> levels_{};
  size_t depth_ = 0;
  uint64_t items_ = 0;
};

std::string to_hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (!out.empty()) out += ' ';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

bool wait_ready(int fd, short events) {
  pollfd one{fd, events, 0};
  return ::poll(&one, 1, -1) >= 0 || errno == EINTR;
}

/// Reads exactly `size` bytes; the number read is smaller only at the end of file.
Result<size_t> read_all(int fd, char* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd, to + done, size - done);
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (errno == EAGAIN ? !wait_ready(fd, POLLIN) : errno != EINTR) {
      return Failure{std::string("cannot read a message: ") + std::strerror(errno)};
    }
  }
  return done;
}

const Json* find(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto at = json.find(name);
  return at == json.end() ? nullptr : &*at;
}

}  // namespace

std::string encode(const Json& message) {
  std::string frame(kHeaderBytes, '\0');
  Json::to_cbor(message, frame);
  const uint64_t length = frame.size() - kHeaderBytes;
  std::memcpy(frame.data(), kMagic, 4);
  for (size_t i = 0; i < 4; ++i) frame[4 + i] = static_cast<char>(static_cast<uint8_t>(length >> (8 * i)));
  return frame;
}

Result<uint32_t> payload_bytes(std::string_view header) {
  if (header.size() < kHeaderBytes || header.substr(0, 4) != kMagic)
    return Failure{"not a jitune message; it begins with the bytes " + to_hex(header.substr(0, 64)) +
                   ". Did something print to the descriptor of the protocol?"};
  uint32_t length = 0;
  for (size_t i = 4; i-- > 0;) length = length << 8 | static_cast<uint8_t>(header[4 + i]);
  if (length > kMaxPayloadBytes)
    return Failure{"a message of " + std::to_string(length) + " bytes is over the cap of " +
                   std::to_string(kMaxPayloadBytes) + "; it begins with the bytes " + to_hex(header.substr(0, 64)) +
                   ". Did something print to the descriptor of the protocol?"};
  return length;
}

Result<Json> decode(std::string_view payload) {
  const std::string wrong = Scanner(payload).check();
  if (!wrong.empty())
    return Failure{"a broken message (" + wrong + "); it begins with the bytes " + to_hex(payload.substr(0, 64))};
  Json message = Json::from_cbor(payload.begin(), payload.end(), true, false);
  if (!message.is_object())
    return Failure{"a broken message (not CBOR); it begins with the bytes " + to_hex(payload.substr(0, 64))};
  return message;
}

Result<Json> read_frame(int fd) {
  char header[kHeaderBytes];
  const auto got = read_all(fd, header, sizeof header);
  if (!got) return got.failure();
  if (*got == 0) return Json();
  const auto length = payload_bytes({header, *got});
  if (!length) return length.failure();
  std::string payload(*length, '\0');
  const auto body = read_all(fd, payload.data(), payload.size());
  if (!body) return body.failure();
  if (*body < payload.size())
    return Failure{"a message ended after " + std::to_string(*body) + " of " + std::to_string(payload.size()) +
                   " bytes"};
  return decode(payload);
}

Result<void> write_frame(int fd, const Json& message) {
  const std::string frame = encode(message);
  if (frame.size() - kHeaderBytes > kMaxPayloadBytes)
    return Failure{"a message of " + std::to_string(frame.size()) + " bytes is over the cap of " +
                   std::to_string(kMaxPayloadBytes)};
  size_t done = 0;
  while (done < frame.size()) {
    const ssize_t put = ::write(fd, frame.data() + done, frame.size() - done);
    if (put >= 0) {
      done += static_cast<size_t>(put);
    } else if (errno == EAGAIN ? !wait_ready(fd, POLLOUT) : errno != EINTR) {
      return Failure{std::string("cannot send a message: ") + std::strerror(errno)};
    }
  }
  return {};
}

int64_t get_int(const Json& json, const char* name, int64_t fallback) {
  const Json* value = find(json, name);
  return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : fallback;
}

double get_double(const Json& json, const char* name, double fallback) {
  const Json* value = find(json, name);
  return value != nullptr && value->is_number() ? value->get<double>() : fallback;
}

bool get_bool(const Json& json, const char* name, bool fallback) {
  const Json* value = find(json, name);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
}

std::string get_string(const Json& json, const char* name, std::string fallback) {
  const Json* value = find(json, name);
  return value != nullptr && value->is_string() ? value->get_ref<const std::string&>() : std::move(fallback);
}

std::string get_bytes(const Json& json, const char* name) {
  const Json* value = find(json, name);
  if (value == nullptr || !value->is_binary()) return "";
  const auto& bytes = value->get_binary();
  return {bytes.begin(), bytes.end()};
}

Json to_binary(std::string_view bytes) {
  return Json::binary(std::vector<uint8_t>(bytes.begin(), bytes.end()));
}

}  // namespace jitune::wire
