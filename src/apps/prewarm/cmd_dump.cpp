#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {
namespace {

std::string quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// nvdisasm of the toolkit that the environment names, of the usual place, or of PATH; "" when there is none.
std::string find_disassembler() {
  std::vector<std::string> directories;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* toolkit = std::getenv(variable); toolkit != nullptr && *toolkit != '\0')
      directories.push_back(std::string(toolkit) + "/bin");
  directories.emplace_back("/usr/local/cuda/bin");
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) directories.push_back(rest.substr(0, end));
    rest.erase(0, end + 1);
  }
  for (const std::string& directory : directories)
    if (const std::string file = directory + "/nvdisasm"; ::access(file.c_str(), X_OK) == 0) return file;
  return "";
}

std::optional<std::string> disassemble(const std::string& tool, const std::string& cubin) {
  std::FILE* pipe = ::popen((quoted(tool) + " --print-code " + quoted(cubin) + " 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::vector<char> chunk(1 << 16);
  for (size_t got = 0; (got = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) text.append(chunk.data(), got);
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text.empty()) return std::nullopt;
  return text;
}

/// Files of one dump, in one directory.
class Dump {
 public:
  explicit Dump(const std::string& directory) : directory_(directory) {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) throw Stop(Exit::usage, "cannot make the directory " + directory_ + ": " + error.message());
  }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = directory_ + "/" + name;
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) throw Stop(Exit::usage, "cannot write " + path);
    return path;
  }

 private:
  std::string directory_;
};

/// `rmsnorm` of `_Z7rmsnormI6__halfEvPT_`: what a profiler filters by.
std::string base_name(const std::string& lowered) {
  if (!lowered.starts_with("_Z")) return lowered;
  size_t at = 2, length = 0;
  while (at < lowered.size() && lowered[at] >= '0' && lowered[at] <= '9')
    length = 10 * length + static_cast<size_t>(lowered[at++] - '0');
  return length > 0 && at + length <= lowered.size() ? lowered.substr(at, length) : lowered;
}

}  // namespace

Exit run_dump(Session& session) {
  const std::unique_ptr<store::Store> store = session.open_store();
  const store::KeyRow row = find_key(*store, session.options().key);
  const std::string directory =
      session.options().output.empty() ? "jitune-" + row.key.sha256.substr(0, 12) : session.options().output;
  Json json{{"key", row.key.sha256}, {"directory", directory}};
  std::string text;
  Dump dump(directory);
  const std::string source = must(store->source_of(row.key.source_sha256));
  if (source.empty()) {
    text += "source     not kept (it is not UTF-8, or was imported without)\n";
  } else {
    json["source"] = dump.write("kernel.cu", source);
    text += "source     " + directory + "/kernel.cu\n";
  }
  std::optional<store::ArtifactRow> artifact;
  if (row.winner && row.winner->artifact) artifact = must(store->find_artifact(row.winner->artifact->build_sha256));
  if (!artifact || artifact->cubin.empty()) {
    text +=
        "cubin      none is stored: " + std::string(row.winner ? "the next launch compiles it" : "there is no winner") +
        "\n";
  } else {
    const std::string cubin = dump.write("winner.cubin", artifact->cubin);
    json["cubin"] = cubin;
    text += "cubin      " + cubin + "  (" + bytes_text(static_cast<int64_t>(artifact->cubin.size())) + ", " +
            artifact->lowered_name + ")\n";
    const std::string tool = find_disassembler();
    const std::optional<std::string> sass = tool.empty() ? std::nullopt : disassemble(tool, cubin);
    if (sass) {
      json["sass"] = dump.write("winner.sass", *sass);
      text += "SASS       " + directory + "/winner.sass\n";
    } else {
      text += tool.empty() ? "SASS       no nvdisasm in CUDA_HOME/bin or PATH\n"
                           : "SASS       " + tool + " could not read the cubin\n";
    }
    const std::string profile = "ncu --target-processes all --set full --kernel-name " +
                                base_name(artifact->lowered_name) + " --launch-count 1 PROGRAM";
    json["profile"] = profile;
    text +=
        "profile    " + profile + "\n           where PROGRAM launches the kernel with this database on track lookup\n";
  }
  if (row.winner) text += "config     " + row.winner->config + "\n";
  print(session.options().json ? document(json) : text);
  return Exit::ok;
}

}  // namespace jitune::prewarm
