// SPDX-License-Identifier: MIT
/// \file
/// What has weights, and a decoder, as fovea_scale measures them: the Synthesizers, and blocks of
/// an encoder, whose gradients of weights are sums over the tokens of all ranks.
#include <memory>
#include <utility>

#include "bench/scale/calls.hpp"
#include "bench/scale/pattern_costs.hpp"
#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_decoder.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/multi_head.hpp"

namespace bench {
namespace {

/// A Synthesizer is attention of all rows to all keys, of some width.
/// \param add add(sent, layout): what the gradients of its weights send
CostsOf synthesizer_costs(Index heads, Index key_width,
                          std::function<void(Sent&, const RowLayout&)> add) {
  return [=, softmax = pattern_costs(heads, [](double n) { return n * n; })](bool is_backward) {
    Costs costs = softmax(is_backward);
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      add_pattern(sent, layout, RowBytes(heads, key_width), is_backward, {});
      if (is_backward) add(sent, layout);
    };
    return costs;
  };
}

/// R has the rows of queries, which go to the ranks of their columns.
CostsOf random_costs(Index heads) {
  return synthesizer_costs(heads, 0, [=](Sent& sent, const RowLayout& layout) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const Index own = layout.count(rank);
      sent.add(rank, float_bytes(heads * own * (layout.rows() - own)));
    }
  });
}

/// The sums of W1 go from rank to rank, and the columns of W2 to all. Both have a bias.
CostsOf dense_costs(Index heads) {
  return synthesizer_costs(heads, kHidden + 1, [=](Sent& sent, const RowLayout& layout) {
    const auto bytes = [=](Index numbers) { return float_bytes(heads * numbers); };
    sent.chain_to_all(layout, bytes((kWidth + 1) * fovea::padded_size(kHidden)));
    sent.to_all([&](int rank) { return bytes(layout.count(rank) * (kHidden + 1)); });
  });
}

/// The gradient of a matrix passes through the ranks in parts of that many rows, at most four times
/// as many parts as ranks.
void add_gradient(Sent& sent, const RowLayout& layout, Index rows, Index columns,
                  Index least_rows) {
  const Index parts = std::clamp(rows / least_rows, Index{1}, Index{4} * layout.ranks());
  const Index of_part = (rows + parts - 1) / parts;
  sent.chain_to_all(layout, float_bytes(parts * of_part * columns));
}

/// A block of an encoder is attention, and backward sums over tokens for its weights.
CostsOf block_costs(const CostsOf& attention, Index heads) {
  return [=](bool is_backward) {
    Costs costs = attention(is_backward);
    if (!is_backward) return costs;
    constexpr Index least_rows = 128;  // of a matrix, but for those of one row
    const Index width = heads * kWidth;
    costs.add_sent = [=, of_attention = costs.add_sent](Sent& sent, const RowLayout& layout) {
      of_attention(sent, layout);
      const auto add = [&](Index rows, Index columns, Index least) {
        add_gradient(sent, layout, rows, columns, least);
      };
      add(width, 3 * width, least_rows);  // q, k and v
      add(width, width, least_rows);      // what heads give
      add(width, 4 * width, least_rows);  // both maps of the feed-forward network
      add(4 * width, width, least_rows);
      add(1, 4 * width, 1);  // their biases
      add(1, width, 1);
      for (int norm = 0; norm < 2; ++norm) add(1, 2 * width, 1);
    };
    const double chains = 8;
    costs.messages = [=, of_attention = costs.messages](int ranks) {
      return of_attention(ranks) + messages_of_chains(chains, 4 * Index{ranks})(ranks);
    };
    return costs;
  };
}

/// A block and what it keeps from one pass to the other.
template <class Op>
struct Block {
  using Layer = fovea::EncoderBlock<fovea::MultiHead<Op, float>>;

  Block(const Op& op, Index heads, fovea::Initialiser initialiser)
      : layer(
            fovea::MultiHead<Op, float>(op, {.width = heads * kWidth, .heads = heads}, initialiser),
            heads * kWidth, 4 * heads * kWidth, initialiser) {}

  Layer layer;
  typename Layer::Saved saved;
};

