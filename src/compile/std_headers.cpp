#include "compile/std_headers.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace jitune::compile {
namespace {

bool offered(const std::vector<std::string>& dirs, const std::string& name) {
  return std::any_of(dirs.begin(), dirs.end(),
                     [&](const std::string& dir) { return ::access((dir + "/" + name).c_str(), R_OK) == 0; });
}

// Standard headers whose counterpart in <cuda/std/...> has the same name.
constexpr std::string_view kSameName[] = {
    "array",    "atomic",  "bit",     "bitset",   "cassert", "cfloat",     "climits",          "cmath",    "complex",
    "concepts", "cstddef", "cstdint", "cstdlib",  "cstring", "functional", "initializer_list", "iterator", "limits",
    "memory",   "numbers", "numeric", "optional", "span",    "tuple",      "type_traits",      "utility",  "variant"};

struct Renamed {
  std::string_view name, counterpart;
};
constexpr Renamed kCNames[] = {{"assert.h", "cassert"}, {"float.h", "cfloat"},   {"limits.h", "climits"},
                               {"math.h", "cmath"},     {"stddef.h", "cstddef"}, {"stdint.h", "cstdint"},
                               {"stdlib.h", "cstdlib"}, {"string.h", "cstring"}};

std::string stand_in(const std::string& target) {
  // The empty namespace is declared too because CCCL itself includes some of these names half-way through its headers.
  return "#pragma once\n#include <" + target +
         ">\nnamespace cuda { namespace std {} }\nnamespace std { using namespace cuda::std; }\n";
}

// NVRTC knows printf by itself.
constexpr std::string_view kEmpty[] = {"cstdio", "stdio.h"};

}  // namespace

std::vector<MemoryHeader> std_headers(const std::vector<std::string>& author_dirs,
                                      const std::vector<std::string>& toolkit_dirs, bool light) {
  std::vector<MemoryHeader> headers;
  if (light && !offered(author_dirs, "type_traits")) headers.push_back({"type_traits", kLightTypeTraits});
  const auto add = [&](std::string_view name, std::string_view counterpart) {
    const std::string target = "cuda/std/" + std::string(counterpart);
    if (offered(author_dirs, std::string(name)) || !offered(toolkit_dirs, target)) return;
    headers.push_back({std::string(name), stand_in(target)});
  };
  for (const std::string_view name : kSameName)
    if (!light || name != "type_traits") add(name, name);
  for (const Renamed& one : kCNames) add(one.name, one.counterpart);
  for (const std::string_view name : kEmpty)
    if (!offered(author_dirs, std::string(name))) headers.push_back({std::string(name), "#pragma once\n"});
  return headers;
}

}  // namespace jitune::compile
