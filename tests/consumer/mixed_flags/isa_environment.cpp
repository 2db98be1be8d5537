// SPDX-License-Identifier: MIT
/// \file
/// FOVEA_ISA caps the level of the process. Argument: the level that it names, or the message by
/// which every operator and decoder refuses its value.
#include <cstdio>
#include <fovea/attention/call/decoder_check.hpp>
#include <fovea/simd.hpp>
#include <stdexcept>
#include <string_view>

namespace {

/// Whether f throws std::invalid_argument with that message.
template <class F>
bool is_refused(F&& f, std::string_view message) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    std::printf("%s\n", error.what());
    return error.what() == message;
  }
  return false;
}

}  // namespace

int main(int, char** arguments) {
  using fovea::IsaLevel;
  const std::string_view named = arguments[1];
  if (named.size() > 8) {
    const auto level = [] { static_cast<void>(fovea::isa_level()); };
    const auto call = [] { fovea::check_inputs("Op", fovea::SoftmaxInputs<float>{}); };
    const auto decoder = [] {
      fovea::check_decoder_shape("Op", {}, fovea::CausalAlignment::bottom_right);
    };
    const bool all = is_refused(level, named) && is_refused(level, named) &&
                     is_refused(call, named) && is_refused(decoder, named);
    return all ? 0 : 1;
  }
  const IsaLevel cap = named == "v4_bf16" ? IsaLevel::v4_bf16
                       : named == "v4"    ? IsaLevel::v4
                       : named == "v3"    ? IsaLevel::v3
                                          : IsaLevel::baseline;
  const IsaLevel highest = fovea::highest_isa_level();
  std::printf("%s of %s\n", fovea::name(fovea::isa_level()), fovea::name(highest));
  return fovea::isa_level() == (cap < highest ? cap : highest) ? 0 : 1;
}