template <class Op>
System block_of(Look look, const Op& op, Index heads, const CostsOf& attention) {
  const auto block = [=](Tensors& t) -> Block<Op>& {
    constexpr std::uint64_t seed = 1;
    return t.kept("block",
                  [&] { return std::make_shared<Block<Op>>(op, heads, fovea::Initialiser(seed)); });
  };
  const auto shape = [=](const Tensors& t) { return Shape{1, 1, t.rows(), heads * kWidth}; };
  const auto forward = [=](Tensors& t, auto&& over) {
    Block<Op>& b = block(t);
    b.layer.forward(t.given("x", shape(t)), t.made("y", shape(t)), b.saved, over);
  };
  const auto backward = [=](Tensors& t, auto&& over) {
    Block<Op>& b = block(t);
    b.layer.backward(t.given("x", shape(t)), b.saved, t.given("d_y", shape(t)),
                     t.made("d_x", shape(t)), over);
  };
  const auto pass = [](const auto& run, const auto& touch, Costs costs) -> PassOfSystem {
    return {touch, [=](Tensors& t) { run(t, fovea::Serial{}); },
            [=](Tensors& t, const Sharding& rows) {
              return sequence_parallel(rows, fovea::Serial{}, [&](auto& over) { run(t, over); });
            },
            std::move(costs)};
  };
  const auto touch = [=](Tensors& t) { block(t), t.given("x", shape(t)), t.made("y", shape(t)); };
  const auto touch_all = [=](Tensors& t) {
    touch(t), t.given("d_y", shape(t)), t.made("d_x", shape(t));
  };
  const CostsOf costs = block_costs(attention, heads);
  return {std::move(look), whole_chains, pass(forward, touch, costs(false)),
          pass(backward, touch_all, costs(true))};
}

/// The last row of a sequence whose keys are in a distributed cache.
System decoder(Look look, Index heads) {
  using Op = fovea::FullAttention;
  const Op op{{.causal = true}};
  const fovea::DecoderShape shape{1, heads, heads, kWidth, kWidth};
  const Shape one_row = {1, heads, 1, kWidth};
  const auto q = [=](Tensors& t) { return t.alike("last q", one_row); };
  const auto out = [=](Tensors& t) { return t.made("last out", one_row); };
  const auto whole = [=](Tensors & t) -> auto& {
    return t.kept("decoder", [&] {
      auto made = std::make_shared<decltype(op.decoder<float>(shape))>(op.decoder<float>(shape));
      made->append(t.read("k"), t.read("v"));
      return made;
    });
  };
  const auto sharded = [=](Tensors & t, const Sharding& rows) -> auto& {
    return t.kept("decoder over ranks", [&] {
      using Decoder = fovea::distributed::SoftmaxDecoder<Op, float>;
      auto made = std::make_shared<Decoder>(op, shape, rows.ranks());
      made->append_own({t.read("k"), t.read("v")}, rows.count());
      return made;
    });
  };
  Costs costs;
  costs.pairs = [](double n) { return n; };
  costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
    sent.to_all([&](int rank) {
      const Index segments = segments_of(layout, rank, fovea::kKeySegment);
      const Index softmax = fovea::softmax_row_part(1, kWidth);
      return float_bytes(segments * heads * softmax);
    });
  };
  costs.messages = messages_to_all(1);
  System system;
  system.look = std::move(look);
  system.layout = [](Index rows, int ranks) {
    return RowLayout::block_cyclic(rows, ranks, fovea::kKeySegment);
  };
  system.forward = {
      [=](Tensors& t) { q(t), out(t), t.read("k"), t.read("v"); },
      [=](Tensors& t) { whole(t).step({.q = q(t)}, out(t)); },
      [=](Tensors& t, const Sharding& rows) { return sharded(t, rows).step({.q = q(t)}, out(t)); },
      costs};
  return system;
}

}  // namespace

Systems weight_systems(Index heads, bool saves) {
  using enum Taken;
  const auto weights = Family::weights;
  const fovea::LocalAttention window{{.left = kBand, .right = kBand}};
  const auto of_window = [](double n) { return (2 * kBand + 1) * n; };
  const auto of_all = [](double n) { return n * n; };
  return {
      system_of({"Synthesizer, random", "synthesizer", weights, if_asked}, RowLayout::contiguous,
                fovea::RandomSynthesizerAttention{}, {saves}, random_costs(heads)),
      system_of({"Synthesizer, factorised", "synthesizer", weights, if_asked},
                RowLayout::contiguous, fovea::FactorisedSynthesizerAttention{}, {saves},
                synthesizer_costs(heads, kRank, [](Sent&, const RowLayout&) {})),
      system_of({"Synthesizer, dense", "heads", weights, if_asked}, whole_chains,
                fovea::DenseSynthesizerAttention{}, {saves}, dense_costs(heads)),
      block_of({"block, window", "local", weights}, window, heads,
               near_costs(heads, of_window, {margin, margin})),
      block_of({"block, full", "full", weights, if_asked}, fovea::FullAttention{}, heads,
               pattern_costs(heads, of_all)),
      decoder({"decoding, full", "full", weights, usually, true}, heads),
  };
}

}  // namespace bench
