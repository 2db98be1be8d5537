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
  const auto expected = linformer_oracle(p.inputs(), scale, d_out);
  return judge_of<T>({{"out", expected.out, 16},
                      {"lse", expected.lse, 8},
                      {"d_q", expected.q, 32},
                      {"d_k", expected.k, 32},
                      {"d_v", expected.v, 32},
                      {"d_key_projection", expected.key_projection, 32},
                      {"d_value_projection", expected.value_projection, 32}});
}

/// The same of Nystroem attention. \param gradients whether they are held, too: their oracle
/// computes the call again for each number that is read
template <class T>
auto nystroem_judge(const fovea::NystroemOptions& options, const MixedProblem<T>& p,
                    bool gradients) {
  const auto expected = NystroemOracle<T>(p.inputs(), options, p.d_out.view()).expected(gradients);
  std::vector<ExpectedTensor<T>> all = {{"out", expected.out, 16}};
  if (gradients) {
    all.push_back({"d_q", expected.q, 32});
    all.push_back({"d_k", expected.k, 32});
    all.push_back({"d_v", expected.v, 32});
  }
  return judge_of<T>(std::move(all));
}

}  // namespace fovea_test
