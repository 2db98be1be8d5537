// SPDX-License-Identifier: MIT
/// \file
/// The scalars that operators are tested in. What is above the kernels is one template for all of
/// them, and the kernels' own tests have both, so double is left to the full suite wherever a test
/// does not need its precision.
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Core>

// 0 in the default suite.
#if !defined(FOVEA_FULL_SUITE)
#define FOVEA_FULL_SUITE 1
#endif

namespace fovea_test {

#if FOVEA_FULL_SUITE
/// The scalar of tests that need another one besides float.
using OtherScalar = double;
/// The second of the 16-bit storages, where drawn cases have both.
using OtherShort = Eigen::half;
template <class... More>
using ScalarsAnd = testing::Types<float, double, More...>;
template <template <class> class... Of>
using OfEachScalar = testing::Types<Of<float>..., Of<double>...>;
/// Expands a macro for each scalar type, for example for explicit instantiations.
#define FOVEA_TEST_SCALARS(define) define(float) define(double)
#else
using OtherScalar = float;
using OtherShort = Eigen::bfloat16;
template <class... More>
using ScalarsAnd = testing::Types<float, More...>;
template <template <class> class... Of>
using OfEachScalar = testing::Types<Of<float>...>;
#define FOVEA_TEST_SCALARS(define) define(float)
#endif

/// The scalars of typed suites.
using Scalars = ScalarsAnd<>;

}  // namespace fovea_test
