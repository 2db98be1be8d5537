// SPDX-License-Identifier: MIT
// The distance of the last rows alone is that of those rows of full attention of all.
#include "bench/measure/last_rows.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "bench/io/compare_input.hpp"

namespace fovea_test::bench_measure_last_rows {

using bench::Index;

TEST(LastRows, AreComparedWithFullAttention) {
  const bench::HeadTensors tensors = bench::embed_text("a text that is repeated", 40, 2, 8);
  const auto in = tensors.first(40);
  bench::ThreadPool pool(2);
  for (const bool causal : {false, true}) {
    std::vector<float> out(tensors.v.size());
    fovea::FullAttention{{.causal = causal}}.forward(
        in, bench::View<float>(out.data(), tensors.v_shape), pool);
    EXPECT_LT(bench::distance_of_last_rows(in, out, causal, 16, pool), 1e-6);
    EXPECT_GT(bench::distance_of_last_rows(in, out, !causal, 16, pool), 1e-3);
    out[23 * 8] += 100;  // row 23 of head 0 is not among the last 16
    EXPECT_LT(bench::distance_of_last_rows(in, out, causal, 16, pool), 1e-6);
    EXPECT_GT(bench::distance_of_last_rows(in, out, causal, 17, pool), 1);
    for (float& x : out) x = 0;
    EXPECT_EQ(bench::distance_of_last_rows(in, out, causal, 40, pool), 1);
  }
}

}  // namespace fovea_test::bench_measure_last_rows
