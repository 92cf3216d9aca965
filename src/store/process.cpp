#include "store/process.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <random>
#include <sstream>

namespace jitune::store {
namespace {

struct Stat {
  bool found = false;
  char state = '?';
  int64_t start = 0;
};

Stat read_stat(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(file, line)) return {};
  // Field 2 is the program's name in parentheses and may hold anything, parentheses included.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  Stat stat;
  stat.found = static_cast<bool>(fields >> stat.state);
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return stat;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

ProcessId this_process() {
  ProcessId process;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) process.host = name.data();
  process.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) == 0) process.pid_namespace = static_cast<int64_t>(info.st_ino);
  process.pid = ::getpid();
  process.start = read_stat("self").start;
  return process;
}

Liveness liveness(const ProcessId& process, const ProcessId& here) {
  if (process.host != here.host || process.boot_id != here.boot_id || process.boot_id.empty() ||
      process.pid_namespace != here.pid_namespace || here.start == 0)
    return Liveness::unknown;
  const Stat stat = read_stat(std::to_string(process.pid));
  // A zombie is dead: its parent, who may be the very program that asks, has only not collected it yet.
  if (!stat.found || stat.state == 'Z' || stat.state == 'X' || stat.start != process.start) return Liveness::dead;
  return Liveness::alive;
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::random_device device;
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(device());
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

}  // namespace jitune::store
