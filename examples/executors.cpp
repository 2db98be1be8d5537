// SPDX-License-Identifier: MIT
/// \file
/// Executors, which run the work (fovea's pool, an Eigen device, a custom executor), and scratch
/// memory, from the system or reused. The results have the same bits.
#define EIGEN_USE_THREADS  // for Eigen::ThreadPoolDevice; before any header of Eigen
#include <cstdio>
#include <cstring>
#include <fovea/fovea.hpp>
#include <thread>
#include <vector>

/// A thread for each call. An operator makes at most `concurrency()` calls, which do not throw.
struct FreshThreads {
  static int concurrency() { return 3; }
  template <class F>
  static void parallel_for(fovea::Index n, F&& f) {
    std::vector<std::jthread> threads;
    for (fovea::Index i = 0; i < n; ++i) threads.emplace_back([&f, i] { f(i); });
  }
};

int main() {
  fovea::Tensor4<float> q(1, 4, 300, 32), k(1, 4, 300, 32), v(1, 4, 300, 32);
  q.setRandom();
  k.setRandom();
  v.setRandom();
  const fovea::FullAttention op{{.causal = true}};

  fovea::ThreadPool pool(4);  // without an argument: FOVEA_NUM_THREADS, or the CPUs there are
  Eigen::ThreadPool eigen_pool(2);
  const Eigen::ThreadPoolDevice device(&eigen_pool, 2);
  FreshThreads own;
  // Scratch memory that every call reuses, instead of allocating it.
  const fovea::AttentionShape shape = fovea::shape_of(fovea::SoftmaxInputs<float>{q, k, v});
  fovea::Arena arena(op.workspace_bytes<float>(shape, pool.concurrency()));

  const auto serial = fovea::attend(op, q, k, v);
  bool same = true;
  for (const auto& out :
       {fovea::attend(op, q, k, v, pool), fovea::attend(op, q, k, v, device),
        fovea::attend(op, q, k, v, own), fovea::attend(op, q, k, v, arena.on(pool))}) {
    const auto size_bytes = static_cast<std::size_t>(serial.size()) * sizeof(float);
    same = same && std::memcmp(out.data(), serial.data(), size_bytes) == 0;
  }
  std::printf("same bits with every executor: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
