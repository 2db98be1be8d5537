// SPDX-License-Identifier: MIT
/// \file
/// Every umbrella header twice, the second time in the other order, between Eigen with its thread pool
/// and Eigen's other modules.
#define EIGEN_USE_THREADS
#include <unsupported/Eigen/CXX11/Tensor>
//
#include <fovea/attention.hpp>
#include <fovea/core.hpp>
#include <fovea/core/eigen.hpp>
#include <fovea/fovea.hpp>
#include <fovea/kernels.hpp>
#include <fovea/patterns.hpp>
#include <fovea/simd.hpp>
//
#include <fovea/simd.hpp>
//
#include <fovea/patterns.hpp>
//
#include <fovea/kernels.hpp>
//
#include <fovea/fovea.hpp>
//
#include <fovea/core/eigen.hpp>
//
#include <fovea/core.hpp>
//
#include <fovea/attention.hpp>
//
#include <Eigen/Dense>

int main() { return fovea::FullAttention::name() == nullptr ? 1 : 0; }
