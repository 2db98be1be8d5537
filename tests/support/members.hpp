// SPDX-License-Identifier: MIT
/// \file
/// Structs of call arguments whose tensors are set by their names.
#pragma once

#include <type_traits>

namespace fovea_test {

/// Calls set(name, member) for each tensor of inputs, saved tensors or gradients, and returns them.
template <class Members, class F>
Members made_of_tensors(const F& set) {
  Members made;
  made.for_each_tensor([&](const char* name, const auto& member) {
    // The visitor alone is constant, not the struct.
    set(name, const_cast<std::remove_cvref_t<decltype(member)>&>(member));
  });
  return made;
}

}  // namespace fovea_test
