// SPDX-License-Identifier: MIT
// fovea_test(ALONE HEAP LINK -Wl,--wrap=malloc)
/// \file
/// Failing allocations in layers, including Eigen's matrices: whichever allocation of a pass fails,
/// it throws std::bad_alloc, and the same layer, with its saved state, then gives the right bits.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "fovea/attention/full.hpp"
#include "fovea/layers/adam.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/gradient_check.hpp"
#include "support/failing_allocations.hpp"

// Eigen asks malloc for matrices. The linker gives it this one (--wrap=malloc).
extern "C" {
void* __real_malloc(std::size_t size);   // NOLINT(bugprone-reserved-identifier)
void* __wrap_malloc(std::size_t size) {  // NOLINT(bugprone-reserved-identifier)
  return fovea_test::FailingHeap::strikes() ? nullptr : __real_malloc(size);
}
}

namespace fovea_test::layers_allocation_failure {

using Attention = fovea::MultiHead<fovea::FullAttention, double>;
using Block = fovea::EncoderBlock<Attention, double>;

constexpr Index kRows = 20;
constexpr Index kWidth = 8;
const Shape kShape = {2, 1, kRows, kWidth};

Block make_block() {
  fovea::Initialiser initialiser(3);
  Attention attention(fovea::FullAttention{{.causal = true}}, {.width = kWidth, .heads = 2},
                      initialiser);
  return {std::move(attention), kWidth, 16, initialiser};
}

TEST(LayersOfFailedAllocations, ForwardAndBackward) {
  const Activations x = drawn(kShape, 1);
  const Activations d_y = drawn(kShape, 2);
  const Activations y(kShape);
  const Activations d_x(kShape);
  std::optional<Block> block;
  std::optional<Block::Saved> saved;
  const auto forward = [&] { block->forward(fovea::Tokens<double>(x.view()), y.view(), *saved); };
  const auto backward = [&] {
    block->backward(fovea::Tokens<double>(x.view()), *saved, d_y.view(), d_x.view());
  };
  const auto reset = [&] {
    block.emplace(make_block());
    saved.emplace();
  };
  reset();
  forward();
  backward();
  const std::vector<double> expected = y.values();
  const std::vector<double> d_x_expected = d_x.values();
  const std::vector<double> gradients = gradients_of(*block);
  int failures = 0;
  fail_each_allocation(
      reset, forward,
      [&] {
        ++failures;
        forward();
        EXPECT_TRUE(same_bits(y.values(), expected));
      },
      [&] { EXPECT_TRUE(same_bits(y.values(), expected)); });
  EXPECT_GT(failures, 10);
  failures = 0;
  const auto expect_gradients = [&] {
    EXPECT_TRUE(same_bits(d_x.values(), d_x_expected));
    EXPECT_TRUE(same_bits(gradients_of(*block), gradients));
  };
  fail_each_allocation(
      [&] {
        reset();
        forward();
      },
      backward,
      [&] {
        // Gradients that were already added to some parameters must be reset by the caller.
        ++failures;
        fovea::zero_gradients(*block);
        backward();
        expect_gradients();
      },
      expect_gradients);
  EXPECT_GT(failures, 10);
}

TEST(LayersOfFailedAllocations, Construction) {
  std::optional<Block> block;
  int failures = 0;
  fail_each_allocation([&] { block.reset(); }, [&] { block.emplace(make_block()); },
                       [&] {
                         ++failures;
                         EXPECT_FALSE(block.has_value());
                       },
                       [&] { EXPECT_EQ(block->width(), kWidth); });
  EXPECT_GT(failures, 10);
}

TEST(LayersOfFailedAllocations, FirstStepOfAdam) {
  std::optional<Block> block;
  std::optional<fovea::Adam<double>> adam;
  const auto values = [&] {
    std::vector<double> all;
    block->visit([&](fovea::Parameter<double>& p) {
      all.insert(all.end(), p.value.data(), p.value.data() + p.value.size());
    });
    return all;
  };
  const auto reset = [&] {
    block.emplace(make_block());
    adam.emplace();
    block->visit([](fovea::Parameter<double>& p) { p.gradient_sum().setConstant(0.5); });
  };
  reset();
  const std::vector<double> before = values();
  adam->step(*block);
  const std::vector<double> expected = values();
  int failures = 0;
  fail_each_allocation(
      reset, [&] { adam->step(*block); },
      [&] {
        ++failures;
        EXPECT_EQ(adam->steps(), 0);
        EXPECT_TRUE(same_bits(values(), before));
        adam->step(*block);
        EXPECT_TRUE(same_bits(values(), expected));
      },
      [&] { EXPECT_TRUE(same_bits(values(), expected)); });
  EXPECT_GT(failures, 10);
}

TEST(LayersOfFailedAllocations, Decoder) {
  const Block block = make_block();
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  block.forward(fovea::Tokens<double>(x.view()), y.view());
  const std::vector<double> expected = y.values();
  std::optional<decltype(block.decoder())> decoder;
  const auto step = [&](Index first, Index count) {
    decoder->step(cut(View<const double>(x.view()), 2, first, count),
                  cut(y.view(), 2, first, count));
  };
  fail_each_allocation(
      [&] {
        decoder.reset();
        y.fill(constant(kUntouched));
      },
      [&] {
        decoder.emplace(block.decoder({.batch = 2}));
        step(0, 7);
        step(7, kRows - 7);
      },
      [&] {
        if (!decoder) decoder.emplace(block.decoder({.batch = 2}));
        step(0, decoder->length() == 0 ? 7 : 0);
        step(decoder->length(), kRows - decoder->length());
        EXPECT_EQ(decoder->length(), kRows);
      },
      [&] { EXPECT_TRUE(same_bits(y.values(), expected)); });
}

}  // namespace fovea_test::layers_allocation_failure
