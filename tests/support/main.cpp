#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "support/support.hpp"

namespace jitune::test {
namespace {

// Tests run side by side, and beside other programs: they share no compile slots unless they say so.
[[maybe_unused]] const int kNoSharedSlots = ::setenv("JITUNE_RUNTIME_DIR", "off", 0);

}  // namespace

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "jitune-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a temporary directory");
  path_ = pattern;
}

TempDir::~TempDir() {
  if (std::uncaught_exceptions() > 0 || ::getenv("JITUNE_KEEP") != nullptr) {
    std::fprintf(stderr, "[jitune] kept for inspection: %s\n", path_.c_str());
    return;
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void skip(const std::string& what, const std::string& reason) {
  const char* required = ::getenv("JITUNE_REQUIRE");
  std::stringstream list(required == nullptr ? "" : required);
  for (std::string item; std::getline(list, item, ',');)
    if (item == what) FAIL("needs " << what << " (JITUNE_REQUIRE): " << reason);
  std::printf("[jitune] skipped (%s): %s\n", what.c_str(), reason.c_str());
}

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

ScopedEnv::ScopedEnv(const char* name, const char* value) : name_(name) {
  if (const char* old = ::getenv(name); old != nullptr) {
    old_ = old;
    had_ = true;
  }
  if (value != nullptr)
    ::setenv(name, value, 1);
  else
    ::unsetenv(name);
}

ScopedEnv::~ScopedEnv() {
  if (had_)
    ::setenv(name_.c_str(), old_.c_str(), 1);
  else
    ::unsetenv(name_.c_str());
}

ProgramResult run_program(const std::string& command, int limit_s) {
  TempDir dir;
  write_file(dir / "command.sh", command + "\n");
  const std::string line = "timeout -k 5 " + std::to_string(limit_s) + " /bin/sh " + (dir / "command.sh") + " >" +
                           (dir / "out") + " 2>" + (dir / "err") + " </dev/null";
  const int status = std::system(line.c_str());
  auto slurp = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  };
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = slurp(dir / "out");
  result.err = slurp(dir / "err");
  return result;
}

}  // namespace jitune::test
