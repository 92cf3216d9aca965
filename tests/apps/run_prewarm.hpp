#pragma once

#include <string>

#include "support/support.hpp"

namespace jitune::test {

/// Runs jit-prewarm with `arguments` (shell words) in `home`, which is also where its default database would be. What
/// the surroundings say of jitune is hidden, but for JITUNE_NVRTC and where CUDA is. `prefix` goes before the program:
/// more variables, or a tracer.
ProgramResult prewarm(const std::string& home, const std::string& arguments, const std::string& prefix = {},
                      int limit_s = 120);

/// Makes every GPU invisible, for `prefix`.
inline const std::string kNoGpu = "CUDA_VISIBLE_DEVICES=";

/// Whether there is an NVRTC to compile with; otherwise reports that the test case is skipped.
bool has_nvrtc();

bool contains(const std::string& text, const std::string& part);

/// What `sqlite3 DATABASE QUERY` prints, without the last line end.
std::string query(const std::string& database, const std::string& query);

bool exists(const std::string& path);

/// Content of a file; "" when it can't be read.
std::string content(const std::string& path);

/// Writes scale.toml and scale.cu into `home`: a kernel with problem values T and n, params BLOCK, VEC and UNROLL.
void write_scale_kernel(const std::string& home);

}  // namespace jitune::test
