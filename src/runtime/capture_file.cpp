#include "runtime/capture_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"
#include "runtime/caller_data.hpp"

namespace jitune::runtime {
namespace {

constexpr int kFormat = 1;
constexpr size_t kKeyDigits = 12;

std::string hex(const uint8_t* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

/// A kernel's name as part of a file's name.
std::string file_word(std::string name) {
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '_' && letter != '-') letter = '_';
  return name;
}

struct Input {
  const space::ArgSpec* arg;
  CUdeviceptr address;
};

}  // namespace

std::string capture_directory(const std::string& database) {
  if (!database.empty()) return database + ".captures";
  std::error_code ignored;
  auto directory = std::filesystem::temp_directory_path(ignored);
  if (directory.empty()) directory = "/tmp";
  return directory / ("jitune-captures-" + std::to_string(::getuid()));
}

Result<std::string> write_capture(const gpu::Driver& driver, CUstream stream, const std::string& directory,
                                  const std::string& definition, const space::Instance& instance,
                                  const key::TuningKey& key, std::span<const void* const> arguments,
                                  int64_t most_bytes) {
  const std::string stem = file_word(instance.model().name()) + "-" + key.sha256.substr(0, kKeyDigits);
  const std::string path = directory + "/" + stem + ".json";
  if (::access(path.c_str(), F_OK) == 0) return std::string();
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return Failure{"cannot make the directory '" + directory + "': " + std::strerror(errno)};
  auto config = instance.default_config();
  if (!config) return config.failure();
  auto args = instance.args(*config, {1, 0, 0, 1});
  if (!args) return args.failure();
  if (auto checked = check_buffers(driver, *args, arguments); !checked) return checked.failure();

  Json scalars = Json::object(), inputs = Json::object();
  std::vector<Input> wanted;
  int64_t bytes = 0;
  size_t caller = 0;
  for (const auto& arg : *args) {
    if (!is_from_caller(arg)) continue;
    const void* argument = arguments[caller++];
    if (arg.kind == ArgKind::scalar)
      scalars[arg.name] = hex(static_cast<const uint8_t*>(argument), static_cast<size_t>(arg.element_bytes));
    if ((arg.kind != ArgKind::in && arg.kind != ArgKind::inout) || arg.bytes() == 0) continue;
    CUdeviceptr address = 0;
    std::memcpy(&address, argument, sizeof address);
    wanted.push_back({&arg, address});
    bytes += arg.bytes();
  }
  const bool with_contents = bytes <= most_bytes;
  if (with_contents) {
    if (const CUresult code = driver.cuStreamSynchronize(stream); code != CUDA_SUCCESS)
      return Failure{driver.describe("waiting for the stream before a capture", code)};
    for (const Input& input : wanted) {
      std::string contents(static_cast<size_t>(input.arg->bytes()), '\0');
      if (const CUresult code = driver.cuMemcpyDtoH(contents.data(), input.address, contents.size());
          code != CUDA_SUCCESS)
        return Failure{driver.describe("copying arg '" + input.arg->name + "'", code)};
      const std::string name = stem + "." + file_word(input.arg->name) + ".bin";
      if (auto written = write_file_atomically(directory + "/" + name, contents); !written) return written.failure();
      inputs[input.arg->name] = {{"file", name}, {"bytes", input.arg->bytes()}};
    }
  }
  const Json json{{"jitune_capture", kFormat},
                  {"kernel", instance.model().name()},
                  {"problem", Json::parse(space::canonical(instance.problem()))},
                  {"device", instance.device().name},
                  {"scalars", std::move(scalars)},
                  {"inputs", std::move(inputs)},
                  {"input_bytes", bytes},
                  {"definition", Json::parse(definition)}};
  // Last: who finds it finds the inputs too.
  if (auto written = write_file_atomically(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
      !written)
    return written.failure();
  return path;
}

}  // namespace jitune::runtime
