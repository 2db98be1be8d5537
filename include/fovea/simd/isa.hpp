// SPDX-License-Identifier: MIT
/// \file
/// Instruction-set levels: the machine's and the one in use.
#pragma once

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "fovea/core/config.hpp"
#include "fovea/core/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

FOVEA_NAMESPACE_BEGIN

/// baseline: what the translation unit's flags allow (SSE2 on x86-64, NEON on AArch64).
/// v3: AVX2 + FMA + F16C. v4: AVX-512 F, BW, DQ, VL, CD. v4_bf16: v4 with AVX512-BF16, whose dot
/// products round differently, so it is used only on request. It differs from v4 in softmax
/// attention of bfloat16 tensors over patterns alone: there, weights are rounded to bfloat16 before
/// they are multiplied by values, subnormal numbers are taken as 0, and products of queries and
/// keys must be within the range of float before they are scaled.
enum class IsaLevel { baseline = 1, v3 = 3, v4 = 4, v4_bf16 = 5 };

// FOVEA_LEVELS(f, ...): f(name, ...) for each level above the baseline, from the lowest up, that
// all kernels are compiled for. FOVEA_ALL_LEVELS: for v4_bf16, too.
#define FOVEA_LEVELS(f, ...) f(v3, __VA_ARGS__) f(v4, __VA_ARGS__)
#define FOVEA_ALL_LEVELS(f, ...) FOVEA_LEVELS(f, __VA_ARGS__) f(v4_bf16, __VA_ARGS__)

/// The level of this translation unit's own flags, the lowest that it contains.
inline constexpr auto kUnitIsaLevel = static_cast<IsaLevel>(FOVEA_UNIT_LEVEL);

/// "baseline", "v3", "v4" or "v4_bf16".
constexpr const char* name(IsaLevel level) {
#define FOVEA_NAMED(name_, level) \
  if ((level) == IsaLevel::name_) return #name_;
  FOVEA_ALL_LEVELS(FOVEA_NAMED, level)
#undef FOVEA_NAMED
  return "baseline";
}

namespace detail {

#if defined(__x86_64__)
/// By cpuid: Clang 14's `__builtin_cpu_supports` does not know F16C.
inline bool machine_has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

inline IsaLevel machine_isa_level() {
  IsaLevel highest = kUnitIsaLevel;
#if FOVEA_COMPILES_LEVELS
  __builtin_cpu_init();
  [[maybe_unused]] bool has_lower = true;
#define FOVEA_EACH_LEVEL "fovea/simd/levels/detected.inl.hpp"
#include "fovea/simd/each_level.inl.hpp"
#define FOVEA_EACH_LEVEL "fovea/simd/levels/detected.inl.hpp"
#include "fovea/simd/levels/v4_bf16.inl.hpp"
#endif
  return highest;
}

/// \throws std::invalid_argument if the name is invalid
inline IsaLevel environment_isa_cap() {
  const char* text = std::getenv("FOVEA_ISA");
  const std::string_view cap = text == nullptr ? "" : text;
  if (cap.empty()) return IsaLevel::v4;
#define FOVEA_CAPPED(name_, cap) \
  if ((cap) == #name_) return IsaLevel::name_;
  FOVEA_ALL_LEVELS(FOVEA_CAPPED, cap)
#undef FOVEA_CAPPED
  if (cap == "baseline") return IsaLevel::baseline;
  refuse("fovea", "the environment variable FOVEA_ISA", cap, "baseline, v3, v4 or v4_bf16");
}

constexpr IsaLevel lower(IsaLevel a, IsaLevel b) { return a < b ? a : b; }

/// The level of kernels that v4_bf16 does not change.
constexpr IsaLevel common_level(IsaLevel level) { return lower(level, IsaLevel::v4); }

/// The cap from the environment, until another is stored. Throws if the former is invalid.
inline std::atomic<IsaLevel>& isa_cap() {
  static std::atomic<IsaLevel> cap{environment_isa_cap()};
  return cap;
}

}  // namespace detail

/// The highest level that this machine supports and this translation unit contains.
[[nodiscard]] inline IsaLevel highest_isa_level() {
  static const IsaLevel level = detail::machine_isa_level();
  return level < kUnitIsaLevel ? kUnitIsaLevel : level;
}

/// The level in use: the highest one, capped by the environment variable FOVEA_ISA
/// (baseline, v3, v4, v4_bf16; by default v4) or by `cap_isa_level`, and never below the unit's own
/// flags.
/// \throws std::invalid_argument for other values of FOVEA_ISA (operators: before writing)
[[nodiscard]] inline IsaLevel isa_level() {
  const IsaLevel level =
      detail::lower(highest_isa_level(), detail::isa_cap().load(std::memory_order_relaxed));
  return level < kUnitIsaLevel ? kUnitIsaLevel : level;
}

/// Caps the level for the whole process, as FOVEA_ISA does. Returns the level now in use.
inline IsaLevel cap_isa_level(IsaLevel cap) {
  detail::isa_cap().store(cap, std::memory_order_relaxed);
  return isa_level();
}

FOVEA_NAMESPACE_END
