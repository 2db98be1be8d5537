// SPDX-License-Identifier: MIT
/// \file
/// Expected results of Linformer and Nystroem attention.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "attention/mixed_tokens.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/nystroem.hpp"
#include "support/oracle/linformer.hpp"
#include "support/oracle/nystroem.hpp"

namespace fovea_test {

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto linformer_judge(std::optional<double> scale, const MixedProblem<T>& p) {
  const View<const T> d_out = p.d_out.view();
  return [expected = linformer_oracle(p.inputs(), scale, d_out)](const MixedResult<T>& got,
                                                                 const std::string& name) {
    EXPECT_TRUE(within_ratio(got.out, expected.out, 16, {name, "out"}));
    EXPECT_TRUE(within_ratio(got.lse, expected.lse, 8, {name, "lse"})) << "lse";
    EXPECT_TRUE(within_ratio(got.d_q, expected.q, 32, {name, "d_q"})) << "q";
    EXPECT_TRUE(within_ratio(got.d_k, expected.k, 32, {name, "d_k"})) << "k";
    EXPECT_TRUE(within_ratio(got.d_v, expected.v, 32, {name, "d_v"})) << "v";
    EXPECT_TRUE(within_ratio(got.d_e, expected.key_projection, 32, {name, "d_e"})) << "e";
    EXPECT_TRUE(within_ratio(got.d_f, expected.value_projection, 32, {name, "d_f"})) << "f";
  };
}

/// The same of Nystroem attention. \param gradients whether they are held, too: their oracle
/// computes the call again for each number that is read
template <class T>
auto nystroem_judge(const fovea::NystroemOptions& options, const MixedProblem<T>& p,
                    bool gradients) {
  const NystroemOracle<T> oracle(p.inputs(), options, p.d_out.view());
  return [expected = oracle.expected(gradients), gradients](const MixedResult<T>& got,
                                                            const std::string& name) {
    EXPECT_TRUE(within_ratio(got.out, expected.out, 16, {name, "out"}));
    if (!gradients) return;
    EXPECT_TRUE(within_ratio(got.d_q, expected.q, 32, {name, "d_q"})) << "q";
    EXPECT_TRUE(within_ratio(got.d_k, expected.k, 32, {name, "d_k"})) << "k";
    EXPECT_TRUE(within_ratio(got.d_v, expected.v, 32, {name, "d_v"})) << "v";
  };
}

}  // namespace fovea_test
