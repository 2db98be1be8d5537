// SPDX-License-Identifier: MIT
/// \file
/// Trains a classifier of one long sequence that is sharded over ranks: every rank holds some
/// tokens and all weights, and the weights have the bits of one process. Start it with `mpirun -np
/// 4 ranks_classifier`, or alone.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <fovea/distributed.hpp>
#include <fovea/fovea.hpp>
#include <fovea/layers.hpp>
#include <vector>

namespace {

using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;  // [B, H, rows, D]
namespace distributed = fovea::distributed;

constexpr Eigen::Index kTokens = 5000;
constexpr Eigen::Index kWidth = 16;
constexpr Eigen::Index kClasses = 3;
constexpr Eigen::Index kLabel = 2;
constexpr float kRate = 3;

/// The tokens of this rank. Their numbers do not depend on the layout.
Tensor own_tokens(const distributed::Sharding& rows) {
  Tensor tokens(1, 1, rows.own_count(), kWidth);
  Eigen::Index place = 0;
  for (const fovea::Range& range : rows.own()) {
    for (Eigen::Index n = range.begin; n < range.end; ++n, ++place) {
      for (Eigen::Index d = 0; d < kWidth; ++d) {
        tokens(0, 0, place, d) = static_cast<float>(
            std::sin(0.37 * static_cast<double>(n * (d + 1)) + 1.3 * static_cast<double>(d)));
      }
    }
  }
  return tokens;
}

/// A projection of tokens, FMM attention, their mean, and a map to classes.
struct Classifier {
  explicit Classifier(fovea::Initialiser& initialiser)
      : projection(kWidth, kWidth, initialiser), classes(kWidth, kClasses, initialiser) {}

  template <class F>
  void for_each_parameter(const F& f) {
    fovea::for_each_parameter(projection, f);
    fovea::for_each_parameter(classes, f);
  }

  /// One step down the gradient of the loss. Returns the loss.
  double step(const distributed::Communicator& ranks) {
    const distributed::Sharding rows(
        ranks, distributed::RowLayout::contiguous(kTokens, ranks.size(), fovea::kReductionBlock));
    const Tensor tokens = own_tokens(rows);
    Tensor x(tokens.dimensions()), out(x), d_out(x), d_q(x), d_k(x), d_v(x);
    Tensor mean(1, 1, 1, kWidth), d_mean(mean), logits(1, 1, 1, kClasses), d_logits(logits);
    const fovea::FmmOneKernel attention{{.band = {.left = 20, .right = 20}}};
    fovea::MeanPool<float> pool;
    fovea::MeanPool<float>::Saved of_pool;
    fovea::Linear<float>::Saved of_map;
    for_each_parameter([](auto& parameter) { parameter.gradient_sum().setZero(); });

    distributed::sequence_parallel(rows, fovea::Serial{}, [&](auto& over) {
      projection.forward(tokens, x, of_map, over);
      distributed::forward(attention, {.q = x, .k = x, .v = x}, out, rows);
      pool.forward(out, mean, of_pool, over);
    });
    // All ranks have the mean, and compute the same from it.
    classes.forward(mean, logits, of_map);
    const std::vector<Eigen::Index> target = {kLabel};
    const double loss = fovea::softmax_cross_entropy<float>(logits, target, d_logits);
    classes.backward(mean, of_map, d_logits, d_mean);
    distributed::sequence_parallel(rows, fovea::Serial{}, [&](auto& over) {
      pool.backward(out, of_pool, d_mean, d_out, over);
      distributed::backward(attention, {.q = x, .k = x, .v = x}, out, {}, d_out,
                            {.q = d_q, .k = d_k, .v = d_v}, rows);
      const Tensor d_x = d_q + d_k + d_v;
      projection.backward(tokens, of_map, d_x, {}, over);
    });
    for_each_parameter([](auto& parameter) { parameter.value -= kRate * parameter.gradient; });
    return loss;
  }

  fovea::Linear<float> projection;
  fovea::Linear<float> classes;
};

bool run(const distributed::Communicator& ranks) {
  constexpr int steps = 5;
  fovea::Initialiser initialiser(7);
  const Classifier drawn(initialiser);
  Classifier sharded = drawn;
  const double before = sharded.step(ranks);
  double after = before;
  for (int i = 1; i < steps; ++i) after = sharded.step(ranks);
  if (ranks.rank() != 0) return true;

  const distributed::Communicator alone(MPI_COMM_SELF);
  Classifier whole = drawn;
  for (int i = 0; i < steps; ++i) whole.step(alone);
  const bool same = whole.projection.weight.value == sharded.projection.weight.value &&
                    whole.classes.weight.value == sharded.classes.weight.value;
  std::printf("%d ranks, five steps: the loss falls by more than a tenth: %s\n", ranks.size(),
              after < 0.9 * before ? "yes" : "no");
  std::printf("all weights have the same bits as one process: %s\n", same ? "yes" : "no");
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool good = run(distributed::Communicator(MPI_COMM_WORLD));
  MPI_Finalize();
  return good ? 0 : 1;
}
