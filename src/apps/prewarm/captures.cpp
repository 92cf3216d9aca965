#include "apps/prewarm/captures.hpp"

#include <cstring>
#include <filesystem>

#include "apps/prewarm/exit_codes.hpp"
#include "apps/prewarm/kernels.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "space/definition_json.hpp"

namespace jitune::prewarm {
namespace {

constexpr int kFormat = 1;

Result<std::vector<uint8_t>> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  auto digit = [](char letter) {
    return letter >= '0' && letter <= '9' ? letter - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
  };
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return Failure{"'" + text + "' is not hexadecimal"};
    bytes.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  if (text.size() % 2 != 0) return Failure{"'" + text + "' has half a byte"};
  return bytes;
}

Result<Work> load_capture(const std::string& path) {
  auto text = read_file(path);
  if (!text) return text.failure();
  const auto where = [&](const std::string& what) { return Failure{"the capture '" + path + "': " + what}; };
  try {
    const Json json = Json::parse(*text);
    if (json.at("jitune_capture").get<int>() != kFormat) return where("it is of another format");
    auto definition = space::parse_definition(canonical(json.at("definition")));
    if (!definition) return where(definition.error());
    auto values = space::parse_values(canonical(json.at("problem")));
    if (!values) return where(values.error());
    auto data = std::make_shared<CapturedData>();
    for (const auto& [arg, bytes] : json.at("scalars").items()) {
      auto decoded = from_hex(bytes.get<std::string>());
      if (!decoded) return where("scalar '" + arg + "': " + decoded.error());
      data->add_scalar(arg, std::move(*decoded));
    }
    const auto folder = std::filesystem::path(path).parent_path();
    for (const auto& [arg, input] : json.at("inputs").items()) {
      const auto file = folder / std::filesystem::path(input.at("file").get<std::string>()).filename();
      if (auto added = data->add_input(arg, file, input.at("bytes").get<int64_t>()); !added)
        return where(added.error());
    }
    auto model = space::Model::make(std::move(*definition));
    const std::string problem = space::short_text(*values);
    return Work{std::move(model), {*values, problem, path}, std::move(data)};
  } catch (const Json::exception& error) {
    return where(std::string("it is not what JITUNE_CAPTURE writes: ") + error.what());
  } catch (const Error& error) {
    return where(error.what());
  }
}

}  // namespace

Result<void> CapturedData::add_input(const std::string& arg, const std::string& path, int64_t bytes) {
  auto contents = read_file(path);
  if (!contents) return contents.failure();
  if (static_cast<int64_t>(contents->size()) != bytes)
    return Failure{"'" + path + "' has " + std::to_string(contents->size()) + " bytes, " + std::to_string(bytes) +
                   " were captured"};
  auto memory = SharedMemory::create(contents->size());
  if (!memory) return memory.failure();
  std::memcpy(memory->data(), contents->data(), contents->size());
  inputs_[arg] = std::move(*memory);
  return {};
}

std::vector<measure::DataSource> CapturedData::sources(const std::vector<space::ArgSpec>& args) const {
  std::vector<measure::DataSource> sources(args.size());
  for (size_t i = 0; i < args.size(); ++i)
    if (const auto input = inputs_.find(args[i].name); input != inputs_.end()) {
      sources[i].kind = measure::DataSource::Kind::shared_memory;
      sources[i].shm_name = input->second.name();
    }
  return sources;
}

std::vector<std::pair<size_t, std::vector<uint8_t>>> CapturedData::scalars(
    const std::vector<space::ArgSpec>& args) const {
  std::vector<std::pair<size_t, std::vector<uint8_t>>> scalars;
  for (size_t i = 0; i < args.size(); ++i)
    if (const auto scalar = scalars_.find(args[i].name);
        scalar != scalars_.end() && static_cast<int64_t>(scalar->second.size()) == args[i].element_bytes)
      scalars.emplace_back(i, scalar->second);
  return scalars;
}

std::vector<Work> load_captures(const Options& options) {
  std::vector<Work> work;
  for (const std::string& path : options.captures) {
    auto loaded = load_capture(path);
    if (!loaded) throw Stop(Exit::usage, loaded.error());
    work.push_back(std::move(*loaded));
  }
  return work;
}

}  // namespace jitune::prewarm
