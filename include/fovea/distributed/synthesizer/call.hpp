// SPDX-License-Identifier: MIT
/// \file
/// The forms of the Synthesizer.
#pragma once

#include <concepts>

#include "fovea/attention/synthesizer/form.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A form of the Synthesizer.
template <class Op>
concept Synthesizer = std::derived_from<Op, fovea::detail::SynthesizerForm<Op, typename Op::Shape>>;

}  // namespace distributed

FOVEA_NAMESPACE_END
