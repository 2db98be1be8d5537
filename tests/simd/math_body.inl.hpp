// SPDX-License-Identifier: MIT
/// \file
/// The functions of simd/math.inl.hpp over arrays: what math_test.cpp compiles once per level.

/// f(x) of one vector.
template <class T>
FOVEA_INLINE Vec<T> apply(MathFunction f, Vec<T> x) {
  switch (f) {
    case MathFunction::exp2_fraction:
      return exp2_fraction(x);
    case MathFunction::exp2:
      return exp2(x);
    case MathFunction::exp:
      return exp(x);
    case MathFunction::log:
      return log(x);
    case MathFunction::tanh:
      return tanh(x);
    case MathFunction::sigmoid:
      return sigmoid(x);
  }
  return x;
}

/// y[i] = f(x[i]) for i in [0, n); the tail runs the same code on a padded vector.
template <class T>
inline void evaluate(MathFunction f, const T* x, T* y, Index n) {
  Index i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store(y + i, apply(f, load(x + i)));
  if (i < n) store_first(y + i, apply(f, load_first(x + i, n - i)), n - i);
}
