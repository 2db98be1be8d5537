set(Eigen3_VERSION 3.3.9)
