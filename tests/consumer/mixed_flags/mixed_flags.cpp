// SPDX-License-Identifier: MIT
/// \file
/// One program of units with different flags: each must run at the requested level, and at levels
/// v3 and v4 all must give the same bits.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "unit.hpp"
#include "units.hpp"  // FOVEA_UNITS(f): f(unit_base_O0) f(unit_base_O2) ...

#define FOVEA_DECLARE(name) int name(int, const float*, const float*, const float*, float*, float*);
FOVEA_UNITS(FOVEA_DECLARE)
#define FOVEA_ENTRY(name) mixed::Unit{#name, &name},
constexpr mixed::Unit kUnits[] = {FOVEA_UNITS(FOVEA_ENTRY)};

namespace {

/// Some numbers in [-2, 2], different for each seed.
std::vector<float> numbers(double seed) {
  std::vector<float> x(mixed::kSize);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(2 * std::sin(seed * static_cast<double>(i * i % 7919 + 1)));
  }
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

int main() {
  const std::vector<float> q = numbers(0.37), k = numbers(0.51), v = numbers(0.73);
  int failures = 0;
  std::map<int, int> runs;                    // of each level
  std::vector<float> first_full, first_band;  // of levels v3 and v4
  for (const int asked : {1, 3, 4}) {
    for (const mixed::Unit& unit : kUnits) {
      std::vector<float> full(mixed::kSize, NAN), band(mixed::kSize, NAN);
      const int level = unit.attend(asked, q.data(), k.data(), v.data(), full.data(), band.data());
      ++runs[level];
      bool right = true;
      if (level >= 3) {
        if (first_full.empty()) {
          first_full = full;
          first_band = band;
        }
        right = same_bits(full, first_full) && same_bits(band, first_band);
      }
      std::printf("%-20s asked %d, ran %d: %s\n", unit.name, asked, level,
                  right ? "ok" : "OTHER BITS");
      failures += right ? 0 : 1;
    }
  }
  for (const auto& [level, count] : runs) std::printf("level %d: %d runs\n", level, count);
  return failures == 0 ? 0 : 1;
}
