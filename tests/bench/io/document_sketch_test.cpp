// SPDX-License-Identifier: MIT
// fovea_test(LINK fovea_bench_io)
// The sketch of a document against the singular value decomposition of the whole matrix.
#include "bench/io/document_sketch.hpp"

#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <cmath>

#include "bench/io/compare_input.hpp"

namespace fovea_test::bench_io_document_sketch {

using bench::AllInputs;
using bench::Index;
using bench::Sketch;
using bench::View;

const std::string kText =
    "A sketch of few dimensions finds the keys that many of them would find. ";

/// The mean of the heads' logits, less the mean of each row.
Eigen::MatrixXd centred_logits(const AllInputs<double>& in) {
  Eigen::MatrixXd mean = Eigen::MatrixXd::Zero(in.q.rows(), in.k.rows());
  for (Index h = 0; h < in.q.heads(); ++h) {
    const Index key_head = h / (in.q.heads() / in.k.heads());
    for (Index i = 0; i < mean.rows(); ++i) {
      for (Index j = 0; j < mean.cols(); ++j) {
        double dot = 0;
        for (Index c = 0; c < in.q.width(); ++c) dot += in.q(0, h, i, c) * in.k(0, key_head, j, c);
        mean(i, j) +=
            dot / std::sqrt(static_cast<double>(in.q.width())) / static_cast<double>(in.q.heads());
      }
    }
  }
  mean.colwise() -= mean.rowwise().mean().eval();
  return mean;
}

Eigen::MatrixXd sketched_logits(const AllInputs<double>& in) {
  Eigen::MatrixXd logits(in.sketch_q.rows(), in.sketch_k.rows());
  for (Index i = 0; i < logits.rows(); ++i) {
    for (Index j = 0; j < logits.cols(); ++j) {
      double dot = 0;
      for (Index c = 0; c < in.sketch_q.width(); ++c) {
        dot += in.sketch_q(0, 0, i, c) * in.sketch_k(0, 0, j, c);
      }
      logits(i, j) = dot / std::sqrt(static_cast<double>(in.sketch_q.width()));
    }
  }
  return logits;
}

/// A text in double, with fewer key heads than query heads if wanted.
struct Document {
  Document(Index n, Index heads, Index key_heads, Index width) {
    const bench::HeadTensors x = bench::embed_text(kText, n, heads, width);
    q.assign(x.q.begin(), x.q.end());
    k.assign(x.k.begin(), x.k.begin() + key_heads * n * width);
    in = {View<const double>(q.data(), {1, heads, n, width}),
          View<const double>(k.data(), {1, key_heads, n, width})};
  }

  std::vector<double> q, k;
  AllInputs<double> in;
};

void expect_best_of_rank(const Document& document, Index rank) {
  const Sketch<double> sketch = bench::document_sketch(document.in, rank);
  const Eigen::MatrixXd logits = centred_logits(document.in);
  const Eigen::JacobiSVD<Eigen::MatrixXd> whole(logits, Eigen::ComputeThinU | Eigen::ComputeThinV);
  const Index kept = std::min(rank, whole.singularValues().size());
  const Eigen::MatrixXd best = whole.matrixU().leftCols(kept) *
                               whole.singularValues().head(kept).asDiagonal() *
                               whole.matrixV().leftCols(kept).transpose();
  const Eigen::MatrixXd got = sketched_logits(sketch.beside(document.in));
  EXPECT_LT((got - best).norm(), 1e-9 * logits.norm());
  EXPECT_GT(best.norm(), 0.1 * logits.norm());  // there is something to find
}

TEST(DocumentSketch, IsTheBestApproximationOfItsRank) {
  expect_best_of_rank(Document(70, 3, 3, 8), 4);
  expect_best_of_rank(Document(70, 3, 3, 8), 1);
}

TEST(DocumentSketch, SharesKeyHeadsAsTheAttentionDoes) {
  expect_best_of_rank(Document(60, 4, 2, 8), 4);
}

TEST(DocumentSketch, SupportsFewRowsAndLargeRanks) {
  expect_best_of_rank(Document(9, 3, 3, 8), 4);
  expect_best_of_rank(Document(40, 1, 1, 3), 5);
}

TEST(DocumentSketch, OfOneKeyIsZero) {
  const Document document(1, 2, 2, 4);
  const Sketch<double> sketch = bench::document_sketch(document.in, 4);
  for (const double x : sketch.q) EXPECT_EQ(x, 0);
  for (const double x : sketch.k) EXPECT_EQ(x, 0);
}

TEST(DocumentSketch, ContainsQueriesOfTheLastRows) {
  const Document document(20, 2, 2, 4);
  const Sketch<double> sketch = bench::document_sketch(document.in, 4);
  AllInputs<double> last = document.in;
  last.q = View<const double>(&document.in.q(0, 0, 17, 0), {1, 2, 3, 4}, last.q.strides());
  const AllInputs<double> in = sketch.beside(last);
  EXPECT_EQ(in.sketch_q.rows(), 3);
  EXPECT_EQ(in.sketch_k.rows(), 20);
  for (Index c = 0; c < 4; ++c) {
    EXPECT_EQ(in.sketch_q(0, 0, 2, c), sketch.beside(document.in).sketch_q(0, 0, 19, c));
  }
}

}  // namespace fovea_test::bench_io_document_sketch
