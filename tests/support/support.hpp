#pragma once

#include <doctest/doctest.h>

#include <string>

namespace jitune::test {

/// Makes an empty directory of its own; removed at the end, but kept and named when a REQUIRE failed or JITUNE_KEEP is
/// set.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Reports that the running test case can't run here, with the reason. Under JITUNE_REQUIRE=`what` (a comma-separated
/// list of gpu, nvrtc, replay, formats) it is a failure instead. Return from the test case after it.
void skip(const std::string& what, const std::string& reason);

/// Writes a file, making its directories. Throws on failure.
void write_file(const std::string& path, const std::string& text);

/// Sets or unsets (null) an environment variable until the end of the scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value);
  ~ScopedEnv();
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  std::string name_, old_;
  bool had_ = false;
};

/// What a program did.
struct ProgramResult {
  int exit_code = -1;  ///< 128 + signal when it was killed
  std::string out, err;
};

/// Runs a program through /bin/sh -c with a bound of `limit_s` seconds and collects what it printed.
ProgramResult run_program(const std::string& command, int limit_s = 120);

}  // namespace jitune::test
