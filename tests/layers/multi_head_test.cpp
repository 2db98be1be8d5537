// SPDX-License-Identifier: MIT
#include "fovea/layers/multi_head.hpp"

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "fovea/core/arena.hpp"
#include "layers/by_hand.hpp"

namespace fovea_test::layers_multi_head {

using fovea::MultiHead;
using fovea::MultiHeadOptions;
using fovea::Tokens;

constexpr Index kBatch = 2;
constexpr Index kRows = 12;
constexpr Index kWidth = 6;
constexpr Index kDominant = 3;
constexpr MultiHeadOptions kGrouped = {.width = kWidth,
                                       .heads = 4,
                                       .key_heads = 2,
                                       .head_width = 3,
                                       .bias = true,
                                       .sketch_width = 2,
                                       .features = 5,
                                       .length = 13,
                                       .projected = 5};
constexpr MultiHeadOptions kPlain = {
    .width = kWidth, .heads = 2, .sketch_width = 3, .features = 4, .length = kRows, .projected = 3};

/// The properties of an operator for the tests.
struct Traits {
  bool has_lists = false;
  bool has_dominant = false;
  bool learns_sketch = false;
  std::array<Index, kBatch> lengths = {12, 7};
  double tolerance = 1e-7;
};

/// Lists for IndexedAttention: keys i, i + 2, i + 5, all modulo 7, in order; so that they are in
/// every length.
fovea::IndexTensor lists(Index heads, Index rows) {
  fovea::IndexTensor indices({kBatch, heads, rows, 3});
  for_each_index({kBatch, heads, rows, 1}, [&](Index b, Index h, Index i, Index) {
    std::array<Index, 3> keys = {(i + h) % 7, (i + h + 2) % 7, (i + h + 5) % 7};
    std::sort(keys.begin(), keys.end());
    for (std::size_t n = 0; n < 3; ++n) {
      indices.view()(b, h, i, static_cast<Index>(n)) = keys[n];
    }
  });
  return indices;
}

template <class Op>
class Subject {
 public:
  Subject(const Op& op, const MultiHeadOptions& options, const Traits& traits)
      : layer_(make(op, options)), options_(options), traits_(traits) {
    draw_parameters(layer_, 17, 0.4);
    indices_ = lists(options.heads, kRows);
    dominant_ = Activations({kBatch, options.heads, kRows, kDominant});
    dominant_.fill(
        [](Index b, Index h, Index n, Index d) { return 12 * uniform(hash(5, b, h, n, d)); });
  }

  /// Forward values against the operator on tensors projected by hand.
  void expect_by_hand() {
    const Activations x = drawn({kBatch, 1, kRows, kWidth}, 21);
    const Activations y(x.shape());
    layer_.forward(tokens(x.view()), y.view());
    const Weights weights = weights_of(layer_);
    const fovea::HeadSizes sizes = layer_.sizes();
    const Index width = sizes.head_width;
    const auto [q, k, v] = heads_of(x, weights, "qkv", sizes.heads, sizes.key_heads, width);
    bench::AllInputs<double> inputs{q.view(), k.view(), v.view(), traits_.lengths};
    const Activations beta = rates(x, weights, sizes);
    if (weights.count("beta.weight") != 0) inputs.beta = beta.view();
    const Shape per_head = {1, sizes.heads, 1, 1};
    if (weights.count("near_logits") != 0) {
      inputs.near_logits = View<const double>(weights.at("near_logits").data(), per_head);
      inputs.far_logits = View<const double>(weights.at("far_logits").data(), per_head);
    }
    if (weights.count("projection") != 0) {
      inputs.projection = View<const double>(weights.at("projection").data(),
                                             {1, 1, sizes.features, sizes.head_width});
    }
    if (weights.count("key_projection") != 0) {
      inputs.key_projection = columns_for_rows(weights.at("key_projection"));
      inputs.value_projection = columns_for_rows(weights.at("value_projection"));
    }
    Activations sketch_q;
    Activations sketch_k;
    if (traits_.learns_sketch) {
      sketch_q = projected(x, weights, "sketch", 0, 1, sizes.sketch_width);
      sketch_k = projected(x, weights, "sketch", sizes.sketch_width, 1, sizes.sketch_width);
      inputs.sketch_q = sketch_q.view();
      inputs.sketch_k = sketch_k.view();
    }
    if (traits_.has_lists) inputs.indices = indices_.view();
    if (traits_.has_dominant) inputs.dominant = dominant_.view();
    const Activations out({kBatch, sizes.heads, kRows, width});
    layer_.op().forward(inputs, out.view());
    const Activations expected = projected(side_by_side(out), weights, "out", 0, 1, kWidth);
    EXPECT_TRUE(close_to(y.values(), expected.values(), 1e-13));
  }

