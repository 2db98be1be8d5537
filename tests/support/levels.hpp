// SPDX-License-Identifier: MIT
/// \file
/// The instruction-set levels that a test runs at.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "fovea/simd/isa.hpp"

namespace fovea_test {

using fovea::IsaLevel;

/// The level in use when the tests began: FOVEA_ISA caps the tests too.
inline IsaLevel first_isa_level() {
  static const IsaLevel level = fovea::isa_level();
  return level;
}

/// Uses a level until it is destroyed.
class AtLevel {
 public:
  explicit AtLevel(IsaLevel level) : before_(first_isa_level()) { fovea::cap_isa_level(level); }
  AtLevel(const AtLevel&) = delete;
  AtLevel& operator=(const AtLevel&) = delete;
  ~AtLevel() { fovea::cap_isa_level(before_); }

 private:
  IsaLevel before_;
};

/// Whether this machine, this build and FOVEA_ISA let a level be used.
inline bool has_level(IsaLevel level) {
  if (level > first_isa_level()) return false;
  const AtLevel at(level);
  return fovea::isa_level() == level;
}

/// Whether fma() rounds once at a level.
constexpr bool has_fma(IsaLevel level) {
#if defined(__aarch64__) || defined(__FMA__)
  static_cast<void>(level);
  return true;
#else
  return level != IsaLevel::baseline;
#endif
}

/// Calls f() once at each level there is; at the highest one alone if FOVEA_TEST_HIGHEST_LEVEL is
/// set, as it is for most tests of the default suite.
template <class F>
void at_each_level(F&& f) {
  static const bool only_highest = std::getenv("FOVEA_TEST_HIGHEST_LEVEL") != nullptr;
  const IsaLevel highest = fovea::detail::common_level(first_isa_level());
  for (const IsaLevel level : {IsaLevel::baseline, IsaLevel::v3, IsaLevel::v4}) {
    if (!has_level(level) || (only_highest && level != highest)) continue;
    const AtLevel at(level);
    SCOPED_TRACE(fovea::name(level));
    f();
  }
}

}  // namespace fovea_test
