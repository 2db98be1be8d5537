// SPDX-License-Identifier: MIT
/// \file
/// A function to call if a scope is left by an exception.
#pragma once

#include <exception>
#include <utility>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Calls a function, which must not throw, when this object's scope is left by an exception.
template <class F>
class OnError {
 public:
  explicit OnError(F f) : f_(std::move(f)) {}
  OnError(const OnError&) = delete;
  OnError& operator=(const OnError&) = delete;
  ~OnError() {
    if (std::uncaught_exceptions() > exceptions_) f_();
  }

 private:
  F f_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace detail

FOVEA_NAMESPACE_END
