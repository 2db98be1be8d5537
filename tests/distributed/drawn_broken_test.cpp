// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Failures on one rank during a call: a user's pattern, at any of its calls, or a user's executor.
/// All ranks throw the same, none waits, and the next call has the bits of one process.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

#include "distributed/operator_call.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_decoder.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace fovea_test::distributed_drawn_broken {

using fovea::SparseAttention;

/// Says when a pattern breaks: at the call for which it has counted down to 0.
class Fuse {
 public:
  void set(long calls) { left_ = calls; }
  void burn() {
    if (left_ > 0 && --left_ == 0) throw std::runtime_error("the pattern broke");
  }

 private:
  std::atomic<long> left_ = 0;
};

/// A pattern that asks the fuse at each call of one of its functions.
ErasedPattern fused(const ErasedPattern& pattern, std::shared_ptr<Fuse> fuse) {
  ErasedPattern made = pattern;
  const auto wrap = [&]<class R, class... Args>(std::function<R(Args...)>& f) {
    f = [inner = f, fuse](Args... args) {
      fuse->burn();
      return inner(args...);
    };
  };
  wrap(made.interval_count);
  wrap(made.interval_capacity);
  wrap(made.keys_of);
  wrap(made.row_step);
  wrap(made.strided_range);
  wrap(made.causal_cut);
  wrap(made.same_until);
  wrap(made.next_cut);
  wrap(made.row_block);
  wrap(made.seen_from);
  wrap(made.meets);
  return made;
}

int broken_calls = 0;  // those in which something broke

/// Whether all ranks have thrown what one of them has.
bool have_broken(const std::string& said, const std::string& text) {
  if (said == "accepted") return false;
  EXPECT_TRUE(said.ends_with(text)) << said;
  ++broken_calls;
  return true;
}

/// Two calls of the same, the first of which something breaks in on one rank.
template <class T>
void try_broken(Bytes& bytes) {
  const auto fuse = std::make_shared<Fuse>();
  const DrawnPattern tree = drawn_tree(bytes, 200, 1);
  SparseAttention op{fovea::SparseOptions{}};
  op.options.patterns.emplace_back(fused(tree.pattern, fuse));
  DrawnSequence sequence(bytes, 1, 1500);
  MemberCall<SparseAttention, T> call(sequence, drawn_fills(bytes, sequence.seed));
  const RowLayout layout = drawn_row_layout(bytes, sequence.shape.queries);
  const bool is_odd = all_ranks().rank() == bytes(0, all_ranks().size() - 1);
  const bool breaks_executor = bytes.once_in(4);
  const long calls = bytes.once_in(2) ? bytes(1, 40) : bytes(1, 2000);
  const bool in_backward = bytes.once_in(2);
  SCOPED_TRACE(tree.made + ", breaks at " + std::to_string(calls));
  const Breaking breaking{is_odd};
  AnyExecutor broken = AnyExecutor::of(breaking);
  // Calls at first what breaks, if it is among ranks.
  const auto twice = [&](bool is_here, auto& executor, const auto& run) {
    if (is_here) {
      if (is_odd && !breaks_executor) fuse->set(calls);
      const std::string said = said_together([&] { run(breaks_executor ? broken : executor); });
      fuse->set(0);
      have_broken(said, breaks_executor ? ": the thread broke" : ": the pattern broke");
    }
    run(executor);
  };
  const auto forward = [&](Where where, auto&&... more) { forward_in(where, op, call, more...); };
  const auto backward = [&](Where where, auto&&... more) { backward_in(where, op, call, more...); };
  // Makes something break in one of the passes over ranks.
  const auto breaking_in = [&](bool is_here, const auto& pass) {
    return [&, is_here](Where where, auto&&... more) {
      if constexpr (sizeof...(more) == 0) {
        pass(where);
      } else {
        const auto run = [&](const Sharding& rows, AnyExecutor& executor) {
          twice(is_here, executor, [&](AnyExecutor& on) { pass(where, rows, on); });
        };
        run(more...);
      }
    };
  };
  const Passes passes{.has_backward = in_backward, .refuses = false};
  compare_sharded("broken", call, passes, &call.lse, layout, bytes,
                  breaking_in(!in_backward, forward), breaking_in(in_backward, backward));
}

/// A decoder whose pattern breaks in a step, and makes it again.
void try_broken_decoder(Bytes& bytes) {
  const auto fuse = std::make_shared<Fuse>();
  const ErasedPattern causal = ErasedPattern::of(fovea::Causal{});
  SparseAttention op{fovea::SparseOptions{}};
  op.options.patterns.emplace_back(fused(causal, fuse));
  const Index keys = bytes(1, 3000);
  const Index rows = std::min<Index>(keys, bytes(1, 40));
  const bool is_odd = all_ranks().rank() == bytes(0, all_ranks().size() - 1);
  const Tensor<float> q({1, 2, rows, 3}), k({1, 1, keys, 3}), v({1, 1, keys, 5});
  q.fill(gaussian(1));
  k.fill(gaussian(2));
  v.fill(gaussian(3));
  const fovea::DecoderShape shape{1, 2, 1, 3, 5};
  const auto fill = [&](auto& decoder, Index n) {
    decoder.append(fovea::detail::part_of(View<const float>(k.view()), 2, 0, n),
                   fovea::detail::part_of(View<const float>(v.view()), 2, 0, n));
  };
  auto alone = op.decoder<float>(shape);
  fill(alone, keys);
  const Tensor<float> out({1, 2, rows, 5}), own_out({1, 2, rows, 5});
  fovea::SoftmaxInputs<float> in;
  in.q = q.view();
  alone.step(in, out.view());
  fovea::distributed::SoftmaxDecoder<SparseAttention, float> decoder(op, shape, all_ranks());
  fill(decoder, keys - rows);
  in.k = fovea::detail::part_of(View<const float>(k.view()), 2, keys - rows, rows);
  in.v = fovea::detail::part_of(View<const float>(v.view()), 2, keys - rows, rows);
  if (is_odd) fuse->set(bytes(1, 500));
  const std::string said = said_together([&] { decoder.step(in, own_out.view()); });
  fuse->set(0);
  if (have_broken(said, ": the pattern broke")) {
    EXPECT_EQ(decoder.length(), keys - rows);
    decoder.step(in, own_out.view());
  }
  EXPECT_EQ(decoder.length(), keys);
  expect_whole(own_out.values(), out.values(), "out");
}

TEST(DistributedDrawnBroken, AllThrowTheSame) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    if (bytes.once_in(4)) return try_broken_decoder(bytes);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_broken<T>(bytes); });
  });
  EXPECT_GT(broken_calls, 20);
}

}  // namespace fovea_test::distributed_drawn_broken
