// Enumerates a space of 4.4 million points with a real kernel's constraints (CLBlast's Xgemm, after Nugteren, "CLBlast:
// A Tuned OpenCL BLAS Library", 2018), and beside it by testing every point. Prints both times; exits 1 below 20x.
#include <chrono>
#include <cstdio>

#include "space/valid_set.hpp"

using namespace jitune::space;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main() {
  const Space space = plain_space(
      {{"MWG", {16, 32, 64, 128}},
       {"NWG", {16, 32, 64, 128}},
       {"KWG", {8, 16, 32, 64, 128}},
       {"MDIMC", {8, 16, 32}},
       {"NDIMC", {8, 16, 32}},
       {"MDIMA", {4, 8, 16, 32}},
       {"NDIMB", {8, 16, 32}},
       {"KWI", {2, 8}},
       {"VWM", {1, 2, 4, 8}},
       {"VWN", {1, 2, 4, 8}},
       {"STRM", {0, 1}},
       {"STRN", {0, 1}},
       {"SA", {0, 1}},
       {"SB", {0, 1}}},
      {"KWG % KWI == 0", "MWG % (MDIMC * VWM) == 0", "NWG % (NDIMC * VWN) == 0", "MWG % (MDIMA * VWM) == 0",
       "NWG % (NDIMB * VWN) == 0", "KWG % ((MDIMC * NDIMC) / MDIMA) == 0", "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
       "4 * (SA * KWG * MWG + SB * KWG * NWG) <= 49152", "MDIMC * NDIMC <= 1024"});
  auto start = std::chrono::steady_clock::now();
  const ValidSet valid(space);
  const double counted_s = seconds_since(start);
  uint64_t enumerated = 0;
  valid.diagram()->visit([&](const Point&) { return ++enumerated > 0; });
  const double enumerated_s = seconds_since(start);

  start = std::chrono::steady_clock::now();
  uint64_t tested = 0, found = 0;
  Point point(valid.params(), 0);
  const ValidSet by_test(space, {0, 0});  // no diagram: every question is answered by the constraints
  for (size_t at = 0; at < point.size();) {
    ++tested;
    found += by_test.contains(point);
    for (at = 0; at < point.size() && ++point[at] == valid.width(at); ++at) point[at] = 0;
  }
  const double tested_s = seconds_since(start);
  const double ratio = tested_s / enumerated_s;
  std::printf("points %llu, valid %llu (testing every point: %llu)\n", static_cast<unsigned long long>(tested),
              static_cast<unsigned long long>(enumerated), static_cast<unsigned long long>(found));
  std::printf("counted in %.1f ms, enumerated in %.1f ms, every point tested in %.1f ms: %.0f times as fast\n",
              1000 * counted_s, 1000 * enumerated_s, 1000 * tested_s, ratio);
  return enumerated == found && ratio >= 20 ? 0 : 1;
}
