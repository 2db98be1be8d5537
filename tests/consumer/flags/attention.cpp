// SPDX-License-Identifier: MIT
/// \file
/// The operators, without Eigen's tensors.
#include <fovea/attention.hpp>
