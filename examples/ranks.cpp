// SPDX-License-Identifier: MIT
/// \file
/// A step of causal attention over a sequence that is sharded over ranks: every rank holds some
/// rows, and the results have the bits of one process. Start it with `mpirun -np 4 ranks`, or
/// alone.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <fovea/distributed.hpp>
#include <fovea/fovea.hpp>

namespace {

using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;  // [B, H, rows, D]
namespace distributed = fovea::distributed;

constexpr Eigen::Index kRows = 3000;
constexpr Eigen::Index kHeads = 2;
constexpr Eigen::Index kWidth = 16;

Tensor random_tensor(Eigen::Index rows) {
  Tensor x(1, kHeads, rows, kWidth);
  x.setRandom();
  return x;
}

/// The tensors of one attention step, forward and backward.
struct Step {
  explicit Step(Eigen::Index rows)
      : q(random_tensor(rows)),
        k(random_tensor(rows)),
        v(random_tensor(rows)),
        out(random_tensor(rows)),
        d_out(random_tensor(rows)),
        d_q(random_tensor(rows)),
        d_k(random_tensor(rows)),
        d_v(random_tensor(rows)),
        lse(1, kHeads, rows, 1) {}

  Tensor q, k, v, out, d_out, d_q, d_k, d_v, lse;
};

bool run(const distributed::Communicator& ranks) {
  // A zigzag layout balances the work of a causal pattern.
  const distributed::Sharding rows(ranks, distributed::RowLayout::zigzag(kRows, ranks.size()));
  Step own(rows.own_count());
  const fovea::FullAttention attention{{.causal = true}};
  const auto sent = distributed::forward(attention, {.q = own.q, .k = own.k, .v = own.v}, own.out,
                                         {.lse = own.lse}, rows);
  distributed::backward(attention, {.q = own.q, .k = own.k, .v = own.v}, own.out, {.lse = own.lse},
                        own.d_out, {.q = own.d_q, .k = own.d_k, .v = own.d_v}, rows);

  // The same step on rank 0 alone, which gathers all rows.
  std::vector<std::vector<fovea::Range>> all_on_first(static_cast<std::size_t>(ranks.size()));
  all_on_first[0].push_back({0, kRows});
  const distributed::Sharding gathered(ranks, distributed::RowLayout(all_on_first));
  Step whole(gathered.own_count());
  const auto gather = [&](const Tensor& from, Tensor& to) {
    distributed::redistribute(from, rows, to, gathered);
  };
  gather(own.q, whole.q);
  gather(own.k, whole.k);
  gather(own.v, whole.v);
  gather(own.d_out, whole.d_out);
  Step expected = whole;
  gather(own.out, whole.out);
  gather(own.d_q, whole.d_q);
  gather(own.d_k, whole.d_k);
  gather(own.d_v, whole.d_v);
  if (ranks.rank() != 0) return true;
  attention.forward({.q = expected.q, .k = expected.k, .v = expected.v}, expected.out,
                    {.lse = expected.lse});
  attention.backward({.q = expected.q, .k = expected.k, .v = expected.v}, expected.out,
                     {.lse = expected.lse}, expected.d_out,
                     {.q = expected.d_q, .k = expected.d_k, .v = expected.d_v});
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.data(), a.data() + a.size(), b.data());
  };
  const bool all_same = same(whole.out, expected.out) && same(whole.d_q, expected.d_q) &&
                        same(whole.d_k, expected.d_k) && same(whole.d_v, expected.d_v);
  std::printf("%d ranks of up to %td rows, rank 0 sent %td bytes of keys and values\n",
              ranks.size(), rows.own_count(), sent.bytes_sent);
  std::printf("same bits as one process, forward and backward: %s\n", all_same ? "yes" : "no");
  return all_same;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool good = run(distributed::Communicator(MPI_COMM_WORLD));
  MPI_Finalize();
  return good ? 0 : 1;
}
