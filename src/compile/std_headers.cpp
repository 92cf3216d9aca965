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

// Where the toolkit's <cuda/std/...> has none: that of 12.9 lacks these two, that of 13.0 has them.
constexpr std::string_view kOwnString =
    "#pragma once\nnamespace std { using size_t = decltype(sizeof(0)); using ::memcpy; using ::memset; }\n";
constexpr std::string_view kOwnNumbers =
    R"cpp(#pragma once
          namespace std {
          namespace numbers {
          template <class T>
          inline constexpr T e_v = T(2.718281828459045235360287471352662498L);
          template <class T>
          inline constexpr T log2e_v = T(1.442695040888963407359924681001892137L);
          template <class T>
          inline constexpr T log10e_v = T(0.434294481903251827651128918916605082L);
          template <class T>
          inline constexpr T pi_v = T(3.141592653589793238462643383279502884L);
          template <class T>
          inline constexpr T inv_pi_v = T(0.318309886183790671537767526745028724L);
          template <class T>
          inline constexpr T inv_sqrtpi_v = T(0.564189583547756286948079451560772586L);
          template <class T>
          inline constexpr T ln2_v = T(0.693147180559945309417232121458176568L);
          template <class T>
          inline constexpr T ln10_v = T(2.302585092994045684017991454684364208L);
          template <class T>
          inline constexpr T sqrt2_v = T(1.414213562373095048801688724209698079L);
          template <class T>
          inline constexpr T sqrt3_v = T(1.732050807568877293527446341505872367L);
          template <class T>
          inline constexpr T inv_sqrt3_v = T(0.577350269189625764509148780501957456L);
          template <class T>
          inline constexpr T egamma_v = T(0.577215664901532860606512090082402431L);
          template <class T>
          inline constexpr T phi_v = T(1.618033988749894848204586834365638118L);
          inline constexpr double e = e_v<double>, log2e = log2e_v<double>, log10e = log10e_v<double>,
                                  pi = pi_v<double>, inv_pi = inv_pi_v<double>, inv_sqrtpi = inv_sqrtpi_v<double>,
                                  ln2 = ln2_v<double>, ln10 = ln10_v<double>, sqrt2 = sqrt2_v<double>,
                                  sqrt3 = sqrt3_v<double>, inv_sqrt3 = inv_sqrt3_v<double>, egamma = egamma_v<double>,
                                  phi = phi_v<double>;
          }  // namespace numbers
          }  // namespace std
    )cpp";
struct Own {
  std::string_view counterpart, text;
};
constexpr Own kOwn[] = {{"cstring", kOwnString}, {"numbers", kOwnNumbers}};

// NVRTC knows printf by itself.
constexpr std::string_view kEmpty[] = {"cstdio", "stdio.h"};

}  // namespace

std::vector<MemoryHeader> std_headers(const std::vector<std::string>& author_dirs,
                                      const std::vector<std::string>& toolkit_dirs, bool light) {
  std::vector<MemoryHeader> headers;
  if (light && !offered(author_dirs, "type_traits")) headers.push_back({"type_traits", kLightTypeTraits});
  const auto add = [&](std::string_view name, std::string_view counterpart) {
    const std::string target = "cuda/std/" + std::string(counterpart);
    if (offered(author_dirs, std::string(name))) return;
    if (!offered(toolkit_dirs, target)) {
      for (const Own& own : kOwn)
        if (own.counterpart == counterpart) headers.push_back({std::string(name), std::string(own.text)});
      return;
    }
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