  void expect_gradients() {
    DifferenceOptions options{.tolerance = traits_.tolerance};
    if (traits_.learns_sketch) options.untrained = "sketch";
    expect_layer_gradients(
        layer_, {kBatch, 1, kRows, kWidth}, {kBatch, 1, kRows, kWidth},
        [&](const View<const double>& x) { return tokens(x); }, options);
  }

 private:
  static MultiHead<Op, double> make(const Op& op, const MultiHeadOptions& options) {
    fovea::Initialiser initialiser(3);
    return MultiHead<Op, double>(op, options, initialiser);
  }

  /// The part of a projection of keys that sequences of kRows have.
  static View<const double> columns_for_rows(const DoubleMatrix& all) {
    return {all.data(), {1, 1, all.rows(), kRows}, {all.size(), all.size(), all.cols(), 1}};
  }

  static Activations rates(const Activations& x, const Weights& weights,
                           const fovea::HeadSizes& sizes) {
    if (weights.count("beta.weight") == 0) return Activations();
    Activations beta = projected(x, weights, "beta", 0, sizes.key_heads, 1);
    beta.fill([&](Index b, Index h, Index n, Index d) { return logistic(beta(b, h, n, d)); });
    return beta;
  }

  Tokens<double> tokens(const View<const double>& x) const {
    Tokens<double> all(x, traits_.lengths);
    if (traits_.has_lists) all.indices = indices_.view();
    if (traits_.has_dominant) all.dominant = dominant_.view();
    return all;
  }

