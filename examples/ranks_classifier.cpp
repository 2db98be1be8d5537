// SPDX-License-Identifier: MIT
/// \file
/// Trains a classifier of one long sequence that is spread over ranks: every rank holds some
/// tokens, all have the weights, and these get the bits of one process. Start it with `mpirun -np 4
/// ranks_classifier`, or alone.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <fovea/distributed.hpp>
#include <fovea/fovea.hpp>

namespace {

using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;  // [B, H, rows, D]
using Matrix = Eigen::MatrixXf;
using Sums = Eigen::MatrixXd;
namespace distributed = fovea::distributed;

constexpr Eigen::Index kTokens = 5000;
constexpr Eigen::Index kWidth = 16;
constexpr Eigen::Index kClasses = 3;
constexpr Eigen::Index kLabel = 2;
constexpr float kRate = 30;

/// The same number on every rank, whoever holds the token.
float token(Eigen::Index n, Eigen::Index d) {
  return static_cast<float>(
      std::sin(0.37 * static_cast<double>(n * (d + 1)) + 1.3 * static_cast<double>(d)));
}

/// Sums that go from rank to rank, so that tokens are added in their order; then all have them.
template <class Add>
Sums sum_over_tokens(const distributed::Communicator& ranks, Eigen::Index rows,
                     Eigen::Index columns, const Add& add) {
  Sums sums = Sums::Zero(rows, columns);
  const auto count = static_cast<int>(sums.size());
  const int last = ranks.size() - 1;
  if (ranks.rank() > 0) {
    MPI_Recv(sums.data(), count, MPI_DOUBLE, ranks.rank() - 1, 0, ranks.mpi(), MPI_STATUS_IGNORE);
  }
  add(sums);
  if (ranks.rank() < last) {
    MPI_Send(sums.data(), count, MPI_DOUBLE, ranks.rank() + 1, 0, ranks.mpi());
  }
  MPI_Bcast(sums.data(), count, MPI_DOUBLE, last, ranks.mpi());
  return sums;
}

/// A projection of tokens, FMM attention, their mean, and a matrix of classes.
struct Classifier {
  Matrix projection = Matrix::Identity(kWidth, kWidth);
  Matrix classes = Matrix::Constant(kClasses, kWidth, 0.1F);

  /// One step down the gradient of the loss. Returns the loss.
  double step(const distributed::Communicator& ranks) {
    const distributed::Rows rows(ranks, distributed::RowLayout::contiguous(kTokens, ranks.size()));
    const Eigen::Index own = rows.own_count();
    const Eigen::Index first = own > 0 ? rows.own()[0].begin : 0;
    Matrix tokens(own, kWidth);
    for (Eigen::Index n = 0; n < own; ++n) {
      for (Eigen::Index d = 0; d < kWidth; ++d) tokens(n, d) = token(first + n, d);
    }
    Tensor x(1, 1, own, kWidth);
    for (Eigen::Index n = 0; n < own; ++n) {
      const Eigen::RowVectorXf row = tokens.row(n) * projection;
      for (Eigen::Index d = 0; d < kWidth; ++d) x(0, 0, n, d) = row(d);
    }
    const fovea::FmmOneKernel attention{{.near = {.left = 20, .right = 20}}};
    Tensor out(1, 1, own, kWidth);
    distributed::forward(attention, {.q = x, .k = x, .v = x}, out, rows);
    const Sums total = sum_over_tokens(ranks, kWidth, 1, [&](Sums& sums) {
      for (Eigen::Index n = 0; n < own; ++n) {
        for (Eigen::Index d = 0; d < kWidth; ++d) sums(d) += static_cast<double>(out(0, 0, n, d));
      }
    });
    const Eigen::VectorXf mean = (total / static_cast<double>(kTokens)).cast<float>();

    const Eigen::VectorXf logits = classes * mean;
    Eigen::VectorXf weights = (logits.array() - logits.maxCoeff()).exp();
    weights /= weights.sum();
    const double loss = -std::log(static_cast<double>(weights(kLabel)));
    Eigen::VectorXf d_logits = weights;
    d_logits(kLabel) -= 1;
    const Eigen::VectorXf d_mean = classes.transpose() * d_logits / static_cast<float>(kTokens);

    Tensor d_out(1, 1, own, kWidth), d_q(d_out), d_k(d_out), d_v(d_out);
    for (Eigen::Index n = 0; n < own; ++n) {
      for (Eigen::Index d = 0; d < kWidth; ++d) d_out(0, 0, n, d) = d_mean(d);
    }
    distributed::backward(attention, {.q = x, .k = x, .v = x}, out, {}, d_out,
                          {.q = d_q, .k = d_k, .v = d_v}, rows);
    const Sums d_projection = sum_over_tokens(ranks, kWidth, kWidth, [&](Sums& sums) {
      for (Eigen::Index n = 0; n < own; ++n) {
        for (Eigen::Index d = 0; d < kWidth; ++d) {
          const float gradient = d_q(0, 0, n, d) + d_k(0, 0, n, d) + d_v(0, 0, n, d);
          sums.col(d) += (tokens.row(n) * gradient).transpose().cast<double>();
        }
      }
    });
    projection -= kRate * d_projection.cast<float>();
    classes -= kRate * d_logits * mean.transpose();
    return loss;
  }
};

bool run(const distributed::Communicator& ranks) {
  constexpr int steps = 5;
  Classifier spread;
  const double before = spread.step(ranks);
  double after = before;
  for (int i = 1; i < steps; ++i) after = spread.step(ranks);
  if (ranks.rank() != 0) return true;

  const distributed::Communicator alone(MPI_COMM_SELF);
  Classifier whole;
  for (int i = 0; i < steps; ++i) whole.step(alone);
  const bool same = whole.projection == spread.projection && whole.classes == spread.classes;
  std::printf("%d ranks, five steps: the loss falls by more than a tenth: %s\n", ranks.size(),
              after < 0.9 * before ? "yes" : "no");
  std::printf("all weights have the bits of one process: %s\n", same ? "yes" : "no");
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool good = run(distributed::Communicator(MPI_COMM_WORLD));
  MPI_Finalize();
  return good ? 0 : 1;
}
