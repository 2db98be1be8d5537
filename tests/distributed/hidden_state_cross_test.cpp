// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// What the Fourier cross over ranks refuses. (See also drawn_spectral_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "distributed/spectral_call.hpp"
#include "fovea/core/thread_pool.hpp"

namespace fovea_test::distributed_hidden_state_cross {

TEST(DistributedCross, RefusesMismatches) {
  CrossCall<float> call(channels(1, 40, 6));
  const RankCall own(fovea::HiddenStateCross(), call);
  const auto refused = [&](const fovea::CrossInputs<float>& inputs) {
    return refusal([&] {
      fovea::distributed::forward(fovea::HiddenStateCross(), inputs, call.out.in(Where::ranks),
                                  own.rows());
    });
  };
  auto in = call.inputs(Where::ranks);
  if (own.is_last) in.f2 = {};
  std::string text = refused(in);
  EXPECT_TRUE(text.starts_with(own.begin)) << text;
  const std::vector<Index> lengths = {41};
  in = call.inputs(Where::ranks);
  in.key_lengths = lengths;
  text = refused(in);
  EXPECT_NE(text.find("41"), std::string::npos) << text;
  call.expect_untouched();
}

}  // namespace fovea_test::distributed_hidden_state_cross
