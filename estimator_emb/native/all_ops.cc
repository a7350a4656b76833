// All ops in one translation unit, to read TensorFlow's headers only once. These headers take most
// of the compile time.

#include "ops.cc"
#include "servers.cc"
#include "to_ids.cc"
#include "trainers.cc"
