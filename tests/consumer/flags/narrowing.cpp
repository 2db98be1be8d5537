// SPDX-License-Identifier: MIT
/// \file
/// A change of sign that the user asked to be told of, after the headers.
#include <fovea/fovea.hpp>

unsigned narrowed(int x) { return x; }
