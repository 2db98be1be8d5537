// SPDX-License-Identifier: MIT
/// \file
/// How the parameters of a layer are found and named: a layer lists its parts once, and `visit`
/// goes through them.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "fovea/layers/parameter.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

template <class Part>
struct IsParameter : std::false_type {};
template <class T>
struct IsParameter<Parameter<T>> : std::true_type {};

/// Whether f takes a parameter's name before the parameter.
template <class F, class P>
concept TakesNames = std::is_invocable_v<F&, const std::string&, P&>;

/// Calls f for a parameter, with its name if f takes that.
template <class F, class P>
void give(F& f, const std::string& name, P& parameter) {
  if constexpr (TakesNames<F, P>) {
    f(name, parameter);
  } else {
    f(parameter);
  }
}

/// Passes parameters on to f, with a prefix before their names.
template <class F>
struct Prefixed {
  F& f;
  const std::string& prefix;

  template <class P>
  void operator()(const std::string& name, P& parameter) const {
    give(f, prefix + name, parameter);
  }
};

/// What `each_part` calls for each part: a parameter, a layer, or several layers.
template <class F>
class PartVisitor {
 public:
  explicit PartVisitor(F& f) : f_(f) {}

  /// A part whose parameters keep their names.
  template <class Part>
  void operator()(Part& part) const {
    if constexpr (IsParameter<std::remove_const_t<Part>>::value) {
      give(f_, part.name, part);
    } else {
      part.visit(f_);
    }
  }

  /// A part with a name, which goes before the names of its parameters; of a range of layers also
  /// the number of the layer.
  template <class Part>
  void operator()(std::string_view name, Part& part) const {
    if constexpr (requires { std::begin(part); }) {
      std::size_t number = 0;
      for (auto& layer : part) (*this)(std::string(name) + '.' + std::to_string(number++), layer);
    } else if constexpr (IsParameter<std::remove_const_t<Part>>::value) {
      give(f_, std::string(name), part);
    } else {
      const std::string prefix = std::string(name) + '.';
      part.visit(Prefixed<F>{f_, prefix});
    }
  }

 private:
  F& f_;
};

}  // namespace detail

/// Gives a layer or a model `Self` the function `visit`. Self lists its parts once, in a static
/// function that works for a constant `self` as for one that can change:
///
///     struct Model : fovea::LayerParts<Model> {
///       template <class Self, class F>
///       static void each_part(Self& self, F&& f) {
///         f(self.embedding);          // embedding.table, embedding.position
///         f("blocks", self.blocks);   // a vector: blocks.0.norm1.scale, ...
///         f("classifier", self.head);
///       }
///     };
///
/// A part is a Parameter, a layer, anything else that has `visit`, or a range of those. A name
/// goes before the names that the part gives its parameters, with a dot; without one they stay as
/// they are. It is for the author of a model to give names that differ: what saves and loads
/// parameters refuses others.
template <class Self>
class LayerParts {
 public:
  /// Calls `f(parameter)`, or `f(name, parameter)` if f takes two arguments, for each parameter of
  /// all parts, in the order of the list. The name is a `const std::string&`, made of the names of
  /// parts on the way and the parameter's own, such as "blocks.3.attention.qkv.weight".
  template <class F>
  void visit(F&& f) {
    Self::each_part(static_cast<Self&>(*this), detail::PartVisitor<std::remove_reference_t<F>>(f));
  }
  /// The same for parameters that are only read.
  template <class F>
  void visit(F&& f) const {
    Self::each_part(static_cast<const Self&>(*this),
                    detail::PartVisitor<std::remove_reference_t<F>>(f));
  }

  /// A layer that lists no parts has none.
  template <class Layer, class F>
  static void each_part(Layer& /*self*/, F&& /*f*/) {}

 protected:
  ~LayerParts() = default;
};

FOVEA_NAMESPACE_END