  MultiHead<Op, double> layer_;
  MultiHeadOptions options_;
  Traits traits_;
  fovea::IndexTensor indices_;
  Activations dominant_;
};

template <class Op>
void expect_all(const Op& op, const Traits& traits = {}) {
  for (const MultiHeadOptions& options : {kGrouped, kPlain}) {
    SCOPED_TRACE(std::string(Op::name()) + ", heads " + std::to_string(options.heads));
    Subject<Op> subject(op, options, traits);
    subject.expect_by_hand();
    subject.expect_gradients();
  }
}

TEST(MultiHead, Full) {
  expect_all(fovea::FullAttention{});
  expect_all(fovea::FullAttention{{.causal = true, .soft_cap = 2.0}});
}
TEST(MultiHead, Local) { expect_all(fovea::LocalAttention{{.left = 2, .right = 1}}); }
TEST(MultiHead, Strided) { expect_all(fovea::StridedAttention{{.stride = 3}}); }
TEST(MultiHead, Fixed) { expect_all(fovea::FixedAttention{{.stride = 4, .summary = 1}}); }
TEST(MultiHead, Longformer) {
  expect_all(fovea::LongformerAttention{{.left = 2, .right = 2, .first_global = 1}});
}
TEST(MultiHead, BigBird) {
  expect_all(fovea::BigBirdAttention{{.block = 2, .global_blocks = 1, .random_blocks = 1}});
}
TEST(MultiHead, BlockSparse) {
  const fovea::BlockRows rows = {.offsets = {0, 1, 3, 4}, .columns = {0, 0, 1, 2}};
  expect_all(fovea::BlockSparseAttention{{.block = 4, .layouts = {rows}}});
}
TEST(MultiHead, Sparse) {
  expect_all(fovea::SparseAttention{{.patterns = {fovea::Window{2, 2}, fovea::Window{1, 5}}}});
}
TEST(MultiHead, Linear) {
  expect_all(fovea::LinearAttention<fovea::EluPlusOne>{});
  expect_all(fovea::LinearAttention<fovea::EluPlusOne, fovea::EluMinusPlusOne>{{.causal = true}});
}
TEST(MultiHead, Fmm) {
  expect_all(fovea::FmmTwoKernels{{.band = {.left = 2, .right = 1}}});
  expect_all(fovea::FmmFastWeight{{.band = {.left = 2}}});
}
TEST(MultiHead, DeltaRule) { expect_all(fovea::DeltaRuleAttention<>{}); }
TEST(MultiHead, Performer) {
  expect_all(fovea::PerformerAttention{});
  expect_all(fovea::PerformerAttention{{.causal = true}});
}
TEST(MultiHead, SmartBird) {
  expect_all(fovea::SmartBirdAttention{{.keys_per_row = 3}}, {.learns_sketch = true});
}
TEST(MultiHead, Linformer) { expect_all(fovea::LinformerAttention{}); }
TEST(MultiHead, Nystroem) {
  expect_all(fovea::NystroemAttention{{.landmarks = 4}}, {.lengths = {12, 4}, .tolerance = 1e-6});
}
TEST(MultiHead, Indexed) { expect_all(fovea::IndexedAttention{}, {.has_lists = true}); }

TEST(MultiHead, Fat) { expect_all(fovea::FatAttention{}); }
TEST(MultiHead, Fsat) {
  const fovea::FsatOptions options = {.max_length = 13, .edges = fovea::EdgeSource::both};
  expect_all(fovea::FsatAttention{options}, {.has_dominant = true});
}

/// Its operator takes the arena for each call, and gives it back.
TEST(MultiHead, RunsInAnArena) {
  fovea::Initialiser initialiser(1);
  const fovea::FullAttention op;
  MultiHead<fovea::FullAttention, double> layer(op, kPlain, initialiser);
  const Activations x = drawn({kBatch, 1, kRows, kWidth}, 21);
  const Activations y(x.shape()), d_x(x.shape());
  MultiHead<fovea::FullAttention, double>::Saved saved;
  const auto train = [&](auto&& executor) {
    fovea::zero_gradients(layer);
    layer.forward(x.view(), y.view(), saved, executor);
    layer.backward(x.view(), saved, x.view(), d_x.view(), executor);
    return joined({y.values(), d_x.values(), gradients_of(layer)});
  };
  const fovea::AttentionShape shape{kBatch, 2, 2, kRows, kRows, kWidth / 2, kWidth / 2};
  fovea::Arena arena((std::max)(op.workspace_bytes<double>(shape, 3),
                                op.backward_workspace_bytes<double>(shape, 3)));
  const fovea::ThreadPool pool(3);
  AnyExecutor in_arena = AnyExecutor::of(pool, &arena);
  const std::vector<double> expected = train(fovea::Serial{});
  EXPECT_TRUE(same_bits(train(in_arena), expected));
  EXPECT_TRUE(same_bits(train(arena.on(pool)), expected));
  fovea::Arena none(0);
  EXPECT_EQ(refusal([&] { train(none.on(pool)); }).substr(0, 42),
            "Arena: size_bytes is 0; expected at least ");
}

TEST(MultiHead, Refusals) {
  const auto making = [](const MultiHeadOptions& options) {
    return refusal([&] {
      fovea::Initialiser initialiser(1);
      MultiHead<fovea::FullAttention, double>(fovea::FullAttention{}, options, initialiser);
    });
  };
  EXPECT_EQ(making({.heads = 2}), "MultiHead: width is 0; expected at least 1");
  EXPECT_EQ(making({.width = 6, .heads = 4}),
            "MultiHead: heads is 4; expected a divisor of the width 6, or a head_width");
  EXPECT_EQ(making({.width = 6, .heads = 3, .key_heads = 2}),
            "MultiHead: key_heads is 2; expected a divisor of the 3 heads");
}

}  // namespace fovea_test::layers_multi_head
