// SPDX-License-Identifier: MIT
/// \file
/// Runs all linked units, HOSTILE_UNITS(f), at every level and with several threads, and prints the
/// results, which hostile.py checks.
#include <cinttypes>
#include <cstdio>
#include <initializer_list>

#include "result.hpp"
#include "units.hpp"

#define HOSTILE_DECLARE(name) hostile::Result name(int level, int threads);
HOSTILE_UNITS(HOSTILE_DECLARE)

namespace {

struct Entry {
  const char* name;
  hostile::Unit run;
};

#define HOSTILE_ENTRY(name) Entry{#name, &name},
constexpr Entry kUnits[] = {HOSTILE_UNITS(HOSTILE_ENTRY)};

}  // namespace

int main() {
  for (const int level : {4, 3, 1}) {
    for (const Entry& unit : kUnits) {
      for (const int threads : {1, 2, 3}) {
        const hostile::Result result = unit.run(level, threads);
        std::printf("%s %d %d %d %016" PRIx64 " %.17g %.17g\n", unit.name, level, result.level,
                    threads, result.bits, result.sum, result.size);
      }
    }
  }
  return 0;
}
