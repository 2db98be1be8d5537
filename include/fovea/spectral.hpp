// SPDX-License-Identifier: MIT
/// \file
/// Includes the spectral part, which needs FFTW (the CMake target fovea::fftw). FFTW is under the
/// GPL, so fovea.hpp does not include this header.
#pragma once

#include "fovea/spectral/fftw_lock.hpp"
#include "fovea/spectral/fourier_mixer.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"
