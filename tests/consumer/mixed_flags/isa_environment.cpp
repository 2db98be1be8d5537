// SPDX-License-Identifier: MIT
/// \file
/// FOVEA_ISA caps the level of the process. Argument: the level that it names.
#include <cstdio>
#include <fovea/simd.hpp>
#include <string_view>

int main(int, char** arguments) {
  using fovea::IsaLevel;
  const std::string_view named = arguments[1];
  const IsaLevel cap = named == "v4"   ? IsaLevel::v4
                       : named == "v3" ? IsaLevel::v3
                                       : IsaLevel::baseline;
  const IsaLevel highest = fovea::highest_isa_level();
  std::printf("%s of %s\n", fovea::name(fovea::isa_level()), fovea::name(highest));
  return fovea::isa_level() == (cap < highest ? cap : highest) ? 0 : 1;
}
