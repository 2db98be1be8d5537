// SPDX-License-Identifier: MIT
/// \file
/// A user's MPI program, started alone: one rank, both umbrella headers, and the bits of one
/// process.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <fovea/distributed.hpp>
#include <fovea/attention/full.hpp>
#include <fovea/core/eigen.hpp>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool same = false;
  {
    namespace distributed = fovea::distributed;
    const distributed::Communicator ranks(MPI_COMM_WORLD);
    const distributed::Sharding rows(ranks, distributed::RowLayout::zigzag(100, ranks.size()));
    Eigen::Tensor<float, 4, Eigen::RowMajor> q(1, 2, rows.own_count(), 8);
    Eigen::Tensor<float, 4, Eigen::RowMajor> out(q.dimensions());
    Eigen::Tensor<float, 4, Eigen::RowMajor> alone(q.dimensions());
    q.setRandom();
    const fovea::FullAttention op{{.causal = true}};
    distributed::forward(op, {.q = q, .k = q, .v = q}, out, rows);
    op.forward({.q = q, .k = q, .v = q}, alone);
    same = ranks.size() > 1 || std::equal(out.data(), out.data() + out.size(), alone.data());
    std::printf("rank %d of %d: %g\n", ranks.rank(), ranks.size(), double{out(0, 0, 0, 0)});
  }
  MPI_Finalize();
  return same ? 0 : 1;
}
