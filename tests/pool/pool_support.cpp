#include "pool/pool_support.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.hpp"

namespace jitune::test {

pool::PoolOptions fake_pool(int width, std::vector<std::string> modes) {
  pool::PoolOptions options;
  options.program.path = std::filesystem::absolute(JITUNE_BINARY_DIR "/bin/jitune-fake-worker").string();
  options.program.args = {"compile"};
  options.program.args.insert(options.program.args.end(), modes.begin(), modes.end());
  options.program.environment = pool::worker_environment(false);
  options.width = width;
  options.backoff = 5ms;
  return options;
}

Json fake(const std::string& word, int64_t number) {
  return {{"fake", word}, {"number", number}};
}

bool wait_until(const std::function<bool()>& done, int limit_ms) {
  const auto start = Clock::now();
  while (!done()) {
    if (ms_since(start) > limit_ms) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

namespace {

/// State letter and parent of a process; '?' when there is none.
std::pair<char, int> state_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return {'?', 0};
  char state = '?';
  int parent = 0;
  std::istringstream(text.substr(close + 1)) >> state >> parent;
  return {state, parent};
}

}  // namespace

bool exists(int64_t pid) {
  const char state = state_of(std::to_string(pid)).first;
  return state != '?' && state != 'Z';  // a dead orphan may wait for a lazy init
}

int zombies() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto [state, parent] = state_of(name);
    if (state == 'Z' && parent == ::getpid()) ++count;
  }
  return count;
}

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

int processes_tagged(const std::string& tag) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string arguments = content("/proc/" + pid + "/cmdline");
    if (arguments.find("tag=" + tag + '\0') != std::string::npos && exists(std::stoll(pid))) ++count;
  }
  return count;
}

int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

}  // namespace jitune::test
