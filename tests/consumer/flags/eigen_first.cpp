// SPDX-License-Identifier: MIT
/// \file
/// Eigen with its thread pool before the headers, and Eigen's other modules after them.
#define EIGEN_USE_THREADS
#include <unsupported/Eigen/CXX11/Tensor>
//
#include <fovea/fovea.hpp>
//
#include <Eigen/Dense>

int main() { return fovea::LocalAttention::name() == nullptr ? 1 : 0; }
