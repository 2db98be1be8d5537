// SPDX-License-Identifier: MIT
/// \file
/// What is tried before MPI is there.
#pragma once

#include <string>

namespace fovea_test {

/// What a communicator says that is made before MPI_Init.
std::string& refusal_before_init();

}  // namespace fovea_test
