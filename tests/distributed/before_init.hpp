// SPDX-License-Identifier: MIT
/// \file
/// Tests before MPI is initialised.
#pragma once

#include <string>

namespace fovea_test {

/// The message of a communicator that is constructed before MPI_Init.
std::string& refusal_before_init();

}  // namespace fovea_test
