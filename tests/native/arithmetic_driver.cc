// Looks up one batch and updates the table by one rule, with a library of arithmetic and without
// TensorFlow, so that a library for another machine can be tried in an emulator.
//
//   arithmetic_driver LIBRARY RULE ROWS DIMENSION SLOTS BATCH WIDTH
//
// Standard input, of this machine's byte order: ids int32 [BATCH, WIDTH]; then float32 constants
// [32], learning rate, weights and slots [1 + SLOTS, ROWS, DIMENSION], gradients [BATCH,
// DIMENSION]. Standard output, float32: activations [BATCH, DIMENSION], each the mean of its rows;
// then weights and slots.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "kernels.h"

namespace {

void check(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

template <typename T>
std::vector<T> read(size_t count) {
  std::vector<T> values(count);
  check(fread(values.data(), sizeof(T), count, stdin) == count, "The input is too short.");
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace estimator_emb;
  check(argc == 8, "There must be seven arguments.");
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) check(false, dlerror());
  const auto* const kernels = static_cast<const Kernels*>(dlsym(library, "kernels_any"));
  const auto rule = reinterpret_cast<Rule>(dlsym(library, argv[2]));
  check(kernels != nullptr && rule != nullptr, "The library lacks the kernels or the rule.");
  const int64_t table_rows = atoll(argv[3]), dimension = atoll(argv[4]), slots = atoll(argv[5]);
  const int64_t batch = atoll(argv[6]), width = atoll(argv[7]), size = table_rows * dimension;

  const auto ids = read<int32_t>(batch * width);
  const auto constants = read<float>(32), rate = read<float>(1);
  auto values = read<float>((1 + slots) * size);
  const auto gradients = read<float>(batch * dimension);
  std::vector<float*> variables;
  for (int64_t v = 0; v <= slots; ++v) variables.push_back(values.data() + v * size);

  Feature feature{};
  feature.ids = ids.data();
  feature.form = kDense;
  feature.combiner = kMean;
  feature.count = batch * width;
  feature.batch = batch;
  feature.width = width;
  feature.stride = 1;
  std::vector<float> activations(batch * dimension);
  check(kernels->lookup(&feature, values.data(), table_rows, dimension, 0, feature.count, 0, batch,
                        activations.data()) == kGood,
        "The lookup failed.");

  Rows rows{};
  rows.dimension = dimension;
  rows.variables = variables.data();
  rows.constants = constants.data();
  rows.learning_rate = rate[0];
  rows.cores = 1;
  std::vector<uint64_t> scratch(kernels->scratch_bytes(&feature, 1, dimension) / 8 + 1);
  const float* const of_feature = gradients.data();
  check(kernels->update(&feature, &of_feature, 1, table_rows, 0, 1, rule, &rows, nullptr,
                        scratch.data()) == kGood,
        "The update failed.");

  fwrite(activations.data(), sizeof(float), activations.size(), stdout);
  fwrite(values.data(), sizeof(float), values.size(), stdout);
}
