// All ops in one translation unit: most of the time of their compilation goes to TensorFlow's
// headers, which are so read once.

#include "ops.cc"
#include "servers.cc"
#include "to_ids.cc"
#include "trainers.cc"
