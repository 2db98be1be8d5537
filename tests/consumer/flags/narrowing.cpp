// SPDX-License-Identifier: MIT
/// \file
/// A sign conversion after the headers, about which the user requested a warning.
#include <fovea/fovea.hpp>

unsigned narrowed(int x) { return x; }
